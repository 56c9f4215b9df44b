//! One gateway of the model: an engine with its board and buyers, and what the stock task around it keeps.

use std::collections::BTreeMap;
use std::sync::Arc;

use rushgate::protocol::{OrderNumber, SkuKey, UserId};
use rushgate::stock::calls::{Call, Gen, Mark, ProcessNumber, RecoveryCall, SHARDS, ShardId};
use rushgate::stock::{Board, Buyers, Left, Purchase, Settings, Stock};

use super::world::Life;

type Marks = Vec<(UserId, Mark)>;

/// A purchase that waits for its outcome.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    pub(crate) client: usize,
    pub(crate) sku: SkuKey,
    pub(crate) order: OrderNumber,
    pub(crate) told_by_ms: u64,
}

pub(crate) struct Gateway {
    pub(crate) life: Life,
    pub(crate) engine: Stock<u64>,
    pub(crate) board: Arc<Board>,
    pub(crate) buyers: Arc<Buyers>,
    pub(crate) open: BTreeMap<u64, Ticket>,
    pub(crate) reading_since_ms: Option<u64>,
    /// Cut off now, or at some time.
    pub(crate) is_silent: bool,
    pub(crate) was_silent: bool,
    /// The generation that SQL told when it was last cut off.
    pub(crate) known: Gen,
    /// The last recovery that it began to answer, one that waits, and what SQL has not confirmed (with when it was
    /// sent).
    pub(crate) asked: Gen,
    pub(crate) next_call: Option<RecoveryCall>,
    pub(crate) handing_in: Option<(Gen, Marks, u64)>,
    pub(crate) failing: BTreeMap<OrderNumber, (UserId, Mark, u64)>,
    settings: Settings,
    pushes: u64,
    last_calls: Vec<Option<Call>>,
    asked_at_ms: [u64; SHARDS],
}

impl Gateway {
    pub(crate) fn new(
        settings: Settings,
        life: Life,
        process: ProcessNumber,
        generation: Gen,
        again_max: u8,
        seed: u64,
    ) -> Self {
        let (board, buyers) = (Arc::new(Board::default()), Arc::new(Buyers::default()));
        let mut engine =
            Stock::new(settings, process, generation, Arc::clone(&buyers), Arc::clone(&board), seed);
        engine.set_again(move |_| again_max);
        Self {
            life,
            engine,
            board,
            buyers,
            open: BTreeMap::new(),
            reading_since_ms: None,
            is_silent: false,
            was_silent: false,
            known: generation,
            asked: Gen(0),
            next_call: None,
            handing_in: None,
            failing: BTreeMap::new(),
            settings,
            pushes: 0,
            last_calls: vec![None; SHARDS],
            asked_at_ms: [0; SHARDS],
        }
    }

    /// The number that the next purchase taken in will have: process number (27 bits), sequence (36 bits).
    pub(crate) fn next_order(&self) -> OrderNumber {
        OrderNumber((u64::from(self.life.process) << 36) | (self.pushes + 1))
    }

    /// False if the engine has no room.
    pub(crate) fn push(&mut self, now_ms: u64, number: u64, ticket: Ticket, purchase: Purchase) -> bool {
        if self.engine.push(now_ms, number, purchase).is_err() {
            return false;
        }
        self.pushes += 1;
        let longest_ms = self.settings.patience_ms.max(self.settings.unconfirmed_after_ms);
        self.open.insert(number, Ticket { told_by_ms: now_ms + longest_ms, ..ticket });
        true
    }

    /// Nothing waits to be written to SQL.
    pub(crate) fn owes_nothing(&self) -> bool {
        self.next_call.is_none() && self.handing_in.is_none() && self.failing.is_empty()
    }

    pub(crate) fn left(&self, sku: SkuKey, now_ms: u64) -> Left {
        self.board.left(&self.board.slot(sku), now_ms)
    }

    /// Numbers rise by one per shard, and a number is never used for another body.
    pub(crate) fn check_call(&mut self, call: &Call) {
        assert_eq!(call.process.0, self.life.process);
        let last = &mut self.last_calls[call.shard.index()];
        let last_number = last.as_ref().map_or(0, |last| last.number);
        if call.number == last_number {
            assert_eq!(Some(call), last.as_ref(), "a number was used for another body");
        } else {
            assert_eq!(call.number, last_number + 1, "numbers rise by one: {call:?}");
            *last = Some(call.clone());
        }
    }

    /// Everybody has been told by now whose time was up at the last turn.
    pub(crate) fn check_deadlines(&self, now_ms: u64) {
        for ticket in self.open.values() {
            let until_ms = ticket.told_by_ms;
            assert!(until_ms + 25 >= now_ms, "{:?}: {ticket:?} was told nothing by {now_ms}", self.life);
        }
    }

    pub(crate) fn snapshots_to_ask(&mut self, now_ms: u64, again_ms: u64) -> Vec<ShardId> {
        let asked = &mut self.asked_at_ms;
        let mut wanted: Vec<ShardId> = self.engine.snapshots_wanted().collect();
        wanted.retain(|shard| {
            let at_ms = &mut asked[shard.index()];
            let due = *at_ms == 0 || *at_ms + again_ms <= now_ms;
            if due {
                *at_ms = now_ms;
            }
            due
        });
        for shard in ShardId::ALL {
            if !wanted.contains(&shard) && !self.engine.snapshots_wanted().any(|other| other == shard) {
                asked[shard.index()] = 0;
            }
        }
        wanted
    }

    pub(crate) fn feeds_to_read(&mut self, now_ms: u64, again_ms: u64) -> Option<[(Gen, u64); SHARDS]> {
        if self.reading_since_ms.is_some_and(|since_ms| since_ms + again_ms > now_ms) {
            return None;
        }
        self.reading_since_ms = Some(now_ms);
        Some(self.engine.feed_positions())
    }
}

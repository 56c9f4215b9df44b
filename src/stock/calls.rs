//! The vocabulary between the stock module and a store: numbered calls, replies, feed events, snapshots.
//!
//! Pure data: no I/O, no time. A store executes a [`Call`] atomically on one shard; the rules are those of the
//! stock protocol (guard by generation, numbered calls, event before counters).

use crate::protocol::{OrderNumber, OrderState, SkuKey, UserId};

/// Number of shards (and of sub-keys of every SKU). Fixed for an installation.
pub const SHARDS: usize = 16;

/// One of the 16 shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShardId(u8);

impl ShardId {
    /// All shards, ascending.
    pub const ALL: [Self; SHARDS] = [
        Self(0),
        Self(1),
        Self(2),
        Self(3),
        Self(4),
        Self(5),
        Self(6),
        Self(7),
        Self(8),
        Self(9),
        Self(10),
        Self(11),
        Self(12),
        Self(13),
        Self(14),
        Self(15),
    ];

    /// All shards, ascending.
    pub fn all() -> impl ExactSizeIterator<Item = Self> {
        Self::ALL.into_iter()
    }

    /// `None` from 16 up.
    pub const fn new(number: u8) -> Option<Self> {
        if number < 16 { Some(Self(number)) } else { None }
    }

    /// The shard of a user: the top four bits of splitmix64 of the id (Steele, Lea, Flood 2014).
    pub const fn of(user: UserId) -> Self {
        let mut z = user.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^= z >> 31;
        Self((z >> 60) as u8)
    }

    /// 0 to 15.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// 0 to 15.
    pub const fn number(self) -> u8 {
        self.0
    }
}

/// The installation's generation: raised at every recovery, and at every start of the embedded store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Gen(pub u64);

/// The durable number of one process start (27 bits, from 1, never reused).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessNumber(pub u32);

/// A request to reserve, as the store sees it. All or nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// The buyer; the call's shard is [`ShardId::of`] this user.
    pub user: UserId,
    /// What is bought.
    pub sku: SkuKey,
    /// The number the order will have.
    pub order: OrderNumber,
    /// Units, at least 1.
    pub quantity: u16,
    /// 1 for the user's first order in the activity; after one that is over, its attempt and one.
    pub attempt: u8,
    /// A recovery has lost it after its user could see it: no store turns it away for coming too often.
    pub promised: bool,
}

/// Units announced by another shard: `in[this←source]` is to become at least `out`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BringIn {
    /// The article.
    pub sku: SkuKey,
    /// Where the units come from.
    pub source: ShardId,
    /// The cumulative `out[source→this]` known to the caller under the call's own generation.
    pub out: u64,
}

/// What a call does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallBody {
    /// Bring in announced units, then reserve for each item in order. Either list may be empty.
    Reserve {
        /// Brought in first.
        bring_in: Vec<BringIn>,
        /// Then tried in order; each sees what those before it took.
        items: Vec<Item>,
    },
    /// Raise `out[this→target]` by the lesser of `want` and what is free.
    MoveOut {
        /// The article.
        sku: SkuKey,
        /// Where the units go.
        target: ShardId,
        /// Units wanted.
        want: u32,
    },
}

/// One numbered call to one shard. A process has one in flight per shard, numbered upwards from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Who calls.
    pub process: ProcessNumber,
    /// The generation the caller knows.
    pub generation: Gen,
    /// Where.
    pub shard: ShardId,
    /// Never used for another body.
    pub number: u64,
    /// What.
    pub body: CallBody,
}

/// The counters of one SKU in one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkuCounters {
    /// The article.
    pub sku: SkuKey,
    /// Free units.
    pub free: u32,
    /// Cumulative units moved out, per target; targets never moved to are left out.
    pub out: Vec<(ShardId, u64)>,
    /// Cumulative units brought in, per source; sources never brought in from are left out.
    pub brought_in: Vec<(ShardId, u64)>,
}

/// What the store says of one item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemAnswer {
    /// Reserved under its order number (now, or by an earlier copy).
    Reserved,
    /// Another live order of the user stands in this activity.
    Already(Mark),
    /// Fewer units are free in this shard than asked for. Says nothing of the others.
    EmptyHere,
    /// The item's attempt is not the next after the user's released mark (the first, if he has none).
    NotAgain,
    /// The SKU has no stock here: never loaded, or ended and archived.
    NotLoaded,
    /// The user, who holds no order here, has asked for units as often as he may for now. Nothing was looked at.
    TooOften {
        /// When he may again, in milliseconds.
        retry_after_ms: u32,
    },
}

/// The result of a call that was executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// The shard's generation.
    pub generation: Gen,
    /// Events appended to the shard in this generation, this call's included.
    pub seq: u64,
    /// Counters of every SKU the call named, after it.
    pub counters: Vec<SkuCounters>,
    /// One per item, in order; empty for a move.
    pub answers: Vec<ItemAnswer>,
}

/// A store's reply to a [`Call`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Executed, now or by an earlier copy with the same number.
    Done(Done),
    /// A later number of the same process was seen; nothing done.
    Stale,
    /// The caller's generation is not the shard's; nothing done, the number is used up.
    Gen(Gen),
    /// The shard does not serve now; nothing done, the number is used up.
    Recovering,
}

/// A user's order in an activity as the shard holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Its number.
    pub order: OrderNumber,
    /// What was bought.
    pub sku: SkuKey,
    /// Units.
    pub quantity: u16,
    /// 1 for the first.
    pub attempt: u8,
    /// Where it stands.
    pub state: OrderState,
    /// Unix milliseconds; 0 while unknown.
    pub pay_by_ms: u64,
}

/// A change that happened in a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Marks that came to be or moved forward (a batch).
    Marked(Vec<(UserId, Mark)>),
    /// Units went to or came from another shard; the counters tell.
    Moved,
    /// Stock was loaded or taken; the counters tell.
    Loaded,
}

/// One event of a shard's feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The generation it was appended under.
    pub generation: Gen,
    /// Rises by one per event of the shard.
    pub seq: u64,
    /// What happened.
    pub change: Change,
    /// Counters of every SKU touched, after it.
    pub counters: Vec<SkuCounters>,
}

/// Everything a shard holds, at one (gen, seq).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The shard.
    pub shard: ShardId,
    /// Its generation.
    pub generation: Gen,
    /// Events up to this one are in it.
    pub seq: u64,
    /// Every SKU loaded in the shard.
    pub counters: Vec<SkuCounters>,
    /// Every mark.
    pub marks: Vec<(UserId, Mark)>,
}

/// What a recovery's leader asks of every live gateway: its marks of the shards that are closed (rule 11.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveryCall {
    /// The recovery's own; nothing told under an older one counts from now on.
    pub generation: Gen,
    /// By shard: whether it is to be rebuilt.
    pub closed: [bool; SHARDS],
    /// By shard: the generation of its last rebuild, `Gen(0)` before the first; written down before the rebuild is
    /// done, so that none is missed. Marks that are older may have been written off there: not handed in.
    pub rebuilt: [Gen; SHARDS],
}

/// The mark that a reserved item makes, before its settlement is known.
pub(super) const fn mark_of(item: &Item) -> Mark {
    Mark {
        order: item.order,
        sku: item.sku,
        quantity: item.quantity,
        attempt: item.attempt,
        state: OrderState::Reserved,
        pay_by_ms: 0,
    }
}

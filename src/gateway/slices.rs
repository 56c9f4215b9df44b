//! Sharing the limits with the other gateways of the store: the task that lends and borrows.
//!
//! One task per gateway, where the store is shared. Some times a second it tells the store that this gateway lives, hears
//! how many do, and exchanges tokens (see `admission::limits::slices`); no request ever waits for it. While the store is
//! away each gateway keeps to its share of what was counted last: that is how requests are judged anyway, so nothing is
//! switched over, and nothing bursts when it is back. A gateway that drains says so, and its share is the others'.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::AbortHandle;

use super::Core;
use super::clock::Now;
use super::on_sale::OnSale;
use super::trouble::Trouble;
use crate::admission::limits::{
    Exchange, ExchangeReply, Offers, Rate, RateKey, Share, SharedRates, Slice, Traded,
};
use crate::stock::calls::ProcessNumber;
use crate::store::StoreError;
use crate::store::slices::{RateExchange, SliceCall, SliceReply, SliceStore};
use crate::store::watched;

/// For one exchange; then it has failed, whatever becomes of it.
const PATIENCE: Duration = Duration::from_secs(1);
/// Without an answer for so long there is nothing to borrow.
const SILENT_MS: u64 = 1_000;

/// How the limits are shared now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// How many gateways share them, this one among them.
    pub gateways: u32,
    /// What one of them leaves of its share can be borrowed: the store answers.
    pub can_borrow: bool,
    /// Tokens moved so far.
    pub traded: Traded,
}

/// The same, as the task leaves it.
#[derive(Debug)]
pub(super) struct SharingState {
    gateways: AtomicU32,
    lent: AtomicU64,
    borrowed: AtomicU64,
    /// Monotonic milliseconds of the last answer; 0 = there was none.
    answered_ms: AtomicU64,
}

impl Default for SharingState {
    fn default() -> Self {
        let zero = AtomicU64::default;
        Self { gateways: AtomicU32::new(1), lent: zero(), borrowed: zero(), answered_ms: zero() }
    }
}

impl SharingState {
    pub(super) fn read(&self, now: Now) -> Sharing {
        let [lent, borrowed, answered_ms] =
            [&self.lent, &self.borrowed, &self.answered_ms].map(|counter| counter.load(Ordering::Relaxed));
        Sharing {
            gateways: self.gateways.load(Ordering::Relaxed),
            can_borrow: answered_ms > 0 && now.mono_ms() < answered_ms.saturating_add(SILENT_MS),
            traded: Traded { lent, borrowed },
        }
    }
}

/// Counts the gateways for the first time, before the port opens: this one never gives out more than its share. Then a task
/// goes on, unless nobody else can use the store.
pub(super) async fn start<S: SliceStore>(
    core: &Arc<Core>,
    store: &Arc<S>,
    process: ProcessNumber,
) -> Result<Option<AbortHandle>, StoreError> {
    let mut task = SliceTask {
        core: Arc::clone(core),
        store: Arc::clone(store),
        process,
        exchange: Exchange::new(),
        trouble: Trouble::new("nothing can be borrowed, each gateway keeps to its share of the limits"),
    };
    let is_shared = task.exchange_once().await?;
    Ok(is_shared.then(|| tokio::spawn(task.run()).abort_handle()))
}

#[derive(Debug)]
struct SliceTask<S> {
    core: Arc<Core>,
    store: Arc<S>,
    process: ProcessNumber,
    exchange: Exchange,
    trouble: Trouble,
}

impl<S: SliceStore> SliceTask<S> {
    /// Runs until the gateway drains, or stops it.
    async fn run(mut self) {
        let mut draining = self.core.draining.subscribe();
        loop {
            let due = jittered(self.exchange.due_in_ms());
            if tokio::time::timeout(due, draining.wait_for(|draining| *draining)).await.is_ok() {
                break;
            }
            match watched::answered("sharing the limits", self.exchange_once()).await {
                Ok(_) => self.trouble.over(),
                Err(error) => {
                    self.exchange.failed();
                    self.trouble.happened(&error);
                }
            }
        }
        // Whoever cannot say so is not heard of any more, which takes a little longer.
        if let Err(error) = self.store.leave_slices(self.process).await {
            tracing::debug!(%error, "the other gateways were not told that this one leaves");
        }
    }

    /// False where nobody shares this store.
    async fn exchange_once(&mut self) -> Result<bool, StoreError> {
        let asked = self.exchange.next(self.core.clock.mono_ns(), &Here::of(&self.core));
        let call = call(self.process, &asked);
        let answer = tokio::time::timeout(PATIENCE, self.store.exchange_slices(&call)).await;
        let late = |_| StoreError::Unavailable(format!("no answer in {} ms", PATIENCE.as_millis()));
        let Some(reply) = answer.map_err(late)?? else { return Ok(false) };
        let now = self.core.clock.now();
        self.exchange.answered(now.mono_ns, &asked, read(reply), &Here::of(&self.core));
        self.publish(now);
        Ok(true)
    }

    fn publish(&self, now: Now) {
        let (state, traded) = (&self.core.sharing, self.exchange.traded());
        state.lent.store(traded.lent, Ordering::Relaxed);
        state.borrowed.store(traded.borrowed, Ordering::Relaxed);
        state.answered_ms.store(now.mono_ms().max(1), Ordering::Relaxed);
        let gateways = self.exchange.gateways();
        let before = state.gateways.swap(gateways, Ordering::Relaxed);
        if gateways != before {
            self.core.funnel.share(now, Share { gateways });
            tracing::info!(gateways, before, "the limits are shared with the gateways that live");
        }
    }
}

/// The rates of this gateway.
struct Here<'a> {
    core: &'a Core,
    on_sale: Arc<OnSale>,
}

impl<'a> Here<'a> {
    fn of(core: &'a Core) -> Self {
        Self { core, on_sale: core.funnel.on_sale.load_full() }
    }
}

impl SharedRates for Here<'_> {
    fn visit(&self, visit: &mut dyn FnMut(RateKey, &Slice)) {
        self.core.funnel.limits.slices().visit(visit);
        for sale in self.on_sale.sales() {
            visit(RateKey::Activity(sale.id), sale.limit.slice());
        }
    }

    fn rate(&self, key: RateKey) -> Rate {
        let rates = self.on_sale.rates();
        match key {
            RateKey::Global => rates.global(),
            RateKey::Activity(activity) => rates.activity(activity),
            RateKey::Ip(address) => rates.ip(address),
        }
    }

    fn lend(&self, now_ns: u64, key: RateKey, most: u32) -> u32 {
        let (limits, rates) = (&self.core.funnel.limits, self.on_sale.rates());
        match key {
            RateKey::Global => limits.lend_global(rates, now_ns, most),
            RateKey::Activity(activity) => {
                self.on_sale.sale(activity).map_or(0, |sale| sale.limit.lend(now_ns, most))
            }
            RateKey::Ip(address) => limits.lend_ip(rates, now_ns, address, most),
        }
    }

    fn release(&self, key: RateKey) {
        if let RateKey::Ip(address) = key {
            self.core.funnel.limits.slices().release(address);
        }
    }
}

fn call(gateway: ProcessNumber, asked: &Offers) -> SliceCall {
    let rates = asked.offers.iter().map(|offer| RateExchange {
        name: offer.key.name(),
        give: offer.give,
        want: offer.want,
        pool_max: offer.pool_max,
    });
    SliceCall { gateway, number: asked.number, rates: rates.collect() }
}

/// Names that mean nothing here are left to whom they mean something.
fn read(reply: SliceReply) -> ExchangeReply {
    let wanted = reply.wanted.iter().filter_map(|(name, pool)| Some((RateKey::parse(name)?, *pool)));
    ExchangeReply { gateways: reply.gateways, wanted: wanted.collect(), granted: reply.granted }
}

/// By up to a fifth: of gateways that want the same, none is to be the first every time.
fn jittered(due_ms: u64) -> Duration {
    let fifth = due_ms / 5;
    Duration::from_millis(fastrand::u64(due_ms.saturating_sub(fifth)..=due_ms.saturating_add(fifth)))
}

//! The last rung: into the queue of one's shard, of the store or of the reserve, or nowhere while nothing answers.
//!
//! Part of the funnel: runs on the connection's thread, waits for nothing. What is put in is the stock task's from then on.

use std::sync::Arc;

use super::ask::{Ask, Refusal};
use super::clock::Now;
use super::counters::Rung;
use super::door::{Admitted, Ticket};
use super::funnel::{Funnel, UNKNOWN_RETRY_MS};
use super::on_sale::Sale;
use super::reply_parts::{busy_hint_ms, with_jitter};
use super::unpaid::Counted;
use crate::protocol::{Reply, SkuKey, Status};
use crate::stock::Purchase;
use crate::stock::calls::ShardId;
use crate::store::gate::Way;

impl Funnel {
    pub(super) fn queue(
        &self,
        now: Now,
        sale: Option<&Sale>,
        ask: &Ask<'_>,
        counted: Option<Counted>,
    ) -> Result<(), Refusal> {
        let is_taken = sale.is_some_and(|sale| sale.is_taken);
        let way = if is_taken { self.gate.way_of_taken() } else { self.gate.way(ShardId::of(ask.user)) };
        let door = match way {
            Way::Store => Some(&self.door),
            Way::Database => self.reserve.as_ref().map(|reserve| &reserve.door),
            Way::Shut => None,
        };
        let Some(door) = door else {
            // He would wait for nothing, or be in doubt for as long as it lasts.
            let hint_ms = with_jitter(UNKNOWN_RETRY_MS);
            return Err(Refusal { hint_ms, ..Refusal::plain(Rung::Breaker, Status::Busy) });
        };
        let ticket = Ticket {
            peer: Arc::clone(ask.peer),
            request_id: ask.request_id,
            user: ask.user,
            counted,
            names_user: ask.names_user,
        };
        let purchase = Purchase {
            user: ask.user,
            sku: SkuKey { activity: ask.activity, sku: ask.sku },
            quantity: ask.quantity,
            patience_ms: ask.patience_ms,
        };
        ask.peer.begin();
        door.put(Admitted { ticket, purchase, arrived_ms: now.mono_ms() }).map_err(|_| {
            ask.peer.abandon();
            Refusal { rung: Rung::Queue, status: Status::Busy, hint_ms: busy_hint_ms(), reply: Reply::Empty }
        })
    }
}

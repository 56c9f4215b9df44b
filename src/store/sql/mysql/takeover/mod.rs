//! Takeover (rule 20 of the stock protocol): an activity whose Redis and data are gone is sold from this database.
//!
//! All that decides is one transaction ([`take`]), run by the leader of a recovery after the gateways have handed in: it
//! computes what is left, turns the orders into those of the shards in this database, and opens the rest there. From
//! then on no shard of Redis is believed about the activity: recoveries write its tombstone, entries of its feeds are
//! settled no more, and what gateways offer late is sold here or FAILED ([`late`]). [`back`] is the way back. Before it
//! all, [`looks`] asks gateways what they know, and [`known`] tells what would be done; both change nothing.
//!
//! Each is one transaction, so that whoever dies between two has begun nothing, or is done.

pub(super) mod back;
pub(super) mod known;
pub(super) mod late;
pub(super) mod looks;
mod orders;
mod records;
pub(super) mod take;

use sqlx::MySqlConnection;

use super::catalog::ActivityState;
use super::failure::Failure;
use crate::protocol::{ActivityId, OrderNumber, SkuId, UserId};
use crate::stock::calls::Gen;

/// What a takeover came to, or would, for one SKU. Units, but for `failed_orders`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenSku {
    /// The article.
    pub sku: SkuId,
    /// Ever loaded into Redis, less what was taken out.
    pub total: u64,
    /// Of settled orders that wait for their payment.
    pub unpaid: u64,
    /// Of settled orders that are paid.
    pub paid: u64,
    /// Of settled orders that are over; free again.
    pub closed: u64,
    /// Of reservations that gateways know and nobody has settled.
    pub handed_in: u64,
    /// Reservations for which no unit is left, or whose user has another order.
    pub failed_orders: u64,
    /// Held back from Redis, and not sold.
    pub reserve_free: u64,
    /// The rest: for sale from the database, beside what was held back.
    pub opened: u64,
}

impl TakenSku {
    /// Nothing of it.
    const fn of(sku: SkuId) -> Self {
        let (total, unpaid, paid, closed, handed_in) = (0, 0, 0, 0, 0);
        let (failed_orders, reserve_free, opened) = (0, 0, 0);
        Self { sku, total, unpaid, paid, closed, handed_in, failed_orders, reserve_free, opened }
    }
}

/// Why an activity is not taken over, or not given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TakeoverRefused {
    /// No such activity.
    #[error("there is no activity {0}: rushgate activity list")]
    NoActivity(ActivityId),
    /// Redis holds nothing of it.
    #[error(
        "activity {0} was never preheated: Redis holds nothing of it that could be taken over; what it holds back is \
         sold from the database already"
    )]
    NotPreheated(ActivityId),
    /// Nothing of it is sold any more.
    #[error("activity {0} has ended: nothing of it is sold any more")]
    Ended(ActivityId),
    /// It is sold by Redis.
    #[error("activity {0} is not taken over: there is nothing to give back")]
    NotTaken(ActivityId),
}

/// What came of taking an activity over, or of giving it back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Takeover {
    /// Done now.
    Done {
        /// By SKU.
        skus: Vec<TakenSku>,
        /// Reservations that were handed in, and ended FAILED.
        failed: Vec<(UserId, OrderNumber)>,
    },
    /// It was done before; this is what it came to.
    WasDone(Vec<TakenSku>),
    /// Nothing was done.
    Refused(TakeoverRefused),
    /// Another recovery has begun since; nothing was done.
    Gen(Gen),
}

/// An activity, locked, and the transaction's moment.
#[derive(Clone, Copy, Debug)]
struct Ground {
    generation: Gen,
    now_ms: u64,
    activity: ActivityId,
    state: ActivityState,
    is_taken: bool,
    pay_within_ms: u64,
}

/// Locks the generation against everybody who writes orders, and the activity's row. `None`: there is no such activity.
async fn lock(connection: &mut MySqlConnection, activity: ActivityId) -> Result<Option<Ground>, Failure> {
    let (generation, now_ms): (u64, u64) =
        sqlx::query_as(concat!("SELECT gen, ", now_ms!(), " FROM installation FOR UPDATE"))
            .fetch_one(&mut *connection)
            .await?;
    let found: Option<(u8, bool, u64)> =
        sqlx::query_as("SELECT state, taken_over, pay_within_ms FROM activities WHERE id = ? FOR UPDATE")
            .bind(activity.0)
            .fetch_optional(connection)
            .await?;
    let generation = Gen(generation);
    let Some((state, is_taken, pay_within_ms)) = found else { return Ok(None) };
    let state = ActivityState::of(state)?;
    Ok(Some(Ground { generation, now_ms, activity, state, is_taken, pay_within_ms }))
}

/// Whether an activity's units are in the shards of this database.
pub(super) async fn is_taken(
    connection: &mut MySqlConnection,
    activity: ActivityId,
) -> Result<bool, Failure> {
    let taken: Option<bool> = sqlx::query_scalar("SELECT taken_over FROM activities WHERE id = ?")
        .bind(activity.0)
        .fetch_optional(connection)
        .await?;
    Ok(taken.unwrap_or(false))
}

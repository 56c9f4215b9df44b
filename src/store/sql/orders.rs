//! Writing a transaction's orders, most of them with three values each.
//!
//! What costs is each bound value, so orders that differ in nothing but shard, user and number share a statement that
//! binds the rest once; in a sale that is nearly all of them. Few of a kind go together in statements that bind
//! everything. Run by the writer task inside its transaction; any error ends that transaction, which is why a
//! conflict need not undo its own statement first (`OR FAIL`: no journal of the pages it changes).

use std::collections::BTreeMap;
use std::sync::LazyLock;

use sqlx::SqliteConnection;

use super::batch::Batch;
use super::statements::{Shapes, Writing, signed, write, write_with};
use crate::protocol::{OrderState, SkuKey};
use crate::stock::calls::{Mark, ShardId};

/// Fewer of a kind than this are not worth statements of their own.
const ALIKE_MIN: usize = 16;

static WRITE_ALIKE: LazyLock<Shapes> = LazyLock::new(|| {
    Shapes::new(
        "WITH o (shard, user, number) AS (VALUES ",
        "(?,?,?)",
        ") INSERT OR FAIL INTO orders (shard, user, number, activity, sku, quantity, attempt, state, pay_by_ms, \
         created_at_ms) SELECT o.shard, o.user, o.number, ?, ?, ?, ?, ?, ?, ? FROM o",
    )
});

static WRITE_ANY: LazyLock<Shapes> = LazyLock::new(|| {
    Shapes::new(
        "INSERT OR FAIL INTO orders (shard, user, number, activity, sku, quantity, attempt, state, pay_by_ms, \
         created_at_ms) VALUES ",
        "(?,?,?,?,?,?,?,?,?,?)",
        "",
    )
});

/// What orders have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Terms {
    sku: SkuKey,
    quantity: u16,
    attempt: u8,
    state: u8,
    pay_by_ms: u64,
}

impl Terms {
    const fn of(mark: &Mark) -> Self {
        let state: OrderState = mark.state;
        Self {
            sku: mark.sku,
            quantity: mark.quantity,
            attempt: mark.attempt,
            state: state as u8,
            pay_by_ms: mark.pay_by_ms,
        }
    }

    fn bind(&self, query: Writing, created_at_ms: i64) -> Writing {
        let query = query.bind(self.sku.activity.0).bind(self.sku.sku.0).bind(self.quantity);
        query.bind(self.attempt).bind(self.state).bind(signed(self.pay_by_ms)).bind(created_at_ms)
    }
}

/// Where an order lies in the table, within its activity, and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    shard: u8,
    user: i64,
    number: i64,
}

impl Place {
    fn bind(&self, query: Writing) -> Writing {
        query.bind(self.shard).bind(self.user).bind(self.number)
    }
}

/// Inserts a batch's orders. In the table's own order, as far as they share a statement: neighbours share pages.
pub(super) async fn insert(connection: &mut SqliteConnection, batch: &Batch) -> Result<(), sqlx::Error> {
    let created_at_ms = signed(batch.now_ms);
    let mut few: Vec<(Terms, Place)> = Vec::new();
    for (terms, mut places) in by_terms(batch) {
        if places.len() < ALIKE_MIN {
            few.extend(places.into_iter().map(|place| (terms, place)));
            continue;
        }
        places.sort_unstable();
        let finish = |query| terms.bind(query, created_at_ms);
        write_with(connection, &WRITE_ALIKE, &places, |query, place| place.bind(query), finish).await?;
    }
    few.sort_unstable_by_key(|(terms, place)| (place.shard, terms.sku.activity, place.user));
    write(connection, &WRITE_ANY, &few, |query, (terms, place)| terms.bind(place.bind(query), created_at_ms))
        .await
}

fn by_terms(batch: &Batch) -> BTreeMap<Terms, Vec<Place>> {
    let mut by_terms: BTreeMap<Terms, Vec<Place>> = BTreeMap::new();
    for (user, mark) in &batch.orders {
        let shard = ShardId::of(*user).number();
        let place = Place { shard, user: signed(user.0), number: signed(mark.order.0) };
        by_terms.entry(Terms::of(mark)).or_default().push(place);
    }
    by_terms
}

//! Writing a transaction's orders, most of them with three values each.
//!
//! What costs is each bound value, so orders that differ in nothing but shard, user and number share a statement that
//! binds the rest once; in a sale that is nearly all of them. Few of a kind go together in statements that bind
//! everything. Orders are written in the order of their numbers: that index then only ever grows at its end, where
//! SQLite neither searches nor splits pages. Run by the writer task inside its transaction; any error ends that
//! transaction, which is why a conflict need not undo its own statement first (`OR FAIL`: no journal of the pages it
//! changes).

use std::collections::BTreeMap;
use std::sync::LazyLock;

use sqlx::SqliteConnection;

use super::batch::Batch;
use super::statements::{Shapes, Writing, signed, write, write_with};
use crate::protocol::{OrderState, SkuKey, UserId};
use crate::stock::calls::{Mark, ShardId};

/// Fewer of a kind than this are not worth statements of their own.
const ALIKE_MIN: usize = 16;

static WRITE_ALIKE: LazyLock<Shapes> = LazyLock::new(|| {
    Shapes::of_many(
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

/// An order's number, and where it lies in the table, within its activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    number: i64,
    shard: u8,
    user: i64,
}

impl Place {
    fn bind(&self, query: Writing) -> Writing {
        query.bind(self.shard).bind(self.user).bind(self.number)
    }
}

/// Inserts a batch's orders.
pub(super) async fn insert(connection: &mut SqliteConnection, batch: &Batch) -> Result<(), sqlx::Error> {
    let created_at_ms = signed(batch.now_ms);
    let mut few: Vec<(Terms, Place)> = Vec::new();
    for (terms, mut places) in by_terms(batch) {
        if places.len() < ALIKE_MIN {
            few.extend(places.into_iter().map(|place| (terms, place)));
            continue;
        }
        // Stable, because each call's are in order already: runs are merged, not sorted.
        places.sort();
        let finish = |query| terms.bind(query, created_at_ms);
        write_with(connection, &WRITE_ALIKE, &places, |query, place| place.bind(query), finish).await?;
    }
    few.sort_unstable_by_key(|(_, place)| *place);
    write(connection, &WRITE_ANY, &few, |query, (terms, place)| terms.bind(place.bind(query), created_at_ms))
        .await
}

fn by_terms(batch: &Batch) -> BTreeMap<Terms, Vec<Place>> {
    let mut by_terms: BTreeMap<Terms, Vec<Place>> = BTreeMap::new();
    let place = |(user, mark): &(UserId, Mark)| Place {
        number: signed(mark.order.0),
        shard: ShardId::of(*user).number(),
        user: signed(user.0),
    };
    for alike in batch.orders.chunk_by(|(_, a), (_, b)| Terms::of(a) == Terms::of(b)) {
        if let Some((_, mark)) = alike.first() {
            by_terms.entry(Terms::of(mark)).or_default().extend(alike.iter().map(place));
        }
    }
    by_terms
}

//! What has to be equal when nothing is under way: orders, stock in SQL, marks and counters in Redis.

use std::collections::BTreeMap;

use rushgate::protocol::{OrderState, UserId};
use rushgate::stock::calls::{Mark, ShardId};

use super::house::{ACTIVITY, SKU, World};

impl World {
    /// Every order row of the activity.
    pub(crate) async fn order_rows(&self) -> Vec<(UserId, Mark)> {
        let mut rows = Vec::new();
        let mut after = UserId(0);
        loop {
            let page = self.sql.orders(ACTIVITY, after, 10_000).await.unwrap();
            let Some((last, _)) = page.last() else { return rows };
            after = *last;
            rows.extend(page);
        }
    }

    /// Every mark in Redis.
    pub(crate) async fn marks(&self) -> BTreeMap<UserId, Mark> {
        let mut marks = BTreeMap::new();
        for shard in ShardId::ALL {
            marks.extend(self.redis.snapshot(shard).await.unwrap().marks);
        }
        marks
    }

    /// Free units of the SKU over all shards.
    pub(crate) async fn free(&self) -> u64 {
        let mut free = 0;
        for shard in ShardId::ALL {
            let counters = self.redis.snapshot(shard).await.unwrap().counters;
            free += counters.iter().filter(|one| one.sku == SKU).map(|one| u64::from(one.free)).sum::<u64>();
        }
        free
    }

    /// `sold` users have one order each that waits for its payment, known to Redis as SQL has it; the stock is right
    /// on both sides; nothing is left in the feeds.
    pub(crate) async fn audit(&self, stock: u64, sold: usize) {
        assert_eq!(self.backlog().await, Some((0, 0)));
        let rows = self.order_rows().await;
        assert_eq!(rows.len(), sold, "orders");
        assert!(rows.iter().all(|(_, mark)| mark.state == OrderState::PendingPayment && mark.pay_by_ms > 0));
        let orders: BTreeMap<_, _> = rows.into_iter().collect();
        assert_eq!(orders.len(), sold, "one order for each user");
        let marks = self.marks().await;
        let differs = orders.iter().find(|(user, mark)| marks.get(user) != Some(mark));
        assert_eq!(differs, None, "Redis has {:?}", differs.and_then(|(user, _)| marks.get(user)));
        assert_eq!(marks.len(), sold, "marks");
        let (_, figures) = self.sql.figures(ACTIVITY).await.unwrap();
        let figures = &figures[&SKU.sku];
        let sold = sold as u64;
        assert_eq!((figures.sold, figures.free), (sold, stock - sold), "stock in SQL");
        assert_eq!(self.free().await, stock - sold, "stock in Redis");
    }
}

//! What the funnel has of the reserve (rule 19 of the stock protocol): a door, a board and buyers of its own.
//!
//! Read by connections, written by the reserve's stock task (`reserve_task`).

use std::sync::Arc;

use super::door::Door;
use crate::protocol::{ActivityId, UserId};
use crate::stock::{Board, Buyers, Standing};

/// See the module.
#[derive(Debug)]
pub(super) struct Reserve {
    pub(super) door: Arc<Door>,
    pub(super) board: Arc<Board>,
    pub(super) buyers: Arc<Buyers>,
}

impl Reserve {
    pub(super) fn new(queue_items_max: usize) -> Self {
        Self { door: Arc::new(Door::new(queue_items_max)), board: Arc::default(), buyers: Arc::default() }
    }

    /// How the user stands whom the store's buyers tell of so: as they say, unless he has an order of the reserve, and
    /// none there that stands in the way of another.
    pub(super) fn standing(
        &self,
        of_store: Option<Standing>,
        activity: ActivityId,
        user: UserId,
    ) -> Option<Standing> {
        let of_reserve = self.buyers.standing(activity, user);
        // Numbers are of one world, but for orders that were taken over: those go on here, and after the way back there.
        // The world that does not sell them any more tells nothing new of them.
        if let (Some(Standing::Order(store)), Some(Standing::Order(reserve))) = (of_store, of_reserve)
            && store.order == reserve.order
        {
            return if store.state.rank() > reserve.state.rank() { of_store } else { of_reserve };
        }
        if of_store.as_ref().is_some_and(stands_in_the_way) {
            return of_store;
        }
        match of_reserve {
            Some(standing) if of_store.is_none() || stands_in_the_way(&standing) => Some(standing),
            Some(_) | None => of_store,
        }
    }
}

const fn stands_in_the_way(standing: &Standing) -> bool {
    match standing {
        Standing::Order(mark) => mark.state.is_live(),
        Standing::Unconfirmed(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{OrderNumber, OrderState, SkuId, SkuKey};
    use crate::stock::calls::{Gen, Mark, ProcessNumber, ShardId, Snapshot};
    use crate::stock::{Settings, Stock};

    const USER: UserId = UserId(7);
    const SALE: ActivityId = ActivityId(1);

    fn order(number: u64, state: OrderState) -> Mark {
        let sku = SkuKey { activity: SALE, sku: SkuId(1) };
        Mark { order: OrderNumber(number), sku, quantity: 1, attempt: 1, state, pay_by_ms: 0 }
    }

    /// A reserve whose shard holds this mark.
    fn holding(mark: Option<Mark>) -> Reserve {
        let reserve = Reserve::new(1);
        let (buyers, board) = (Arc::clone(&reserve.buyers), Arc::clone(&reserve.board));
        let mut stock: Stock<()> =
            Stock::new(Settings::default(), ProcessNumber(1), Gen(1), buyers, board, 1).of_reserve();
        let marks = mark.map(|mark| (USER, mark)).into_iter().collect();
        let snapshot =
            Snapshot { shard: ShardId::of(USER), generation: Gen(1), seq: 1, counters: Vec::new(), marks };
        stock.on_snapshot(1, &snapshot);
        reserve
    }

    #[test]
    fn whoever_holds_an_order_in_either_world_is_told_of_that_one() {
        let (reserved, live, over) = (OrderState::Reserved, OrderState::PendingPayment, OrderState::Closed);
        let standing = |mark| Standing::Order(mark);
        let doubt = Standing::Unconfirmed(OrderNumber(9));
        for (of_store, of_reserve, told) in [
            (None, None, None),
            (None, Some(order(2, live)), Some(standing(order(2, live)))),
            (None, Some(order(2, over)), Some(standing(order(2, over)))),
            (Some(standing(order(1, live))), Some(order(2, live)), Some(standing(order(1, live)))),
            (Some(standing(order(1, over))), Some(order(2, live)), Some(standing(order(2, live)))),
            (Some(standing(order(1, over))), Some(order(2, over)), Some(standing(order(1, over)))),
            (Some(standing(order(1, over))), None, Some(standing(order(1, over)))),
            (Some(doubt), Some(order(2, live)), Some(doubt)),
            // One that was taken over, and may have gone back: as the world tells of it that knows more.
            (Some(standing(order(1, reserved))), Some(order(1, live)), Some(standing(order(1, live)))),
            (Some(standing(order(1, live))), Some(order(1, reserved)), Some(standing(order(1, live)))),
            (Some(standing(order(1, over))), Some(order(1, live)), Some(standing(order(1, over)))),
            (Some(standing(order(1, live))), Some(order(1, over)), Some(standing(order(1, over)))),
        ] {
            assert_eq!(
                holding(of_reserve).standing(of_store, SALE, USER),
                told,
                "{of_store:?} {of_reserve:?}"
            );
        }
    }
}

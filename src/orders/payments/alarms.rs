//! Alarms about single orders that somebody has to look at: each is told when it is met first, and again every ten
//! minutes while it is met, however often that is. Pure: time is an argument, and whether to tell is returned.
//!
//! Memory is bounded: of more orders than it knows one is told now and then.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::protocol::OrderNumber;
use crate::store::failures::{Failures, Say};

/// Orders that are known by number.
const ORDERS_MAX: usize = 256;
/// Between two lines about one order.
const AGAIN_AFTER: Duration = Duration::from_secs(600);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Alarms {
    told: HashMap<OrderNumber, Instant>,
    /// Of orders for which there is no room.
    others: Failures,
}

impl Alarms {
    /// Whether this order's trouble, met now, is to be told.
    pub(super) fn is_due(&mut self, order: OrderNumber, now: Instant) -> bool {
        let is_recent = |at: &Instant| now.saturating_duration_since(*at) < AGAIN_AFTER;
        if self.told.get(&order).is_some_and(is_recent) {
            return false;
        }
        if self.told.len() >= ORDERS_MAX {
            self.told.retain(|_, at| is_recent(at));
        }
        if self.told.len() >= ORDERS_MAX {
            return self.others.failed(now) != Say::Nothing;
        }
        self.told.insert(order, now);
        true
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::arithmetic_side_effects, reason = "tests")]

    use super::*;

    fn told(alarms: &mut Alarms, orders: std::ops::Range<u64>, now: Instant) -> usize {
        orders.filter(|order| alarms.is_due(OrderNumber(*order), now)).count()
    }

    #[test]
    fn an_order_is_told_once_in_ten_minutes_however_often_it_is_met() {
        let (mut alarms, start) = (Alarms::default(), Instant::now());
        // Every two seconds for an hour.
        let lines: usize =
            (0..1800).map(|nth| told(&mut alarms, 0..3, start + Duration::from_secs(2 * nth))).sum();
        assert_eq!(lines, 3 * 6);
    }

    #[test]
    fn ten_thousand_orders_are_told_of_by_a_few_hundred_lines() {
        let (mut alarms, start) = (Alarms::default(), Instant::now());
        let lines: usize =
            (0..60).map(|nth| told(&mut alarms, 0..10_000, start + Duration::from_secs(nth))).sum();
        assert_eq!((lines, alarms.told.len()), (ORDERS_MAX + 12, ORDERS_MAX));
        // Those are forgotten in time, and others take their place.
        let later = start + AGAIN_AFTER + Duration::from_secs(60);
        assert!(alarms.is_due(OrderNumber(20_000), later));
        assert_eq!(alarms.told.len(), 1);
    }
}

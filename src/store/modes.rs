//! What purchases are sold from: the shards in Redis, or the reserve that was never loaded into Redis (rule 19 of the stock
//! protocol). Pure.
//!
//! The mode is a switch and a rule: what an operator has set, and for how long a circuit breaker has to be open before a
//! gateway changes by itself. The switch is kept in SQL, for it has to be set while Redis is away.

use std::time::Duration;

use super::breaker::BreakerState;
use super::gate::Way;
use super::orders_modes::is_of_orders;

/// The switch's name.
pub const STOCK_MODE: &str = "stock.mode";

/// Whether a switch of this name is kept in SQL, not in Redis.
pub fn is_kept_in_sql(name: &str) -> bool {
    name == STOCK_MODE || is_of_orders(name)
}

/// What the switch is set to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StockMode {
    /// As configured: Redis, and the reserve by itself where that is configured.
    #[default]
    Default,
    /// Redis, whatever is configured.
    Redis,
    /// The reserve.
    Database,
}

impl StockMode {
    /// Reads its value; `None`: it is none of this version's.
    pub fn of(value: &str) -> Option<Self> {
        match value {
            "default" => Some(Self::Default),
            "redis" => Some(Self::Redis),
            "database" => Some(Self::Database),
            _ => None,
        }
    }
}

/// How a shard of Redis stands.
#[derive(Clone, Copy, Debug)]
pub struct Standing {
    /// Its circuit breaker.
    pub breaker: BreakerState,
    /// For how long that has not been closed.
    pub shut_for: Option<Duration>,
}

/// Where purchases of a shard go. `database_after`: by itself, once the breaker has not been closed for so long. Whatever is
/// said here can change back at any time: a unit of the reserve is in no shard of Redis.
pub fn way(mode: StockMode, database_after: Option<Duration>, sql: BreakerState, redis: Standing) -> Way {
    // Without the database nothing is acknowledged, whatever it is sold from.
    if sql != BreakerState::Closed {
        return Way::Shut;
    }
    match mode {
        StockMode::Database => Way::Database,
        _ if redis.breaker == BreakerState::Closed => Way::Store,
        StockMode::Redis => Way::Shut,
        StockMode::Default => match (database_after, redis.shut_for) {
            (Some(after), Some(shut_for)) if shut_for >= after => Way::Database,
            _ => Way::Shut,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use BreakerState::{Closed, HalfOpen, Open};

    const AFTER: Option<Duration> = Some(Duration::from_secs(10));

    fn standing(breaker: BreakerState, shut_s: Option<u64>) -> Standing {
        Standing { breaker, shut_for: shut_s.map(Duration::from_secs) }
    }

    #[test]
    fn rule_19_the_reserve_is_sold_by_the_switch_or_once_redis_has_been_away_for_long_enough() {
        let up = standing(Closed, None);
        let away = |shut_s| standing(Open, Some(shut_s));
        for (mode, after, redis, expected) in [
            (StockMode::Default, AFTER, up, Way::Store),
            (StockMode::Default, AFTER, away(9), Way::Shut),
            (StockMode::Default, AFTER, away(10), Way::Database),
            (StockMode::Default, AFTER, standing(HalfOpen, Some(10)), Way::Database),
            (StockMode::Default, None, away(1_000), Way::Shut),
            (StockMode::Redis, AFTER, away(1_000), Way::Shut),
            (StockMode::Redis, AFTER, up, Way::Store),
            (StockMode::Database, None, up, Way::Database),
            (StockMode::Database, None, away(0), Way::Database),
        ] {
            assert_eq!(way(mode, after, Closed, redis), expected, "{mode:?} {after:?} {redis:?}");
        }
    }

    #[test]
    fn without_the_database_nothing_is_sold_in_any_mode() {
        for mode in ["default", "redis", "database"].map(|value| StockMode::of(value).unwrap_or_default()) {
            for redis in [standing(Closed, None), standing(Open, Some(99))] {
                assert_eq!(way(mode, AFTER, Open, redis), Way::Shut);
                assert_eq!(way(mode, AFTER, HalfOpen, redis), Way::Shut);
            }
        }
    }

    #[test]
    fn values_are_the_switchs_words() {
        let read = ["default", "redis", "database", "", "sql", "Redis"].map(StockMode::of);
        let known = [StockMode::Default, StockMode::Redis, StockMode::Database].map(Some);
        assert_eq!(read, [known[0], known[1], known[2], None, None, None]);
        assert!(is_kept_in_sql(STOCK_MODE) && is_kept_in_sql("orders.mode/7") && !is_kept_in_sql("entry"));
    }
}

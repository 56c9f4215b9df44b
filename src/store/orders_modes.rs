//! Whether reservations are settled as they come, or recorded first and settled later: the switch `orders.mode`, for all
//! activities and for single ones. Pure.
//!
//! It is kept in SQL: it has to be set, and is obeyed, while Redis is away, and who writes orders needs SQL anyway.

use std::collections::BTreeMap;
use std::fmt;

use crate::protocol::ActivityId;

/// The switch's name; that of one activity has its number behind a slash.
pub const ORDERS_MODE: &str = "orders.mode";

/// What writers make of a reservation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OrdersMode {
    /// An order that waits for its payment.
    #[default]
    Settle,
    /// An order row in state RECORDED; the rest later.
    Record,
}

/// Whom a switch of that name is about.
#[derive(Clone, Copy)]
enum Scope {
    All,
    One(ActivityId),
}

/// `None`: it is no such switch.
fn scope(name: &str) -> Option<Scope> {
    match name.strip_prefix(ORDERS_MODE)? {
        "" => Some(Scope::All),
        rest => rest.strip_prefix('/')?.parse().ok().map(|activity| Scope::One(ActivityId(activity))),
    }
}

/// Whether a switch of this name is about the mode of orders.
pub fn is_of_orders(name: &str) -> bool {
    scope(name).is_some()
}

/// The modes as they are set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OrdersModes {
    all: OrdersMode,
    /// Of activities that have their own.
    own: BTreeMap<ActivityId, OrdersMode>,
}

impl OrdersModes {
    /// Everything is settled, or everything recorded.
    pub const fn of_all(all: OrdersMode) -> Self {
        Self { all, own: BTreeMap::new() }
    }

    /// Reads them off the names and values of switches. A value that this version does not know changes nothing: what
    /// stood before under that name stays.
    pub fn read<'a>(switches: impl IntoIterator<Item = (&'a str, &'a str)>, before: &Self) -> Self {
        let mut modes = Self::default();
        for (name, value) in switches {
            let Some(scope) = scope(name) else { continue };
            let mode = match value {
                "settle" => Some(OrdersMode::Settle),
                "record" => Some(OrdersMode::Record),
                "default" => None,
                _ => match scope {
                    Scope::All => Some(before.all),
                    Scope::One(activity) => before.own.get(&activity).copied(),
                },
            };
            match scope {
                Scope::All => modes.all = mode.unwrap_or_default(),
                Scope::One(activity) => modes.own.extend(mode.map(|mode| (activity, mode))),
            }
        }
        modes
    }

    /// Whether this activity's orders are recorded, not settled.
    pub fn records(&self, activity: ActivityId) -> bool {
        *self.own.get(&activity).unwrap_or(&self.all) == OrdersMode::Record
    }

    /// Whether orders of activities are recorded that have no mode of their own.
    pub fn records_all(&self) -> bool {
        self.all == OrdersMode::Record
    }

    /// Activities whose own mode is to record.
    pub fn recording_activities(&self) -> impl Iterator<Item = ActivityId> + '_ {
        self.own.iter().filter(|(_, mode)| **mode == OrdersMode::Record).map(|(activity, _)| *activity)
    }
}

/// For the log: `settle`, `record, 7 settle`.
impl fmt::Display for OrdersModes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |mode: OrdersMode| match mode {
            OrdersMode::Settle => "settle",
            OrdersMode::Record => "record",
        };
        f.write_str(word(self.all))?;
        for (activity, mode) in self.own.iter().filter(|(_, mode)| **mode != self.all) {
            write!(f, ", activity {activity} {}", word(*mode))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(set: &[(&str, &str)], before: &OrdersModes) -> OrdersModes {
        OrdersModes::read(set.iter().copied(), before)
    }

    #[test]
    fn an_activity_has_its_own_mode_or_that_of_all() {
        let none = OrdersModes::default();
        assert!(!none.records(ActivityId(7)) && !none.records_all());
        let all = read(&[("orders.mode", "record"), ("orders.mode/8", "settle"), ("entry", "closed")], &none);
        assert!(all.records_all() && all.records(ActivityId(7)) && !all.records(ActivityId(8)));
        assert_eq!(all.to_string(), "record, activity 8 settle");
        let one = read(&[("orders.mode", "settle"), ("orders.mode/7", "record")], &none);
        assert!(!one.records_all() && one.records(ActivityId(7)) && !one.records(ActivityId(8)));
        assert!(one.recording_activities().eq([ActivityId(7)]));
        let back = read(&[("orders.mode", "record"), ("orders.mode/8", "default")], &all);
        assert!(back.records(ActivityId(8)));
    }

    #[test]
    fn what_cannot_be_read_is_as_it_was() {
        let set = [("orders.mode", "record"), ("orders.mode/7", "settle")];
        let before = read(&set, &OrdersModes::default());
        let slip = read(&[("orders.mode", "recrd"), ("orders.mode/7", "x"), ("orders.mode/8", "y")], &before);
        assert_eq!(slip, before);
        assert_eq!(read(&[], &before), OrdersModes::default());
    }

    #[test]
    fn names_are_the_switchs_own() {
        for (name, is_one) in [
            ("orders.mode", true),
            ("orders.mode/7", true),
            ("orders.mode/x", false),
            ("orders.modes", false),
        ] {
            assert_eq!(is_of_orders(name), is_one, "{name}");
        }
    }
}

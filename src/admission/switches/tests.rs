//! Names and values by example, and the board that comes of them.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use super::{
    Entry, Ignored, LogLevel, OrdersMode, StockMode, Switch, SwitchBoard, SwitchKind, UnpaidCap, UnpaidOf,
};
use crate::protocol::ActivityId;

#[test]
fn a_name_and_a_value_come_back_as_they_were_written() {
    for (name, value, switch) in [
        ("entry", "open", Switch::Entry(None, Entry::Open)),
        ("entry", "closed", Switch::Entry(None, Entry::Closed)),
        ("entry/7", "closed", Switch::Entry(Some(ActivityId(7)), Entry::Closed)),
        ("entry/4294967295", "open", Switch::Entry(Some(ActivityId(u32::MAX)), Entry::Open)),
        ("log_level", "debug", Switch::LogLevel(LogLevel::Debug)),
        ("log_level", "default", Switch::LogLevel(LogLevel::Default)),
        ("drain/12", "on", Switch::Drain(12, true)),
        ("drain/12", "off", Switch::Drain(12, false)),
        ("stock.mode", "database", Switch::StockMode(StockMode::Database)),
        ("limits.open_unpaid_per_user_max", "100", Switch::OpenUnpaid(UnpaidOf::User, UnpaidCap::Set(100))),
        ("limits.open_unpaid_per_user_max", "off", Switch::OpenUnpaid(UnpaidOf::User, UnpaidCap::Set(0))),
        ("limits.open_unpaid_per_device_max", "8", Switch::OpenUnpaid(UnpaidOf::Device, UnpaidCap::Set(8))),
        (
            "limits.open_unpaid_per_device_max",
            "default",
            Switch::OpenUnpaid(UnpaidOf::Device, UnpaidCap::Default),
        ),
        ("orders.mode", "record", Switch::OrdersMode(None, OrdersMode::Record)),
        ("orders.mode/7", "default", Switch::OrdersMode(Some(ActivityId(7)), OrdersMode::Default)),
    ] {
        let read = Switch::parse(name, value).unwrap();
        assert_eq!(read, switch);
        assert_eq!((read.to_string(), read.value()), (name.to_owned(), value.to_owned()));
    }
}

fn read(set: &[(&str, &str)], before: &SwitchBoard) -> (SwitchBoard, Vec<Ignored>) {
    SwitchBoard::read(set.iter().map(|(name, value)| (*name, Some(*value))), before)
}

#[test]
fn every_default_is_a_value_that_parses() {
    for kind in SwitchKind::ALL {
        let scope = if matches!(kind, SwitchKind::Drain | SwitchKind::LimitActivity) { "/1" } else { "" };
        Switch::parse(&format!("{}{scope}", kind.name()), kind.default_value()).unwrap();
    }
}

#[test]
fn what_does_not_parse_is_refused_with_the_reason_and_what_to_write() {
    for (name, value, says) in [
        (
            "entri",
            "open",
            "there is no switch \"entri\"; there are entry or entry/ACTIVITY, log_level, drain/GATEWAY",
        ),
        ("", "open", "there is no switch \"\""),
        ("Entry", "open", "there is no switch \"Entry\""),
        ("entry", "shut", "entry cannot be set to \"shut\"; it is open or closed"),
        ("entry", "", "entry cannot be set to \"\"; it is open or closed"),
        ("entry", "Closed", "it is open or closed"),
        ("entry/7", "closed ", "entry/7 cannot be set to \"closed \""),
        ("entry/", "open", "from 1 to 4294967295; write entry or entry/ACTIVITY"),
        ("entry/0", "open", "from 1 to 4294967295"),
        ("entry/07", "open", "from 1 to 4294967295"),
        ("entry/+7", "open", "from 1 to 4294967295"),
        ("entry/4294967296", "open", "from 1 to 4294967295"),
        ("entry/7/8", "open", "from 1 to 4294967295"),
        ("log_level/7", "info", "it is one for all gateways; write log_level"),
        ("log_level", "verbose", "it is default, error, warn, info, debug or trace"),
        ("orders.mode", "default", "it is settle or record; of one activity also default, as for all"),
        ("orders.mode/x", "record", "write orders.mode or orders.mode/ACTIVITY"),
        ("drain", "on", "it is of one gateway"),
        ("drain/x", "on", "from 1 to 4294967295; write drain/GATEWAY"),
        ("limits.open_unpaid_per_user_max", "101", "a whole number from 1 to 100, off or default"),
        ("limits.open_unpaid_per_device_max", "9", "a whole number from 1 to 8, off or default"),
        ("limits.open_unpaid_per_device_max/7", "1", "it is one for all gateways"),
        ("drain/12", "yes", "drain/12 cannot be set to \"yes\"; it is on or off"),
    ] {
        let error = Switch::parse(name, value).unwrap_err().to_string();
        assert!(error.contains(says), "{name} = {value}: {error}");
    }
}

#[test]
fn what_nobody_has_set_is_at_its_default() {
    let board = SwitchBoard::default();
    assert_eq!((board.entry(), board.log_level(), board.drains(1)), (Entry::Open, LogLevel::Default, false));
    assert!(board.closed_activities().is_empty());
}

#[test]
fn the_board_says_what_was_set() {
    let set = [
        ("drain/12", "on"),
        ("drain/13", "off"),
        ("entry", "closed"),
        ("entry/10", "closed"),
        ("entry/8", "open"),
        ("entry/9", "closed"),
        ("log_level", "warn"),
    ];
    let (board, ignored) = read(&set, &SwitchBoard::default());
    assert_eq!(ignored, []);
    assert_eq!((board.entry(), board.log_level()), (Entry::Closed, LogLevel::Warn));
    assert_eq!(board.closed_activities(), [ActivityId(9), ActivityId(10)]);
    assert_eq!([12, 13, 14].map(|gateway| board.drains(gateway)), [true, false, false]);
    assert!(board.iter().map(|switch| switch.to_string()).eq(set.map(|(name, _)| name.to_owned())));
}

#[test]
fn what_cannot_be_read_is_told_and_what_was_in_force_stays() {
    let (before, _) = read(&[("entry", "closed"), ("entry/7", "closed")], &SwitchBoard::default());
    let set = [("entry", "clsed"), ("entry/7", "open"), ("stock", "database"), ("log_level", "loud")];
    let (board, ignored) = read(&set, &before);
    assert_eq!(board.entry(), Entry::Closed, "a slip of the pen opens nothing");
    assert!(board.closed_activities().is_empty());
    assert_eq!(board.log_level(), LogLevel::Default, "nothing was in force");
    let names = |ignored: Vec<Ignored>| ignored.into_iter().map(|one| one.name).collect::<Vec<_>>();
    assert_eq!(names(ignored), ["entry", "stock", "log_level"]);
    // Once more: what was carried over is carried on.
    let (again, _) = read(&set, &board);
    assert_eq!(again, board);
    // Open stays open, too, and a level stays.
    let (open, _) = read(&[("entry", "open"), ("log_level", "warn")], &SwitchBoard::default());
    let (kept, _) = read(&[("entry", "clsed"), ("log_level", "loud")], &open);
    assert_eq!((kept.entry(), kept.log_level()), (Entry::Open, LogLevel::Warn));
    // Who has only just started knows no predecessor.
    let (fresh, _) = read(&[("entry/7", "opne"), ("log_level", "loud")], &SwitchBoard::default());
    assert_eq!((fresh.entry(), fresh.closed_activities()), (Entry::Open, vec![ActivityId(7)]));
    // Nor what is not even a record.
    let (torn, ignored) = SwitchBoard::read([("entry", None)], &board);
    assert_eq!(
        (torn.entry(), ignored[0].to_string().as_str()),
        (Entry::Closed, "what is kept of \"entry\" cannot be read")
    );
}

//! Holds the page for whoever is on call, in README.md, to the code: every alarm that it names is a metric, every metric is an
//! alarm there or known to be none, and every command on it is one. Tests alone.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic,
    reason = "tests"
)]

use std::collections::BTreeSet;
use std::path::Path;

use clap::Parser;

use super::Cli;
use super::writer_metrics::{put_counts, put_lags, put_payment_lags};
use crate::orders::Counters;

/// Metrics that nobody is called for: how much there is of what happens every day.
const NO_ALARMS: &[&str] = &[
    "rushgate_allow_lists_read_total",
    "rushgate_archive_lookups_total",
    "rushgate_auth_rate_limited_total",
    "rushgate_buys_passed_total",
    "rushgate_buys_total",
    "rushgate_connections",
    "rushgate_connections_accepted_total",
    "rushgate_connections_ended_total",
    "rushgate_devices_counted_total",
    "rushgate_devices_refused_total",
    "rushgate_feed_entries_pending",
    "rushgate_feed_entries_pending_all",
    "rushgate_feed_entries_undelivered",
    "rushgate_feed_oldest_age_ms",
    "rushgate_flagged_total",
    "rushgate_gateways",
    "rushgate_last_closed_ms",
    "rushgate_limiter_ips",
    "rushgate_limiter_users",
    "rushgate_log_lines_left_out_total",
    "rushgate_process",
    "rushgate_promises_offered_total",
    "rushgate_purchases_unfinished",
    "rushgate_pushes_total",
    "rushgate_replies_total",
    "rushgate_reserve_sold_total",
    "rushgate_risk_changes_total",
    "rushgate_risk_devices",
    "rushgate_risk_ips",
    "rushgate_risk_read_all_total",
    "rushgate_risk_users",
    "rushgate_risk_version",
    "rushgate_session_lookups_total",
    "rushgate_slices_borrowed_total",
    "rushgate_slices_lent_total",
    "rushgate_stock_mode_changes_total",
    "rushgate_store_calls_total",
    "rushgate_switch_changes_total",
    "rushgate_switches_version",
    "rushgate_tls_changed_total",
    "rushgate_tls_full_total",
    "rushgate_tls_handshakes",
    "rushgate_tls_resumed_total",
    "rushgate_token_keys",
    "rushgate_token_keys_changed_total",
    "rushgate_writer_archived_total",
    "rushgate_writer_asked_paid_total",
    "rushgate_writer_asked_unknown_total",
    "rushgate_writer_batches_total",
    "rushgate_writer_cancelled_total",
    "rushgate_writer_entries_acknowledged_total",
    "rushgate_writer_entries_claimed_total",
    "rushgate_writer_entries_put_back_total",
    "rushgate_writer_entries_read_total",
    "rushgate_writer_entries_trimmed_total",
    "rushgate_writer_loads_total",
    "rushgate_writer_marks_told_total",
    "rushgate_writer_notices_paid_total",
    "rushgate_writer_notices_parked_total",
    "rushgate_writer_notices_repeated_total",
    "rushgate_writer_orders_mode_changes_total",
    "rushgate_writer_preheats_total",
    "rushgate_writer_rate_limited_us_total",
    "rushgate_writer_recording_activities",
    "rushgate_writer_records_orders",
    "rushgate_writer_releases_total",
    "rushgate_writer_rows_backfilled_total",
    "rushgate_writer_rows_known_total",
    "rushgate_writer_rows_recorded_total",
    "rushgate_writer_rows_settled_total",
    "rushgate_writer_stock_looks_still_total",
    "rushgate_writer_superseded_total",
    "rushgate_writer_timed_out_total",
    "rushgate_writer_unparked_total",
];

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// The page, from its headline to the next one.
fn page() -> String {
    let readme = read("README.md");
    let after = readme.split_once("\n## On call\n").unwrap().1;
    after.split_once("\n## ").unwrap().0.to_owned()
}

/// The first cell of each row of the table of alarms.
fn alarms(page: &str) -> Vec<Vec<String>> {
    let rows = page.lines().skip_while(|line| !line.starts_with("| alarm |")).skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    rows.map(|row| row.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect()).collect()
}

/// What stands in code quotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn metrics_of(text: &str) -> impl Iterator<Item = String> {
    let name = |word: &str| word.split('{').next().unwrap_or_default().to_owned();
    quoted(text).filter(|word| word.starts_with("rushgate_")).map(name)
}

/// Names that this folder writes, and those that are put together.
fn metrics() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cli")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|kind| kind != "rs") || path.ends_with("on_call.rs") {
            continue;
        }
        let text = std::fs::read_to_string(path).unwrap();
        let words = text.split('"').filter(|word| word.starts_with("rushgate_"));
        let is_name = |word: &&str| word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        names.extend(words.filter(is_name).map(str::to_owned));
    }
    let (mut text, counters) = (String::new(), Counters::default());
    put_counts(&mut text, &counters);
    put_lags(&mut text, &counters);
    put_payment_lags(&mut text, &counters);
    let typed = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    names.extend(typed.filter_map(|line| line.split(' ').next()).map(str::to_owned));
    names
}

#[test]
fn every_metric_is_an_alarm_on_the_page_or_known_to_be_none() {
    let (page, all) = (page(), metrics());
    let alarms: BTreeSet<String> = alarms(&page).iter().flat_map(|row| metrics_of(&row[0])).collect();
    let quiet: BTreeSet<String> = NO_ALARMS.iter().map(ToString::to_string).collect();
    let both: Vec<_> = alarms.intersection(&quiet).collect();
    assert!(both.is_empty(), "alarms, and none: {both:?}");
    let told: BTreeSet<String> = alarms.union(&quiet).cloned().collect();
    let missing: Vec<_> = all.difference(&told).collect();
    assert!(missing.is_empty(), "neither on the page nor known to be no alarm: {missing:?}");
    let gone: Vec<_> = told.difference(&all).collect();
    assert!(gone.is_empty(), "no such metrics: {gone:?}");
    let unknown: Vec<_> = metrics_of(&page).filter(|name| !all.contains(name)).collect();
    assert!(unknown.is_empty(), "no such metrics: {unknown:?}");
}

#[test]
fn every_alarm_tells_what_it_means_where_to_look_what_to_type_and_when_it_is_over() {
    let rows = alarms(&page());
    assert!(rows.len() > 30, "{}", rows.len());
    for row in rows {
        assert!(row.len() == 5 && row.iter().all(|cell| cell.len() > 1), "{row:?}");
    }
}

/// As a shell takes it apart, with double quotes.
fn words(command: &str) -> Vec<String> {
    let (mut words, mut word, mut is_quoted) = (Vec::new(), String::new(), false);
    for letter in command.chars() {
        match letter {
            '"' => is_quoted = !is_quoted,
            '#' if !is_quoted && word.is_empty() => break,
            ' ' if !is_quoted => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            letter => word.push(letter),
        }
    }
    assert!(!is_quoted, "{command}");
    words.extend(Some(word).filter(|word| !word.is_empty()));
    words
}

#[test]
fn every_command_on_the_page_is_one() {
    let page = page();
    let mut commands: Vec<&str> = page.lines().filter(|line| line.starts_with("rushgate ")).collect();
    assert!(commands.len() >= 3, "{commands:?}");
    commands.extend(quoted(&page).filter(|text| text.starts_with("rushgate ")));
    assert!(commands.len() > 30, "{commands:?}");
    for command in commands {
        if let Err(error) = Cli::try_parse_from(words(command)) {
            panic!("{command}: {error}");
        }
    }
}

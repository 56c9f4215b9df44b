//! What an operator may ask for: every limit in one place, every problem told. Pure.

use std::collections::BTreeSet;
use std::time::{Duration, UNIX_EPOCH};

use crate::admission::eligibility::Rule;
use crate::protocol::{ActivityId, SkuId};
use crate::store::catalog::{Activity, BUY_AGAIN_MAX, Eligibility, SKUS_PER_ACTIVITY_MAX, STOCK_MAX, Sku};

/// Characters of a name at most.
pub const NAME_CHARS_MAX: usize = 100;
/// The greatest price, in minor units.
pub const PRICE_MAX: u64 = 1_000_000_000_000;

/// The end of the year 9999: times beyond it are typing errors.
const TIME_MAX_MS: u64 = 253_402_300_799_999;
const PAY_WITHIN_MS: std::ops::RangeInclusive<u64> = 1_000..=30 * 24 * 3_600_000;

/// An activity to be created, as an operator gave it: numbers are wide so that any typing error reaches the
/// validation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewActivity {
    /// Its number, 1 to 2³² − 1.
    pub id: u64,
    /// For operators.
    pub name: String,
    /// Whether its entry is open from the start.
    pub entry_open: bool,
    /// Unix milliseconds.
    pub opens_at_ms: u64,
    /// Unix milliseconds, after `opens_at_ms`.
    pub closes_at_ms: u64,
    /// Greatest quantity of one order.
    pub per_user_limit: u64,
    /// How often a user may buy again after his order was closed; 0 = never.
    pub buy_again_max: u64,
    /// How long an order waits for its payment.
    pub pay_within_ms: u64,
    /// Whom it is for.
    pub eligibility: Eligibility,
    /// 1 to [`SKUS_PER_ACTIVITY_MAX`].
    pub skus: Vec<NewSku>,
}

impl NewActivity {
    /// The usual time for a payment: 15 minutes.
    pub const PAY_WITHIN_MS: u64 = 15 * 60_000;
}

/// An article to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSku {
    /// Its number, 1 to 65535.
    pub id: u64,
    /// For operators.
    pub name: String,
    /// In minor units of the shop's currency.
    pub price_minor: u64,
    /// Units to load.
    pub stock: u64,
}

impl NewActivity {
    /// The activity to write, its `stock_total` being what is to be loaded; or every problem.
    pub(super) fn validate(&self) -> Result<Activity, Vec<String>> {
        let mut problems = Vec::new();
        let id = u32::try_from(self.id).unwrap_or(0);
        if id == 0 {
            problems.push(format!("activity id {} is not between 1 and {}", self.id, u32::MAX));
        }
        check_name("the activity's name", &self.name, &mut problems);
        self.check_times(&mut problems);
        let skus = self.check_skus(&mut problems);
        let per_user_limit = self.check_limit(&mut problems);
        let buy_again_max = buy_again(self.buy_again_max).unwrap_or_else(|problem| {
            problems.push(problem);
            0
        });
        let rule = self.eligibility.rule.trim().to_owned();
        problems.extend(rule_problem(&rule));
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(Activity {
            id: ActivityId(id),
            name: self.name.trim().to_owned(),
            entry_open: self.entry_open,
            opens_at_ms: self.opens_at_ms,
            closes_at_ms: self.closes_at_ms,
            per_user_limit,
            buy_again_max,
            eligibility: Eligibility { rule, allow_list: self.eligibility.allow_list },
            skus,
        })
    }

    fn check_times(&self, problems: &mut Vec<String>) {
        if self.opens_at_ms >= self.closes_at_ms {
            problems.push(format!(
                "the window opens at {} and closes at {}; it has to close after it opens",
                time_text(self.opens_at_ms),
                time_text(self.closes_at_ms)
            ));
        }
        for (what, time) in [("opens", self.opens_at_ms), ("closes", self.closes_at_ms)] {
            if time > TIME_MAX_MS {
                problems
                    .push(format!("the window {what} at {}, which is after the year 9999", time_text(time)));
            }
        }
        if !PAY_WITHIN_MS.contains(&self.pay_within_ms) {
            problems.push(format!(
                "a payment time of {} ms is not between {} and {} ms",
                self.pay_within_ms,
                PAY_WITHIN_MS.start(),
                PAY_WITHIN_MS.end()
            ));
        }
    }

    fn check_limit(&self, problems: &mut Vec<String>) -> u16 {
        let greatest = self.skus.iter().map(|sku| sku.stock).max().unwrap_or(0).min(u64::from(u16::MAX));
        let limit = u16::try_from(self.per_user_limit).unwrap_or(0);
        if limit == 0 || (greatest > 0 && u64::from(limit) > greatest) {
            problems.push(format!(
                "a per-user limit of {} is not between 1 and {} (the greatest stock, at most {})",
                self.per_user_limit,
                greatest.max(1),
                u16::MAX
            ));
        }
        limit
    }

    fn check_skus(&self, problems: &mut Vec<String>) -> Vec<Sku> {
        if self.skus.is_empty() || self.skus.len() > SKUS_PER_ACTIVITY_MAX {
            problems.push(format!(
                "an activity has 1 to {SKUS_PER_ACTIVITY_MAX} SKUs, this one {}",
                self.skus.len()
            ));
        }
        let mut seen = BTreeSet::new();
        let mut twice = BTreeSet::new();
        let mut skus: Vec<_> = self
            .skus
            .iter()
            .map(|sku| {
                if !seen.insert(sku.id) {
                    twice.insert(sku.id);
                }
                sku.check(problems)
            })
            .collect();
        problems.extend(twice.iter().map(|id| format!("SKU {id} is given more than once")));
        skus.sort_unstable_by_key(|sku| sku.id);
        skus
    }
}

impl NewSku {
    fn check(&self, problems: &mut Vec<String>) -> Sku {
        let id = u16::try_from(self.id).unwrap_or(0);
        if id == 0 {
            problems.push(format!("SKU id {} is not between 1 and {}", self.id, u16::MAX));
        }
        check_name(&format!("the name of SKU {}", self.id), &self.name, problems);
        if self.price_minor > PRICE_MAX {
            problems.push(format!(
                "SKU {} costs {} minor units; the greatest price is {PRICE_MAX}",
                self.id, self.price_minor
            ));
        }
        let stock = units(self.stock).unwrap_or_else(|problem| {
            problems.push(format!("SKU {}: {problem}", self.id));
            0
        });
        Sku {
            id: SkuId(id),
            name: self.name.trim().to_owned(),
            price_minor: self.price_minor,
            stock_total: stock,
        }
    }
}

/// A time for people and for whoever gave it in milliseconds; what RFC 3339 cannot write is only in these.
fn time_text(unix_ms: u64) -> String {
    let time = UNIX_EPOCH.checked_add(Duration::from_millis(unix_ms)).filter(|_| unix_ms <= TIME_MAX_MS);
    match time {
        Some(time) => format!("{} ({unix_ms} ms)", humantime::format_rfc3339_millis(time)),
        None => format!("{unix_ms} ms"),
    }
}

/// A number of units to add or remove.
pub(super) fn units(units: u64) -> Result<u32, String> {
    u32::try_from(units)
        .ok()
        .filter(|units| (1..=STOCK_MAX).contains(units))
        .ok_or_else(|| format!("{units} units is not between 1 and {STOCK_MAX}"))
}

/// How often a user may buy again.
pub(super) fn buy_again(times: u64) -> Result<u8, String> {
    u8::try_from(times)
        .ok()
        .filter(|times| *times <= BUY_AGAIN_MAX)
        .ok_or_else(|| format!("buying again {times} times is not between 0 and {BUY_AGAIN_MAX}"))
}

/// What is wrong with a rule; an empty one is none, and fine.
pub(super) fn rule_problem(rule: &str) -> Option<String> {
    let error = if rule.is_empty() { None } else { Rule::parse(rule).err() };
    error.map(|error| format!("the eligibility rule {rule:?}, {error}"))
}

fn check_name(what: &str, name: &str, problems: &mut Vec<String>) {
    let chars = name.trim().chars().count();
    if chars == 0 || chars > NAME_CHARS_MAX {
        problems.push(format!("{what} has {chars} characters, not 1 to {NAME_CHARS_MAX}"));
    }
    if name.chars().any(char::is_control) {
        problems.push(format!("{what} holds a control character"));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use super::*;

    fn good() -> NewActivity {
        NewActivity {
            id: 7,
            name: "Phone of the year".to_owned(),
            entry_open: true,
            opens_at_ms: 1_000,
            closes_at_ms: 2_000,
            per_user_limit: 2,
            buy_again_max: 3,
            pay_within_ms: NewActivity::PAY_WITHIN_MS,
            eligibility: Eligibility { rule: " level >= 2 ".to_owned(), allow_list: true },
            skus: vec![
                NewSku { id: 9, name: "black".to_owned(), price_minor: 19_900, stock: 100 },
                NewSku { id: 2, name: "白".to_owned(), price_minor: 0, stock: 1 },
            ],
        }
    }

    #[test]
    fn a_good_activity_is_taken_with_its_skus_in_order() {
        let activity = good().validate().unwrap();
        assert_eq!(activity.skus.iter().map(|sku| sku.id.0).collect::<Vec<_>>(), [2, 9]);
        assert_eq!(activity.skus[1].stock_total, 100);
        assert_eq!((activity.per_user_limit, activity.buy_again_max), (2, 3));
        assert_eq!(activity.eligibility, Eligibility { rule: "level >= 2".to_owned(), allow_list: true });
    }

    #[test]
    fn all_problems_are_told_at_once() {
        let mut bad = good();
        bad.id = 1 << 32;
        bad.name = "x".repeat(101);
        bad.closes_at_ms = 1_000;
        bad.per_user_limit = 101;
        bad.buy_again_max = 255;
        bad.pay_within_ms = 0;
        bad.eligibility.rule = "level => 2".to_owned();
        bad.skus[1] =
            NewSku { id: 9, name: " ".to_owned(), price_minor: PRICE_MAX + 1, stock: 1_000_000_001 };
        bad.skus.push(NewSku { id: 70_000, name: "a\tb".to_owned(), price_minor: 1, stock: 0 });
        let problems = bad.validate().unwrap_err();
        for part in [
            "activity id 4294967296",
            "activity's name has 101",
            "opens at 1970-01-01T00:00:01.000Z (1000 ms) and closes at 1970-01-01T00:00:01.000Z (1000 ms)",
            "payment time of 0",
            "buying again 255 times is not between 0 and 254",
            "the eligibility rule \"level => 2\", at character 7: expected",
            "name of SKU 9 has 0",
            "SKU 9 costs",
            "SKU 9: 1000000001",
            "SKU id 70000",
            "SKU 70000 holds a control",
            "SKU 70000: 0 units",
            "SKU 9 is given more than once",
        ] {
            assert!(problems.iter().any(|problem| problem.contains(part)), "{part} not in {problems:#?}");
        }
    }

    #[test]
    fn a_time_after_the_year_9999_is_told_in_milliseconds() {
        let mut activity = good();
        activity.closes_at_ms = TIME_MAX_MS;
        assert!(activity.validate().is_ok());
        for time in [TIME_MAX_MS + 1, u64::MAX] {
            (activity.opens_at_ms, activity.closes_at_ms) = (time, TIME_MAX_MS);
            let problems = activity.validate().unwrap_err();
            assert_eq!(problems.len(), 2, "{problems:?}");
            assert!(
                problems[0].contains(&format!("opens at {time} ms and closes at 9999-12-31T23:59:59.999Z")),
                "{problems:?}"
            );
            assert!(problems[1].contains(&format!("opens at {time} ms, which")), "{problems:?}");
        }
    }

    #[test]
    fn the_limit_is_bounded_by_the_greatest_stock() {
        let mut activity = good();
        activity.per_user_limit = 100;
        assert!(activity.validate().is_ok());
        activity.per_user_limit = 101;
        assert_eq!(activity.validate().unwrap_err().len(), 1);
        activity.per_user_limit = 0;
        assert_eq!(activity.validate().unwrap_err().len(), 1);
    }

    #[test]
    fn the_number_of_skus_is_bounded() {
        let mut activity = good();
        activity.skus =
            (1..=1_001).map(|id| NewSku { id, name: id.to_string(), price_minor: 1, stock: 5 }).collect();
        assert_eq!(activity.validate().unwrap_err().len(), 1);
        activity.skus.pop();
        assert!(activity.validate().is_ok());
        activity.skus.clear();
        assert_eq!(activity.validate().unwrap_err().len(), 1);
    }
}

//! Eligibility: whom an activity is for, by rules on claims and by lists of users.
//!
//! Pure: rules are compiled and lists are made where nobody waits; judging is a walk over a small tree and a search in a
//! sorted list, without a lock and without allocating. Knows neither where rules and lists are kept nor what is answered.

mod allow_list;
mod parse;
mod rule;
#[cfg(test)]
mod tests;

pub use self::allow_list::AllowList;
pub use self::rule::{BoundRule, RULE_BYTES_MAX, Rule, RuleError};

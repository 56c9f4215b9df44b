//! Whom an activity is for, as the funnel reads it: the compiled rule, and the list that a task keeps up to date.
//!
//! Made when the catalogue is read, on the task that follows it; judged on the connection's thread, without a lock and
//! without allocating. A rule that cannot be used lets nobody in, and that is logged: a sale for members must not open
//! to everybody because of a slip of the pen.

use std::sync::Arc;

use super::allow_lists::{AllowLists, ListInForce};
use crate::admission::eligibility::{BoundRule, Rule};
use crate::admission::identity::{ClaimNames, Claims};
use crate::protocol::{ActivityId, UserId};
use crate::store::catalog::Eligibility;

/// What is known of a user's claims.
#[derive(Clone, Copy, Debug)]
pub(super) enum Known<'a> {
    /// What his token said.
    Token(&'a Claims),
    /// What a back end asserts, if anything.
    Asserted(Option<&'a str>),
}

/// Whether a user may buy here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Eligible,
    NotEligible,
    /// The list has not been read yet.
    Unknown,
}

#[derive(Debug)]
enum Condition {
    None,
    Rule(BoundRule),
    /// Nobody fits.
    Unusable,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Terms {
    condition: Condition,
    list: Option<Arc<ListInForce>>,
}

impl Terms {
    /// As the catalogue says, for claims that are kept so.
    pub(super) fn new(
        activity: ActivityId,
        eligibility: &Eligibility,
        kept: &ClaimNames,
        lists: &AllowLists,
    ) -> Self {
        let condition = condition(&eligibility.rule, kept).unwrap_or_else(|problem| {
            let rule = eligibility.rule.as_str();
            tracing::warn!(%activity, rule, "nobody is let into this activity: {problem}");
            Condition::Unusable
        });
        Self { condition, list: eligibility.allow_list.then(|| lists.of(activity)) }
    }

    /// Both have to agree, where there are both.
    pub(super) fn judge(&self, user: UserId, known: Known<'_>) -> Verdict {
        let fits = match (&self.condition, known) {
            (Condition::None, _) => true,
            (Condition::Rule(rule), Known::Token(claims)) => rule.fits(claims),
            (Condition::Rule(rule), Known::Asserted(text)) => rule.fits_asserted(text.unwrap_or_default()),
            (Condition::Unusable, _) => false,
        };
        if !fits {
            return Verdict::NotEligible;
        }
        match self.list.as_ref().map(|list| list.contains(user)) {
            None | Some(Some(true)) => Verdict::Eligible,
            Some(Some(false)) => Verdict::NotEligible,
            Some(None) => Verdict::Unknown,
        }
    }
}

fn condition(rule: &str, kept: &ClaimNames) -> Result<Condition, String> {
    if rule.trim().is_empty() {
        return Ok(Condition::None);
    }
    let rule = Rule::parse(rule).map_err(|error| format!("its rule cannot be read, {error}"))?;
    let bound = rule.bind(kept).map_err(|claim| {
        format!("its rule names the claim {claim:?}, which auth.claims of this gateway does not")
    })?;
    Ok(Condition::Rule(bound))
}

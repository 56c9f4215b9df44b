//! A rule: which users an activity is for, as a condition on their claims.
//!
//! Compiled once, when the catalogue is read; judging is a walk over a small tree without allocating. A comparison with
//! a claim that is not there, or is of another type, is false, `!=` included: who cannot be told to fit does not fit.

use std::fmt;

use crate::admission::identity::{CLAIMS_MAX, Claim, ClaimNames, Claims, asserted};

/// The longest text of a rule.
pub const RULE_BYTES_MAX: usize = 512;

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compare {
    Equal,
    NotEqual,
    Less,
    AtMost,
    Greater,
    AtLeast,
}

/// What a claim is compared with.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Literal {
    Number(f64),
    Flag(bool),
    Text(Box<str>),
}

/// A condition; claims by their place among the rule's names.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Condition {
    Any(Vec<Condition>),
    All(Vec<Condition>),
    Not(Box<Condition>),
    /// The flag is there and true.
    Holds(usize),
    Compares(usize, Compare, Literal),
}

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    pub(super) condition: Condition,
    /// Claims that it names, each once.
    pub(super) names: Vec<Box<str>>,
}

/// Why a text is not a rule: where, and what is wrong there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct RuleError {
    /// The character that cannot be understood, from 1.
    pub at: usize,
    /// What is wrong there, and what would do.
    pub what: String,
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at character {}: {}", self.at, self.what)
    }
}

impl Rule {
    /// The claims that it looks at.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|name| &**name)
    }

    /// Ties it to where claims of tokens are kept; `Err`: a claim that it names is not kept.
    pub fn bind(self, kept: &ClaimNames) -> Result<BoundRule, String> {
        let place = |name: &str| kept.place(name).ok_or_else(|| name.to_owned());
        let places = self.names().map(place).collect::<Result<_, _>>()?;
        Ok(BoundRule { rule: self, places })
    }
}

/// A rule that knows where claims are kept.
#[derive(Clone, Debug, PartialEq)]
pub struct BoundRule {
    rule: Rule,
    /// By place among the rule's names.
    places: Vec<usize>,
}

impl BoundRule {
    /// Whether a user with these claims fits.
    pub fn fits(&self, claims: &Claims) -> bool {
        self.rule.condition.holds(&|nth| claims.at(*self.places.get(nth)?))
    }

    /// Whether a user of whom a back end asserts this fits. Of two assertions of a name the first one counts.
    pub fn fits_asserted(&self, text: &str) -> bool {
        let mut found = [None; CLAIMS_MAX];
        for (name, claim) in asserted(text) {
            let nth = self.rule.names.iter().position(|known| &**known == name);
            if let Some(slot @ None) = nth.and_then(|nth| found.get_mut(nth)) {
                *slot = Some(claim);
            }
        }
        self.rule.condition.holds(&|nth| found.get(nth).copied().flatten())
    }
}

impl Condition {
    fn holds<'a>(&self, claim: &impl Fn(usize) -> Option<Claim<'a>>) -> bool {
        match self {
            Self::Any(conditions) => conditions.iter().any(|one| one.holds(claim)),
            Self::All(conditions) => conditions.iter().all(|one| one.holds(claim)),
            Self::Not(condition) => !condition.holds(claim),
            Self::Holds(nth) => claim(*nth) == Some(Claim::Flag(true)),
            Self::Compares(nth, compare, literal) => {
                claim(*nth).is_some_and(|claim| compare.holds(claim, literal))
            }
        }
    }
}

impl Compare {
    fn holds(self, claim: Claim<'_>, literal: &Literal) -> bool {
        let order = match (claim, literal) {
            (Claim::Number(claim), Literal::Number(number)) => claim.partial_cmp(number),
            (Claim::Flag(claim), Literal::Flag(flag)) => Some(claim.cmp(flag)),
            (Claim::Text(claim), Literal::Text(text)) => Some(claim.cmp(text)),
            _ => None,
        };
        order.is_some_and(|order| match self {
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::AtMost => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::AtLeast => order.is_ge(),
        })
    }
}

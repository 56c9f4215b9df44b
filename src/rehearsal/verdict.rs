//! What an audit looks at and what it found. Pure data.

/// Sentences kept; more are only counted.
const SENTENCES_MAX: usize = 100;

/// What the audit looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Check {
    /// Every QUEUED and ALREADY has exactly one order row that says the same.
    Promises,
    /// No order of a user to whom none was promised.
    Unpromised,
    /// At most one live order per user and activity; no user saw two order numbers.
    OnePerUser,
    /// Units sold, free and between shards add up to the units loaded, in each shard and altogether.
    Conservation,
    /// Not more units sold than loaded.
    Oversold,
    /// No unit left that somebody wanted who went away without an order, whatever he was told.
    Undersold,
    /// As many orders as the stock allows: where everybody wants one unit, as many as units or users, whichever are
    /// fewer; else so many that nobody's wish who has none would fit into the rest.
    Exact,
    /// Nobody who had won was told anything else afterwards.
    WonThenOtherwise,
    /// RESULT says what the database says.
    Results,
    /// Pushes say what the database says.
    Pushes,
    /// Writers have settled everything before the audit's patience ended.
    Settled,
}

/// One violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Of what.
    pub check: Check,
    /// For people: which user, which order, what is wrong.
    pub sentence: String,
}

/// What the audit found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The first violations.
    pub findings: Vec<Finding>,
    /// All of them, also those without a sentence here.
    pub violations: u64,
    /// Units loaded, less those that users outside this sale hold.
    pub stock: u64,
    /// Live orders of this sale's users for its SKU.
    pub orders: u64,
    /// Units sold beyond the units loaded.
    pub oversold: u64,
    /// Units left that users wanted who went away without an order.
    pub undersold: u64,
    /// Units free or between shards.
    pub stock_left: u64,
}

impl Verdict {
    /// Whether nothing was found.
    pub const fn is_ok(&self) -> bool {
        self.violations == 0
    }

    /// `ok`, or the first violation and how many more there are.
    pub fn sentence(&self) -> String {
        let Some(first) = self.findings.first() else { return "ok".to_owned() };
        match self.violations.saturating_sub(1) {
            0 => first.sentence.clone(),
            more => format!("{} (and {more} more)", first.sentence),
        }
    }

    pub(super) fn find(&mut self, check: Check, sentence: String) {
        self.violations = self.violations.saturating_add(1);
        if self.findings.len() < SENTENCES_MAX {
            self.findings.push(Finding { check, sentence });
        }
    }
}

pub(super) fn unsigned(units: i64) -> u64 {
    u64::try_from(units).unwrap_or(0)
}

pub(super) fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

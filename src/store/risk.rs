//! Where the risk lists are kept: subjects and effects as texts, each until when, with who listed it and why.
//!
//! A store knows nothing of what an entry means; whoever lists one has checked it, and whoever obeys one checks it again.
//! Every change is remembered for those who follow them. Every method may be called from any task, and may be repeated as
//! it was. On failure nothing was changed, or it was and the next reading says so. What has passed is forgotten by the
//! store when something else is listed; nobody has to take it off.

use std::future::Future;
use std::time::Duration;

use super::StoreError;

/// Entries that are changed in one step; more take several, in their order.
pub const STEP_ENTRIES: usize = 500;

/// How those begin who list flags: gateways, by their numbers. Operators have other names.
pub const FLAGGED_BY: &str = "gateway ";

/// What is to be listed; what stood there of the subject before is replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEntry {
    /// Whom it is about. One line of text.
    pub subject: String,
    /// What becomes of it. One word.
    pub effect: String,
    /// Until when, in Unix milliseconds of the sale clock; 0 = for good.
    pub until_ms: u64,
    /// Who lists it.
    pub who: String,
    /// Why.
    pub why: String,
}

impl NewEntry {
    /// Whether a gateway lists it, as a flag.
    pub fn is_flag(&self) -> bool {
        self.who.starts_with(FLAGGED_BY)
    }
}

/// An entry as it was listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Whom it is about.
    pub subject: String,
    /// What becomes of it; empty where what is kept cannot be read.
    pub effect: String,
    /// Until when, in Unix milliseconds of the sale clock; 0 = for good.
    pub until_ms: u64,
    /// When it was listed, in Unix milliseconds by the store's clock.
    pub at_ms: u64,
    /// Who listed it.
    pub who: String,
    /// Why.
    pub why: String,
}

impl Entry {
    /// Whether a gateway has listed it, as a flag.
    pub fn is_flag(&self) -> bool {
        self.who.starts_with(FLAGGED_BY)
    }
}

/// A flag to be listed by a gateway, which has looked what stands there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewFlag {
    /// The entry.
    pub entry: NewEntry,
    /// What stood there of the subject.
    pub seen: Option<Entry>,
}

/// How a subject stands now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Whom it is about.
    pub subject: String,
    /// What becomes of it, and until when (0 = for good); `None`: it was taken off.
    pub listed: Option<(String, u64)>,
    /// Whether it is a flag. Told by stores that may lose entries, for whoever puts them back.
    pub is_flag: bool,
}

/// Some of what is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// In no order; one may come twice, the later counts.
    pub found: Vec<T>,
    /// What to ask for next; `None`: that was all.
    pub next: Option<String>,
}

/// What came of a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removed {
    /// Of the last change.
    pub version: u64,
    /// Subjects that were listed.
    pub entries: u64,
}

/// What changed after a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Followed {
    /// These, oldest first; none: everything stands as it did.
    Changes {
        /// Of the last of them.
        version: u64,
        /// One step whole after the other.
        changes: Vec<Change>,
    },
    /// More than is remembered: read everything again.
    Overrun,
    /// The store does not hold what it held under that version: it has lost something.
    Lost,
}

/// A store of risk lists.
pub trait RiskStore: Send + Sync + 'static {
    /// Lists them; the version of the last change. Versions rise: Unix milliseconds, or the next number after the last
    /// one where that clock did not move on.
    fn risk_add(&self, entries: &[NewEntry]) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Lists flags, or what a gateway puts back over an older one, each if what stands there is still what was seen, or was forgotten because its time had passed; the
    /// store compares and writes at once. Which of them are listed then, in their order: one that stands there already
    /// to the letter is.
    fn risk_flag(&self, flags: &[NewFlag]) -> impl Future<Output = Result<Vec<bool>, StoreError>> + Send;

    /// Takes subjects off.
    fn risk_remove(&self, subjects: &[String]) -> impl Future<Output = Result<Removed, StoreError>> + Send;

    /// Those of these subjects that are listed, whether or not their time has passed.
    fn risk_find(&self, subjects: &[String]) -> impl Future<Output = Result<Vec<Entry>, StoreError>> + Send;

    /// A page of what is listed, with who and why. Without a cursor: the first.
    fn risk_page(&self, cursor: Option<&str>)
    -> impl Future<Output = Result<Page<Entry>, StoreError>> + Send;

    /// The same for gateways, who want to know less and read all of it.
    fn risk_scan(
        &self,
        cursor: Option<&str>,
    ) -> impl Future<Output = Result<Page<Change>, StoreError>> + Send;

    /// That of the last change; 0 when nothing was ever listed. Read before a scan: what is changed during it is told
    /// by [`risk_changes`](Self::risk_changes) after this version.
    fn risk_version(&self) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// What changed after a version; waits up to `wait` for it, and may give up earlier. Dropping the future loses
    /// nothing.
    fn risk_changes(
        &self,
        after: u64,
        wait: Duration,
    ) -> impl Future<Output = Result<Followed, StoreError>> + Send;

    /// Lists what the store has lost, each unless something stands there by now; how many that were. A store that loses
    /// nothing has nothing to do.
    fn risk_restore(&self, lost: &[NewEntry]) -> impl Future<Output = Result<u64, StoreError>> + Send {
        let _ = lost;
        std::future::ready(Ok(0))
    }
}

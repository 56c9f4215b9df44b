//! The operator's operations on the risk lists.
//!
//! Used by the commands, and by the admin port of a serving gateway. A subject or an effect that does not parse is refused
//! here, with the reason, before anything is written; whoever obeys looks at it again.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::switches::{WHO_CHARS_MAX, WHY_CHARS_MAX, check_text};
use crate::admission::risk::{Effect, Subject, SubjectError};
use crate::store::StoreError;
use crate::store::redis::RedisShards;
use crate::store::risk::{Change, Entry, FLAGGED_BY, Followed, NewEntry, NewFlag, Page, Removed, RiskStore};
use crate::store::sql::{RiskFolder, SqliteStore};

/// The longest time for which something is listed other than for good.
pub const FOR_MAX: Duration = Duration::from_secs(10 * 366 * 24 * 3600);

/// Why the lists were not changed.
#[derive(Debug, thiserror::Error)]
pub enum RiskError {
    /// Whom, or what becomes of him.
    #[error("{0}; nothing was changed")]
    Subject(#[from] SubjectError),
    /// Who, or why.
    #[error("{what} {problem}; nothing was changed")]
    Text {
        /// Which.
        what: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// For how long.
    #[error(
        "{0:?} is no time to list somebody for: from 1s to {FOR_MAX:?}, or not at all, for good; nothing was changed"
    )]
    For(Duration),
    /// The store did not answer; the lists may be changed all the same.
    #[error("the lists may or may not be changed: {0}")]
    Store(#[from] StoreError),
}

/// What becomes of a subject, as an operator writes it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RiskRequest {
    /// `user:42`.
    pub subject: String,
    /// `block`, `slow`; `none` takes it off.
    pub effect: String,
    /// For how many seconds; without it for good.
    #[serde(default)]
    pub for_s: Option<u64>,
    /// Who does it.
    pub who: String,
    /// Why.
    pub why: String,
}

/// What was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RiskDone {
    /// Entries that were listed, or taken off.
    pub entries: u64,
    /// Gateways whose `rushgate_risk_version` is this or greater go by it.
    pub version: u64,
}

impl From<Removed> for RiskDone {
    fn from(Removed { version, entries }: Removed) -> Self {
        Self { entries, version }
    }
}

/// An entry as operators are shown it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EntryView {
    /// Whom it is about.
    pub subject: String,
    /// What becomes of it.
    pub effect: String,
    /// Until when, in Unix milliseconds; 0 = for good.
    pub until_ms: u64,
    /// When it was listed, in Unix milliseconds.
    pub at_ms: u64,
    /// Who listed it.
    pub who: String,
    /// Why.
    pub why: String,
    /// Why gateways of this version do not go by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ignored: Option<String>,
}

impl EntryView {
    /// Whether its time has passed.
    pub const fn has_passed(&self, now_ms: u64) -> bool {
        self.until_ms > 0 && self.until_ms <= now_ms
    }
}

impl From<Entry> for EntryView {
    fn from(entry: Entry) -> Self {
        let Entry { subject, effect, until_ms, at_ms, who, why } = entry;
        let read = subject.parse::<Subject>().and_then(|_| effect.parse::<Effect>());
        Self { subject, effect, until_ms, at_ms, who, why, ignored: read.err().map(|why| why.to_string()) }
    }
}

/// Who lists somebody, and why; checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    who: String,
    why: String,
}

impl Reason {
    /// They go into logs and tables, on one line.
    pub fn new(who: String, why: String) -> Result<Self, RiskError> {
        for (what, text, chars_max) in [("who", &who, WHO_CHARS_MAX), ("why", &why, WHY_CHARS_MAX)] {
            check_text(text, chars_max).map_err(|problem| RiskError::Text { what, problem })?;
        }
        if who.starts_with(FLAGGED_BY) {
            let problem = format!("{who:?} begins as gateways sign their flags; choose another name");
            return Err(RiskError::Text { what: "who", problem });
        }
        Ok(Self { who, why })
    }

    /// An entry.
    pub fn entry(&self, subject: &Subject, effect: Effect, until_ms: u64) -> NewEntry {
        NewEntry {
            subject: subject.to_string(),
            effect: effect.name().to_owned(),
            until_ms,
            who: self.who.clone(),
            why: self.why.clone(),
        }
    }
}

/// This machine's time in Unix milliseconds.
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// When somebody who is listed now for this long is free again; 0 = never.
pub fn until_ms(now_ms: u64, listed_for: Option<Duration>) -> Result<u64, RiskError> {
    match listed_for {
        None => Ok(0),
        Some(time) if (Duration::from_secs(1)..=FOR_MAX).contains(&time) => {
            Ok(now_ms.saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)))
        }
        Some(time) => Err(RiskError::For(time)),
    }
}

/// Lists somebody, or takes him off.
pub async fn change<S: RiskStore>(store: &S, request: RiskRequest) -> Result<RiskDone, RiskError> {
    let subject: Subject = request.subject.parse()?;
    let reason = Reason::new(request.who, request.why)?;
    if request.effect == "none" {
        return Ok(store.risk_remove(&[subject.to_string()]).await?.into());
    }
    let until_ms = until_ms(now_ms(), request.for_s.map(Duration::from_secs))?;
    let entry = reason.entry(&subject, request.effect.parse()?, until_ms);
    Ok(RiskDone { entries: 1, version: store.risk_add(&[entry]).await? })
}

/// Where the risk lists of an installation are, for those who do not serve from it.
#[derive(Debug)]
pub enum RiskPlace {
    /// The embedded store that this process serves from.
    Served(Arc<SqliteStore>),
    /// A data folder, whoever serves from it.
    Folder(RiskFolder),
    /// The production store's Redis.
    Redis(RedisShards),
}

macro_rules! there {
    ($place:expr, $store:ident => $asked:expr) => {
        match $place {
            Self::Served($store) => $asked.await,
            Self::Folder($store) => $asked.await,
            Self::Redis($store) => $asked.await,
        }
    };
}

impl RiskStore for RiskPlace {
    async fn risk_add(&self, entries: &[NewEntry]) -> Result<u64, StoreError> {
        there!(self, store => store.risk_add(entries))
    }

    async fn risk_flag(&self, flags: &[NewFlag]) -> Result<Vec<bool>, StoreError> {
        there!(self, store => store.risk_flag(flags))
    }

    async fn risk_remove(&self, subjects: &[String]) -> Result<Removed, StoreError> {
        there!(self, store => store.risk_remove(subjects))
    }

    async fn risk_find(&self, subjects: &[String]) -> Result<Vec<Entry>, StoreError> {
        there!(self, store => store.risk_find(subjects))
    }

    async fn risk_page(&self, cursor: Option<&str>) -> Result<Page<Entry>, StoreError> {
        there!(self, store => store.risk_page(cursor))
    }

    async fn risk_scan(&self, cursor: Option<&str>) -> Result<Page<Change>, StoreError> {
        there!(self, store => store.risk_scan(cursor))
    }

    async fn risk_version(&self) -> Result<u64, StoreError> {
        there!(self, store => store.risk_version())
    }

    async fn risk_changes(&self, after: u64, wait: Duration) -> Result<Followed, StoreError> {
        there!(self, store => store.risk_changes(after, wait))
    }
}

//! The risk lists that the gateway goes by, and the task that follows the store's.
//!
//! One task per gateway. It reads everything once, before the port opens, then what changes, step by step; and everything
//! again when the store has forgotten steps or has lost something. New lists are made on a thread of their own, however
//! many entries come at once: neither a worker nor the stock task waits for that. While the store is away what was known last
//! stays in force. A store that comes back without what it had, as Redis may, is given it back. What cannot be read lists
//! nobody; it is told once and counted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::AbortHandle;

use super::Core;
use super::counters::{Event, Sheet};
use super::settings::RiskSettings;
use super::trouble::Trouble;
use crate::admission::risk::{Listed, Listing, Lists, Risk, Subject, SubjectError};
use crate::store::StoreError;
use crate::store::risk::{Change, FLAGGED_BY, Followed, NewEntry, NewFlag, RiskStore, STEP_ENTRIES};
use crate::store::watched;

/// One wait for a change.
const WAIT: Duration = Duration::from_secs(1);
/// After a failure, and after everything had to be read again.
const BACK_OFF: Duration = Duration::from_millis(50);
/// Entries worked into the lists at a time, about.
const PORTION: usize = 200_000;
/// So many at once, and others are to be expected.
const MUCH: usize = 2_000;
/// How long whoever looks at lists may take before those in force before are let go.
const FREED_WITHIN_MS: u32 = 100;
/// Names of unreadable entries that are told.
const TOLD_MAX: usize = 100;

/// What is known of the lists besides themselves.
#[derive(Debug, Default)]
pub(super) struct RiskState {
    /// Of the last change in force.
    version: AtomicU64,
    /// When the store last said that this is how they stand; monotonic milliseconds.
    confirmed_ms: AtomicU64,
    /// Entries that were told as unreadable.
    told: Mutex<BTreeSet<String>>,
}

impl RiskState {
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }

    /// For how long nobody has confirmed that they stand so.
    pub(super) fn age_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.confirmed_ms.load(Ordering::Relaxed))
    }
}

/// The rung, with empty lists.
pub(super) fn rung(settings: &RiskSettings) -> Risk {
    Risk::new(u64::try_from(settings.slow_interval.as_millis()).unwrap_or(u64::MAX))
}

type Changes = Vec<(Subject, Option<Listing>)>;

/// What of these changes can be read.
fn readable(core: &Core, sheet: &Sheet, changes: Vec<Change>) -> Changes {
    let mut read = Vec::with_capacity(changes.len());
    for Change { subject: text, listed, is_flag } in changes {
        let parse = || {
            let subject = text.parse()?;
            let listed = match listed {
                Some((effect, until_ms)) => Some(Listing { effect: effect.parse()?, until_ms, is_flag }),
                None => None,
            };
            Ok::<_, SubjectError>((subject, listed))
        };
        match parse() {
            Ok(change) => read.push(change),
            Err(why) => {
                sheet.event(Event::RiskIgnored, 1);
                let mut told = core.risk.told.lock().unwrap_or_else(PoisonError::into_inner);
                if told.len() < TOLD_MAX && told.insert(text.clone()) {
                    tracing::warn!(entry = text, "an entry of the risk lists is ignored: {why}");
                }
            }
        }
    }
    read
}

/// Runs it on a thread where nobody waits: lists are made, and freed, in milliseconds or more.
async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, StoreError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| StoreError::Unavailable("the gateway ends".to_owned()))
}

/// The lists after these changes.
async fn made(core: &Core, lists: Lists, changes: Changes) -> Result<Lists, StoreError> {
    let now_ms = core.clock.now().sale_ms;
    apart(move || lists.with(changes, now_ms)).await
}

/// Puts them in force, and frees what was.
fn publish(core: &Core, lists: Lists) {
    let before = core.funnel.risk.publish(lists);
    // A worker that looks at them now would have to free them: it has looked in a moment.
    for _ in 0..FREED_WITHIN_MS {
        if Arc::strong_count(&before) == 1 {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Reads them for the first time, before the port opens, and follows them from then on.
pub(super) async fn start<S: RiskStore>(core: &Arc<Core>, store: &Arc<S>) -> Result<AbortHandle, StoreError> {
    read_all(core, store.as_ref(), &core.counters.sheet(), false).await?;
    let (core, store) = (Arc::clone(core), Arc::clone(store));
    let begin = move || follow(Arc::clone(&core), Arc::clone(&store));
    Ok(tokio::spawn(watched::restarted("following the risk lists", begin)).abort_handle())
}

async fn follow<S: RiskStore>(core: Arc<Core>, store: Arc<S>) {
    let sheet = core.counters.sheet();
    let mut trouble = Trouble::new("the risk lists cannot be read; those known last stay in force");
    loop {
        match step(&core, store.as_ref(), &sheet).await {
            Ok(true) => trouble.over(),
            Ok(false) => {
                trouble.over();
                tokio::time::sleep(BACK_OFF).await;
            }
            Err(error) => {
                trouble.happened(&error);
                tokio::time::sleep(BACK_OFF).await;
            }
        }
    }
}

/// Waits for a change and puts it in force. False: all had to be read.
async fn step<S: RiskStore>(core: &Arc<Core>, store: &S, sheet: &Sheet) -> Result<bool, StoreError> {
    let asked_ms = core.clock.now().mono_ms();
    let (mut version, mut changes, mut wait) = (core.risk.version(), Vec::new(), WAIT);
    loop {
        match store.risk_changes(version, wait).await? {
            Followed::Changes { version: last, changes: some } => {
                let is_much = some.len() >= MUCH;
                version = last;
                changes.extend(some);
                // Somebody lists many: the fewer times the lists are made, the better.
                if !is_much || changes.len() >= PORTION {
                    break;
                }
                wait = Duration::ZERO;
            }
            Followed::Overrun => return read_all(core, store, sheet, false).await.map(|()| false),
            Followed::Lost => return read_all(core, store, sheet, true).await.map(|()| false),
        }
    }
    if !changes.is_empty() {
        let count = u64::try_from(changes.len()).unwrap_or(u64::MAX);
        let changes = readable(core, sheet, changes);
        let (shared, now_ms) = (Arc::clone(core), core.clock.now().sale_ms);
        apart(move || {
            let lists = shared.funnel.risk.lists().with(changes, now_ms);
            publish(&shared, lists);
        })
        .await?;
        sheet.event(Event::RiskChanged, count);
        core.risk.version.store(version, Ordering::Relaxed);
    }
    core.risk.confirmed_ms.store(asked_ms, Ordering::Relaxed);
    Ok(true)
}

/// Reads everything and puts it in force. Where the store has lost something, what is known here stays, and goes back.
async fn read_all<S: RiskStore>(
    core: &Arc<Core>,
    store: &S,
    sheet: &Sheet,
    is_lost: bool,
) -> Result<(), StoreError> {
    let asked_ms = core.clock.now().mono_ms();
    let known = core.funnel.risk.lists();
    // Before the first page: what is changed meanwhile is read after it.
    let version = store.risk_version().await?;
    let mut lists = known.emptied();
    let (mut portion, mut cursor) = (Vec::new(), None);
    loop {
        let page = store.risk_scan(cursor.as_deref()).await?;
        portion.extend(readable(core, sheet, page.found));
        cursor = page.next;
        if portion.len() >= PORTION || cursor.is_none() {
            lists = made(core, lists, std::mem::take(&mut portion)).await?;
        }
        if cursor.is_none() {
            break;
        }
    }
    let (mut missing, mut outdated) = (Vec::new(), Vec::new());
    if is_lost {
        (lists, missing) = with_missing(core, lists, Arc::clone(&known)).await?;
        (lists, outdated) = with_changes(core, store, lists, Arc::clone(&known)).await?;
    }
    let shared = Arc::clone(core);
    apart(move || {
        drop(known);
        publish(&shared, lists);
    })
    .await?;
    sheet.event(Event::RiskReadAll, 1);
    put_back(store, sheet, &missing, &outdated).await?;
    // Not before: what could not be put back counts as lost the next time, too.
    core.risk.version.store(version, Ordering::Relaxed);
    core.risk.confirmed_ms.store(asked_ms, Ordering::Relaxed);
    Ok(())
}

/// An entry as it is known here, for a store that has lost it.
fn to_put_back(listed: &Listed) -> NewEntry {
    NewEntry {
        subject: listed.subject.to_string(),
        effect: listed.effect.name().to_owned(),
        until_ms: listed.until_ms,
        // A flag stays one: neither operators nor further flags find an operator's there.
        who: if listed.is_flag { format!("{FLAGGED_BY}unknown") } else { "a gateway".to_owned() },
        why: "put back: the store had lost it, and with it who listed it and why".to_owned(),
    }
}

/// The lists with what is known besides, and what that is.
async fn with_missing(
    core: &Core,
    lists: Lists,
    known: Arc<Lists>,
) -> Result<(Lists, Vec<NewEntry>), StoreError> {
    let now_ms = core.clock.now().sale_ms;
    let made = apart(move || {
        let is_missing = |one: &Listed| lists.listing(&one.subject).is_none();
        let missing: Vec<_> = known.iter(now_ms).filter(is_missing).collect();
        let entries = missing.iter().map(to_put_back).collect();
        let changes = missing.into_iter().map(|one| (one.subject.clone(), Some(one.listing())));
        (lists.with(changes.collect(), now_ms), entries)
    });
    made.await
}

/// The lists with what is known here later than the store has it: the changes of its entries that it has lost; and what those
/// are, each with what stands there. Who was taken off in what was lost is listed again, to be on the safe side.
async fn with_changes<S: RiskStore>(
    core: &Core,
    store: &S,
    lists: Lists,
    known: Arc<Lists>,
) -> Result<(Lists, Vec<NewFlag>), StoreError> {
    let now_ms = core.clock.now().sale_ms;
    let there = lists.clone();
    let differing = apart(move || {
        let is_another = |one: &Listed| there.listing(&one.subject) != Some(one.listing());
        let differing = known.iter(now_ms).filter(is_another);
        differing.map(|one| (one.subject.to_string(), one)).collect::<BTreeMap<_, _>>()
    });
    let mut differing = differing.await?;
    let subjects: Vec<String> = differing.keys().cloned().collect();
    let mut changes = Vec::new();
    let mut outdated = Vec::new();
    for entry in store.risk_find(&subjects).await? {
        // What was listed later than the last change that is known here was so after the loss, and stands.
        if entry.at_ms > core.risk.version() {
            continue;
        }
        if let Some(listed) = differing.remove(&entry.subject) {
            outdated.push(NewFlag { entry: to_put_back(&listed), seen: Some(entry) });
            changes.push((listed.subject.clone(), Some(listed.listing())));
        }
    }
    Ok((made(core, lists, changes).await?, outdated))
}

async fn put_back<S: RiskStore>(
    store: &S,
    sheet: &Sheet,
    missing: &[NewEntry],
    outdated: &[NewFlag],
) -> Result<(), StoreError> {
    let mut restored = 0_u64;
    for step in missing.chunks(STEP_ENTRIES) {
        restored = restored.saturating_add(store.risk_restore(step).await?);
    }
    for step in outdated.chunks(STEP_ENTRIES) {
        // As flags are: what somebody has changed since it was looked at stays.
        let put = store.risk_flag(step).await?.into_iter().filter(|stands| *stands).count();
        restored = restored.saturating_add(u64::try_from(put).unwrap_or(u64::MAX));
    }
    if restored > 0 {
        tracing::warn!(
            restored,
            "the store had lost entries of the risk lists that are in force here; they were put back"
        );
        sheet.event(Event::RiskRestored, restored);
    }
    Ok(())
}

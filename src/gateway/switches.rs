//! The switches that the gateway obeys, and the task that follows the store's.
//!
//! One task per gateway. It waits for the store to tell of a change, reads all switches again, and publishes a board; now
//! and then, and after every failure, it reads them without being told. While the store is away what was obeyed last is
//! obeyed on. A store that comes back without what it had, as Redis may, is given it back: a door that somebody closed
//! does not open because a server was restarted. What cannot be read is logged once, counted, and changes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::Core;
use super::counters::{Event, Sheet};
use super::trouble::Trouble;
use crate::admission::switches::{Ignored, SwitchBoard};
use crate::store::StoreError;
use crate::store::switches::{SetSwitch, SwitchStore, Switches};

/// One wait for a change; then everything is read again.
const WAIT: Duration = Duration::from_secs(1);
/// After a failure, and after a wait that ended at once without a change.
const BACK_OFF: Duration = Duration::from_millis(50);

/// What a gateway obeys, and what it knows of how that came.
#[derive(Clone, Debug, Default)]
pub struct Obeyed {
    /// Of the last change that is obeyed; 0 when nothing was ever set.
    pub version: u64,
    /// As set, by name.
    pub set: Vec<SetSwitch>,
    /// What the store holds that is no switch here.
    pub ignored: Vec<Ignored>,
    /// What it all means.
    pub board: Arc<SwitchBoard>,
}

impl Obeyed {
    /// What is obeyed after reading this; and what the store has lost.
    fn after(before: &Self, found: Switches) -> (Self, Vec<SetSwitch>) {
        let lost: Vec<SetSwitch> = found.lost(&before.set).cloned().collect();
        let is_unreadable = |switch: &&SetSwitch| found.unreadable.contains(&switch.name);
        let kept: Vec<SetSwitch> = before.set.iter().filter(is_unreadable).cloned().collect();
        let by_name: BTreeMap<String, SetSwitch> = kept
            .into_iter()
            .chain(found.set)
            .chain(lost.iter().cloned())
            .map(|switch| (switch.name.clone(), switch))
            .collect();
        let set: Vec<SetSwitch> = by_name.into_values().collect();
        let readable = set.iter().map(|switch| (switch.name.as_str(), Some(switch.value.as_str())));
        let unreadable = found.unreadable.iter().map(|name| (name.as_str(), None));
        let (board, ignored) = SwitchBoard::read(readable.chain(unreadable), &before.board);
        let version = set.iter().map(|switch| switch.version).max().unwrap_or_default();
        (Self { version, set, ignored, board: Arc::new(board) }, lost)
    }

    /// One line for each change, and for each thing that is ignored from now on; how many of each.
    fn told(&self, before: &Self) -> (u64, u64) {
        let (mut changes, mut ignored) = (0_u64, 0_u64);
        for SetSwitch { name, value, version, who, why, .. } in
            self.set.iter().filter(|switch| !before.set.contains(switch))
        {
            changes = changes.saturating_add(1);
            tracing::info!(name, value, version, who, why, "a switch is obeyed");
        }
        for one in self.ignored.iter().filter(|one| !before.ignored.contains(one)) {
            ignored = ignored.saturating_add(1);
            tracing::warn!(name = one.name, "a switch in the store is ignored: {one}");
        }
        (changes, ignored)
    }
}

/// What is obeyed now, for everybody but the funnel, which reads it in what is on sale. Nothing until they were read.
#[derive(Debug, Default)]
pub(super) struct SwitchState {
    obeyed: watch::Sender<Arc<Obeyed>>,
    /// When the store last said that this is how they stand; monotonic milliseconds.
    confirmed_ms: AtomicU64,
}

impl SwitchState {
    pub(super) fn obeyed(&self) -> watch::Receiver<Arc<Obeyed>> {
        self.obeyed.subscribe()
    }

    /// For how long nobody has confirmed that they stand so.
    pub(super) fn age_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.confirmed_ms.load(Ordering::Relaxed))
    }
}

fn count(sheet: &Sheet, (changes, ignored): (u64, u64)) {
    sheet.event(Event::SwitchObeyed, changes);
    sheet.event(Event::SwitchIgnored, ignored);
}

/// Reads them for the first time: right before the port opens, for shards may have been waited for until then.
pub(super) async fn read_before_opening<S: SwitchStore>(core: &Core, store: &S) -> Result<(), StoreError> {
    read_again(core, store, &core.counters.sheet()).await
}

/// Runs until the gateway stops it.
pub(super) async fn follow<S: SwitchStore>(core: Arc<Core>, store: Arc<S>) {
    let sheet = core.counters.sheet();
    let mut trouble = Trouble::new("switches cannot be read; those known last are obeyed");
    // The newest change heard of: the store may hold it in its log alone.
    let mut heard = 0;
    loop {
        let after = core.switches.obeyed.borrow().version.max(heard);
        let began = Instant::now();
        let read = async {
            // Whether or not that connection works: the switches are read over another.
            let changes = store.switch_changes(after, WAIT).await;
            read_again(&core, store.as_ref(), &sheet).await?;
            Ok::<_, StoreError>(changes?.last().map(|change| change.version))
        };
        match read.await {
            Ok(last) => {
                trouble.over();
                heard = last.unwrap_or_default().max(heard);
                if last.is_none() && began.elapsed() < BACK_OFF {
                    tokio::time::sleep(BACK_OFF).await;
                }
            }
            Err(error) => {
                trouble.happened(&error);
                tokio::time::sleep(BACK_OFF).await;
            }
        }
    }
}

/// Reads all switches, obeys them, and gives the store back what it has lost.
async fn read_again<S: SwitchStore>(core: &Core, store: &S, sheet: &Sheet) -> Result<(), StoreError> {
    let asked_ms = core.clock.now().mono_ms();
    let found = store.switches().await?;
    core.switches.confirmed_ms.store(asked_ms, Ordering::Relaxed);
    let before = Arc::clone(&core.switches.obeyed.borrow());
    let (obeyed, lost) = Obeyed::after(&before, found);
    if obeyed.set != before.set || obeyed.ignored != before.ignored {
        core.funnel.obey(core.clock.now(), &obeyed.board);
        count(sheet, obeyed.told(&before));
        core.switches.obeyed.send_replace(Arc::new(obeyed));
    }
    if lost.is_empty() {
        return Ok(());
    }
    let restored = store.restore_switches(&lost).await?;
    if restored > 0 {
        tracing::warn!(restored, "the store had lost switches that are obeyed here; they were put back");
        sheet.event(Event::SwitchRestored, restored);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::switches::Entry;

    fn set(name: &str, value: &str, version: u64) -> SetSwitch {
        let text = |text: &str| text.to_owned();
        SetSwitch { name: text(name), value: text(value), version, at_ms: 1, who: text("w"), why: text("y") }
    }

    fn after(before: &Obeyed, set: &[SetSwitch], unreadable: &[&str]) -> (Obeyed, Vec<SetSwitch>) {
        let unreadable = unreadable.iter().map(|name| (*name).to_owned()).collect();
        Obeyed::after(before, Switches { set: set.to_vec(), unreadable })
    }

    #[test]
    fn what_the_store_has_lost_is_obeyed_on_and_given_back_and_what_is_newer_counts() {
        let closed = set("entry", "closed", 5);
        let (known, lost) = after(&Obeyed::default(), &[closed.clone(), set("entry/7", "closed", 6)], &[]);
        assert_eq!((known.version, lost.len()), (6, 0));
        // Empty, and somebody has opened activity 7 in the meantime.
        let opened = set("entry/7", "open", 9);
        let (now, lost) = after(&known, std::slice::from_ref(&opened), &[]);
        assert_eq!((now.version, lost), (9, vec![closed.clone()]));
        assert_eq!(now.set, [closed, opened]);
        assert_eq!(now.board.entry(), Entry::Closed);
        assert!(now.board.closed_activities().is_empty());
    }

    #[test]
    fn what_cannot_be_read_is_ignored_as_long_as_it_stands_there_and_told_once() {
        let (known, _) = after(&Obeyed::default(), &[set("entry", "closed", 5)], &[]);
        assert_eq!(known.told(&Obeyed::default()), (1, 0));
        let (torn, lost) = after(&known, &[set("stock", "database", 7)], &["entry"]);
        assert!(lost.is_empty(), "what is kept by somebody else's hand is left to him");
        assert_eq!(torn.told(&known), (1, 2));
        assert_eq!((torn.board.entry(), torn.ignored.len()), (Entry::Closed, 2));
        let (again, _) = after(&torn, &[set("stock", "database", 7)], &["entry"]);
        assert_eq!(again.told(&torn), (0, 0));
        // Somebody has deleted it: what was in force comes back.
        let (mended, lost) = after(&again, &[set("stock", "database", 7)], &[]);
        assert_eq!((mended.board.entry(), lost.len()), (Entry::Closed, 1));
    }
}

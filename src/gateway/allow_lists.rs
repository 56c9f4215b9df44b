//! The allow-lists that the gateway judges by, and the task that follows the store's.
//!
//! One task per gateway. It asks how the lists of what is on sale stand, several times a second, and applies what has
//! changed; one that it cannot follow so (changes were forgotten, or somebody changed it by hand) is read as a whole and
//! put in the place of the old one. Nobody waits for that: connections read the list in force. While the store is away
//! that one stays; a store that comes back without everything of a list, as Redis may, is given it back.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::Core;
use super::counters::{Event, Sheet};
use super::trouble::Trouble;
use crate::admission::eligibility::AllowList;
use crate::protocol::{ActivityId, UserId};
use crate::store::StoreError;
use crate::store::allow_lists::{AllowListStore, ListChange, ListState};

/// Between two looks.
const INTERVAL: Duration = Duration::from_millis(200);

/// One activity's list.
#[derive(Debug, Default)]
pub(super) struct ListInForce(ArcSwapOption<AllowList>);

impl ListInForce {
    /// Whether the user is in it; `None` until it was read.
    pub(super) fn contains(&self, user: UserId) -> Option<bool> {
        self.0.load().as_ref().map(|list| list.contains(user))
    }
}

/// The lists of what is on sale.
#[derive(Debug, Default)]
pub(super) struct AllowLists {
    lists: Mutex<BTreeMap<ActivityId, Arc<ListInForce>>>,
    /// One was asked for that had not been.
    asked: Notify,
}

impl AllowLists {
    /// An activity's list, followed from now on.
    pub(super) fn of(&self, activity: ActivityId) -> Arc<ListInForce> {
        let mut lists = self.lists();
        Arc::clone(lists.entry(activity).or_insert_with(|| {
            self.asked.notify_one();
            Arc::default()
        }))
    }

    /// Those that anybody may still look at.
    fn followed(&self) -> Vec<(ActivityId, Arc<ListInForce>)> {
        let mut lists = self.lists();
        // Nobody but this map holds one of an activity that is not on sale any more.
        lists.retain(|_, list| Arc::strong_count(list) > 1);
        lists.iter().map(|(activity, list)| (*activity, Arc::clone(list))).collect()
    }

    fn lists(&self) -> MutexGuard<'_, BTreeMap<ActivityId, Arc<ListInForce>>> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a list in force was made from.
#[derive(Clone, Copy, Debug, Default)]
struct Made {
    /// As the store said.
    from: ListState,
    /// Members that are no users.
    others: u64,
}

/// Reads every list before the port opens, and has them followed.
pub(super) async fn start<S: AllowListStore>(
    core: &Arc<Core>,
    store: &Arc<S>,
) -> Result<AbortHandle, StoreError> {
    let mut follower = Follower::default();
    follower.look(core, store.as_ref(), &core.counters.sheet()).await?;
    Ok(tokio::spawn(follower.run(Arc::clone(core), Arc::clone(store))).abort_handle())
}

/// Follows them.
#[derive(Debug, Default)]
struct Follower {
    made: HashMap<ActivityId, Made>,
}

impl Follower {
    /// Runs until the gateway stops it.
    async fn run<S: AllowListStore>(mut self, core: Arc<Core>, store: Arc<S>) {
        let sheet = core.counters.sheet();
        let mut trouble = Trouble::new("allow-lists cannot be read; those known last are in force");
        loop {
            // At once where a list is new; the others at the next look.
            let _ = tokio::time::timeout(INTERVAL, core.allow_lists.asked.notified()).await;
            match self.look(&core, store.as_ref(), &sheet).await {
                Ok(()) => trouble.over(),
                Err(error) => {
                    trouble.happened(&error);
                    tokio::time::sleep(INTERVAL).await;
                }
            }
        }
    }

    async fn look<S: AllowListStore>(
        &mut self,
        core: &Core,
        store: &S,
        sheet: &Sheet,
    ) -> Result<(), StoreError> {
        let lists = core.allow_lists.followed();
        self.made.retain(|activity, _| lists.iter().any(|(followed, _)| followed == activity));
        if lists.is_empty() {
            return Ok(());
        }
        let activities: Vec<ActivityId> = lists.iter().map(|(activity, _)| *activity).collect();
        let states = store.list_states(&activities).await?;
        let known = activities.iter().map(|activity| self.made.get(activity).map(|made| made.from.version));
        let known: Vec<Option<u64>> = known.collect();
        let went_on = known
            .iter()
            .zip(&states)
            .filter_map(|(known, state)| known.filter(|known| *known < state.version));
        if let Some(after) = went_on.min() {
            let lists: BTreeMap<ActivityId, Arc<ListInForce>> = lists.iter().cloned().collect();
            self.apply_changes(store, after, &lists).await?;
        }
        for (((activity, list), state), known) in lists.iter().zip(states).zip(known) {
            let went_back = known.is_some_and(|known| known > state.version);
            self.bring_up_to_date(store, (*activity, list), state, went_back, sheet).await?;
        }
        Ok(())
    }

    /// Applies changes as long as there are some.
    async fn apply_changes<S: AllowListStore>(
        &mut self,
        store: &S,
        mut after: u64,
        lists: &BTreeMap<ActivityId, Arc<ListInForce>>,
    ) -> Result<(), StoreError> {
        loop {
            let changes = store.list_changes(after).await?;
            let Some(last) = changes.last() else { return Ok(()) };
            after = last.after.version;
            for change in changes {
                if let Some(list) = lists.get(&change.activity) {
                    self.apply(&change, list);
                }
            }
        }
    }

    /// Only to the list that it was made on.
    fn apply(&mut self, change: &ListChange, list: &ListInForce) {
        let Some(made) = self.made.get_mut(&change.activity) else { return };
        if let Some(before) = list.0.load_full()
            && made.from.version == change.before
        {
            list.0.store(Some(Arc::new(before.with(&change.users, change.is_in))));
            made.from = change.after;
        }
    }

    /// Reads a list as a whole unless it is what the store says.
    async fn bring_up_to_date<S: AllowListStore>(
        &mut self,
        store: &S,
        (activity, list): (ActivityId, &ListInForce),
        state: ListState,
        went_back: bool,
        sheet: &Sheet,
    ) -> Result<(), StoreError> {
        if let (Some(made), Some(in_force)) = (self.made.get(&activity), list.0.load_full()) {
            let members = count(in_force.len()).saturating_add(made.others);
            let is_gone = went_back && state == ListState::default() && !in_force.is_empty();
            if is_gone && store.restore_list(activity, &in_force.users()).await? {
                // Under a new version, which is then followed as everybody else's.
                tracing::warn!(%activity, members, "the store had lost an allow-list; it was put back");
                sheet.event(Event::ListRestored, 1);
                return Ok(());
            }
            // Or changes were applied that came after it was asked how it stands.
            let is_as_said = made.from.version > state.version || members == state.users;
            if !went_back && made.from.version >= state.version && is_as_said {
                return Ok(());
            }
        }
        let listed = store.listed(activity).await?;
        let others = listed.others;
        // Sorting a million takes longer than the task that sells may be kept waiting.
        let users = tokio::task::spawn_blocking(move || AllowList::of(listed.users)).await;
        let users =
            users.map_err(|error| StoreError::Unavailable(format!("a list was not sorted: {error}")))?;
        tracing::info!(%activity, users = users.len(), "allow-list read");
        if others > 0 {
            tracing::warn!(%activity, others, "members of the allow-list are no user ids; they let nobody in");
        }
        list.0.store(Some(Arc::new(users)));
        self.made.insert(activity, Made { from: state, others });
        sheet.event(Event::ListRead, 1);
        Ok(())
    }
}

fn count(users: usize) -> u64 {
    u64::try_from(users).unwrap_or(u64::MAX)
}

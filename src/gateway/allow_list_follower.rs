//! Brings the allow-lists of what is on sale up to date.
//!
//! One task per gateway. It asks how they stand, several times a second, and applies what has changed; one that it cannot
//! follow so (changes were forgotten, or somebody changed it by hand) is read as a whole and put in the place of the old one.
//! Nobody waits for that. While the store is away the lists known last stay in force; one that cannot be read hides no other.
//!
//! A store that has lost what is known here, as Redis may, is given it back as a whole, with what operators have changed
//! since then; what is known here stays in force all the time, because a part of a list refuses for good whoever is in the
//! rest. Of several gateways each gives back what the one before it did not know. A list of which such a store holds nothing
//! at all, and which is not known here either, is left unread: it may be lost.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::AbortHandle;

use super::Core;
use super::allow_lists::ListInForce;
use super::counters::{Event, Sheet};
use super::trouble::Trouble;
use crate::admission::eligibility::AllowList;
use crate::protocol::ActivityId;
use crate::store::StoreError;
use crate::store::allow_lists::{AllowListStore, Changed, ListChange, ListState, WholeList};
use crate::store::watched;

/// Between two looks.
const INTERVAL: Duration = Duration::from_millis(200);

/// What a list in force was made from.
#[derive(Clone, Copy, Debug, Default)]
struct Made {
    /// As the store said.
    from: ListState,
    /// Members that are no users.
    others: u64,
    /// The store does not hold it any more; changes that were made since then are applied nevertheless.
    is_lost: bool,
}

impl Made {
    /// What follows from a change to a list in force.
    fn after(&mut self, change: &ListChange, in_force: &AllowList) -> Option<AllowList> {
        let known = self.from.version;
        if change.after.version <= known {
            return None;
        }
        // Changes of a list follow one another: who made this one had not what is known here.
        let is_without_ours = change.before < known;
        match &change.what {
            Changed::Whole { known: Some(theirs) } if *theirs < known => self.is_lost |= is_without_ours,
            // Read as a whole, then.
            Changed::Whole { .. } => self.is_lost = false,
            Changed::Users { users, is_in } => {
                self.is_lost |= is_without_ours;
                let is_next = change.before == known && !self.is_lost;
                if is_next {
                    self.from = change.after;
                }
                return (is_next || self.is_lost).then(|| in_force.with(users, *is_in));
            }
        }
        None
    }
}

/// Reads every list before the port opens, and has them followed.
pub(super) async fn start<S: AllowListStore>(
    core: &Arc<Core>,
    store: &Arc<S>,
) -> Result<AbortHandle, StoreError> {
    let mut follower = Follower::new();
    follower.look(core, store.as_ref(), &core.counters.sheet()).await?;
    let (core, store, mut first) = (Arc::clone(core), Arc::clone(store), Some(follower));
    // Begun anew it knows of no list: all are read.
    let begin = move || first.take().unwrap_or_else(Follower::new).run(Arc::clone(&core), Arc::clone(&store));
    Ok(tokio::spawn(watched::restarted("following the allow-lists", begin)).abort_handle())
}

/// Follows them.
#[derive(Debug)]
struct Follower {
    made: HashMap<ActivityId, Made>,
    /// Those of which the store holds nothing, and that were told.
    absent: BTreeSet<ActivityId>,
    /// With single lists.
    unread: Trouble,
}

/// One list, as a look finds it.
#[derive(Clone, Copy, Debug)]
struct Found<'a> {
    activity: ActivityId,
    list: &'a ListInForce,
    state: ListState,
    /// The store says less than was known before the look.
    went_back: bool,
}

impl Follower {
    fn new() -> Self {
        let unread = Trouble::new("an allow-list cannot be read; what is known of it stays in force");
        Self { made: HashMap::new(), absent: BTreeSet::new(), unread }
    }

    /// Runs until the gateway stops it.
    async fn run<S: AllowListStore>(mut self, core: Arc<Core>, store: Arc<S>) {
        let sheet = core.counters.sheet();
        let mut trouble = Trouble::new("allow-lists cannot be read; those known last are in force");
        loop {
            // At once where a list is new; the others at the next look.
            let _ = tokio::time::timeout(INTERVAL, core.allow_lists.one_is_new()).await;
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
        let lists: BTreeMap<ActivityId, Arc<ListInForce>> = core.allow_lists.followed().into_iter().collect();
        self.made.retain(|activity, _| lists.contains_key(activity));
        self.absent.retain(|activity| lists.contains_key(activity));
        if lists.is_empty() {
            return Ok(());
        }
        let activities: Vec<ActivityId> = lists.keys().copied().collect();
        let states = store.list_states(&activities).await?;
        let known = |activity| self.made.get(activity).map(|made| made.from.version);
        let known: Vec<Option<u64>> = activities.iter().map(known).collect();
        let mut wrong = None;
        let went_on = known.iter().zip(&states).filter_map(|(known, state)| {
            let version = state.as_ref().ok()?.version;
            known.filter(|known| *known < version)
        });
        if let Some(after) = went_on.min() {
            // Without the changes lists are read as a whole.
            keep_wrong(&mut wrong, self.apply_changes(store, after, &lists).await)?;
        }
        let mut lost = Vec::new();
        for (((activity, list), state), known) in lists.iter().zip(states).zip(known) {
            let Some(state) = keep_wrong(&mut wrong, state)? else { continue };
            let went_back = known.is_some_and(|known| known > state.version);
            let found = Found { activity: *activity, list, state, went_back };
            if self.is_lost(store, found) {
                lost.push(found);
            } else {
                keep_wrong(&mut wrong, self.bring_up_to_date(store, found, sheet).await)?;
            }
        }
        // Behind all that is read: nobody waits for that.
        for found in lost {
            keep_wrong(&mut wrong, self.give_back(store, found, sheet).await)?;
        }
        match wrong {
            Some(error) => self.unread.happened(&error),
            None => self.unread.over(),
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
                let made = self.made.get_mut(&change.activity);
                let Some((list, made)) = lists.get(&change.activity).zip(made) else { continue };
                let Some(in_force) = list.get() else { continue };
                if let Some(changed) = made.after(&change, &in_force) {
                    list.set(Some(changed));
                }
            }
        }
    }

    /// Whether the store has to be given back what is known here. What somebody's hand has filled without a version since
    /// then is taken as it is.
    fn is_lost<S: AllowListStore>(
        &self,
        store: &S,
        Found { activity, state, went_back, .. }: Found<'_>,
    ) -> bool {
        let is_by_hand = state.version == 0 && state.users > 0;
        let Some(made) = self.made.get(&activity) else { return false };
        store.may_lose() && (made.is_lost || went_back && !is_by_hand)
    }

    /// Puts what is known here in the place of what a store has left of it. Where that does not stand as it did any more,
    /// the next look tells.
    async fn give_back<S: AllowListStore>(
        &mut self,
        store: &S,
        Found { activity, list, state, .. }: Found<'_>,
        sheet: &Sheet,
    ) -> Result<(), StoreError> {
        let (Some(made), Some(in_force)) = (self.made.get_mut(&activity), list.get()) else { return Ok(()) };
        let users = in_force.users();
        let whole = WholeList { users: &users, known: Some(made.from.version) };
        if let Some(from) = store.put_list(activity, state, whole).await? {
            *made = Made { from, ..Made::default() };
            let (had, has) = (state.users, from.users);
            tracing::warn!(%activity, had, has, "the store had lost an allow-list, or changes of it; it was put back");
            sheet.event(Event::ListRestored, 1);
        }
        Ok(())
    }

    /// Reads a list as a whole unless it is what the store says.
    async fn bring_up_to_date<S: AllowListStore>(
        &mut self,
        store: &S,
        Found { activity, list, state, went_back }: Found<'_>,
        sheet: &Sheet,
    ) -> Result<(), StoreError> {
        if let (Some(made), Some(in_force)) = (self.made.get(&activity), list.get()) {
            let members = count(in_force.len()).saturating_add(made.others);
            // Or changes were applied that came after it was asked how it stands.
            let is_as_said = made.from.version > state.version || members == state.users;
            if !went_back && made.from.version >= state.version && is_as_said {
                return Ok(());
            }
        }
        if store.may_lose() && state == ListState::default() {
            list.set(None);
            self.made.remove(&activity);
            if self.absent.insert(activity) {
                tracing::warn!(
                    %activity,
                    "the store holds no allow-list of this activity: everybody is told to try again until \
                     somebody is let in (rushgate activity allow import), or it asks for none (activity set)"
                );
            }
            return Ok(());
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
        list.set(Some(users));
        self.absent.remove(&activity);
        self.made.insert(activity, Made { from: state, others, is_lost: false });
        sheet.event(Event::ListRead, 1);
        Ok(())
    }
}

/// Goes on where a single list is wrong, and keeps why; not where the store is away.
fn keep_wrong<T>(
    wrong: &mut Option<StoreError>,
    outcome: Result<T, StoreError>,
) -> Result<Option<T>, StoreError> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(error @ StoreError::Corrupt(_)) => {
            *wrong = Some(error);
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn count(users: usize) -> u64 {
    u64::try_from(users).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::protocol::UserId;

    const ACTIVITY: ActivityId = ActivityId(7);

    fn users(ids: &[u64]) -> Vec<UserId> {
        ids.iter().copied().map(UserId).collect()
    }

    fn change(before: u64, version: u64, what: Changed) -> ListChange {
        ListChange { activity: ACTIVITY, before, after: ListState { version, users: 9 }, what }
    }

    fn came(before: u64, version: u64, id: u64) -> ListChange {
        change(before, version, Changed::Users { users: users(&[id]), is_in: true })
    }

    fn went(before: u64, version: u64, id: u64) -> ListChange {
        change(before, version, Changed::Users { users: users(&[id]), is_in: false })
    }

    fn put(before: u64, version: u64, known: Option<u64>) -> ListChange {
        change(before, version, Changed::Whole { known })
    }

    /// What becomes of a list of 1 and 2, known as of version 10: version, whether it is lost, who is in it.
    fn after(changes: &[ListChange]) -> (u64, bool, Vec<u64>) {
        let mut made = Made { from: ListState { version: 10, users: 2 }, ..Made::default() };
        let mut list = AllowList::of(users(&[1, 2]));
        // A look that could not give it back finds them once more.
        for change in changes.iter().chain(changes) {
            list = made.after(change, &list).unwrap_or(list);
        }
        (made.from.version, made.is_lost, list.users().into_iter().map(|user| user.0).collect())
    }

    #[test]
    fn changes_are_applied_that_follow_one_another() {
        assert_eq!(after(&[]), (10, false, vec![1, 2]));
        assert_eq!(after(&[came(3, 9, 5), came(9, 10, 6)]), (10, false, vec![1, 2]), "they are known");
        assert_eq!(after(&[came(10, 11, 3), went(11, 15, 1)]), (15, false, vec![2, 3]));
        // One is missing: it has to be read as a whole.
        assert_eq!(after(&[came(10, 11, 3), went(12, 15, 1)]), (11, false, vec![1, 2, 3]));
    }

    #[test]
    fn what_was_changed_by_whoever_had_not_the_list_is_applied_to_it_and_does_not_replace_it() {
        assert_eq!(after(&[came(0, 20, 3)]), (10, true, vec![1, 2, 3]));
        assert_eq!(after(&[came(9, 20, 3), went(20, 21, 1), came(21, 22, 4)]), (10, true, vec![2, 3, 4]));
    }

    #[test]
    fn a_list_that_was_put_back_is_given_back_once_more_only_by_who_knew_more_of_it() {
        for known in [10, 11] {
            assert_eq!(after(&[put(0, 20, Some(known))]), (10, false, vec![1, 2]), "as much is there");
            assert!(!after(&[came(0, 19, 3), put(19, 20, Some(known)), came(20, 21, 4)]).1);
        }
        assert_eq!(after(&[put(0, 20, Some(9))]), (10, true, vec![1, 2]));
        assert_eq!(after(&[put(0, 20, Some(9)), came(20, 21, 3)]), (10, true, vec![1, 2, 3]));
        assert_eq!(after(&[put(0, 20, Some(9)), put(20, 21, Some(10))]), (10, false, vec![1, 2]));
        assert_eq!(after(&[put(10, 20, Some(9))]), (10, false, vec![1, 2]), "by whoever had ours");
        // What an operator puts there is what he wants.
        assert_eq!(after(&[put(0, 20, None)]), (10, false, vec![1, 2]));
        assert!(!after(&[came(0, 19, 3), put(19, 20, None)]).1);
    }
}

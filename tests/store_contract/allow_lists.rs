//! What every store of allow-lists does, whoever changes them.

use rushgate::protocol::{ActivityId, UserId};
use rushgate::store::allow_lists::{AllowListEditor, AllowListStore, ListState, USERS_PER_CHANGE_MAX};

pub fn users(ids: impl IntoIterator<Item = u64>) -> Vec<UserId> {
    ids.into_iter().map(UserId).collect()
}

pub async fn state<S: AllowListStore>(store: &S, activity: ActivityId) -> ListState {
    states(store, &[activity]).await[0]
}

pub async fn states<S: AllowListStore>(store: &S, activities: &[ActivityId]) -> Vec<ListState> {
    store.list_states(activities).await.unwrap().into_iter().map(Result::unwrap).collect()
}

async fn listed<S: AllowListStore>(store: &S, activity: ActivityId) -> Vec<u64> {
    let mut listed = store.listed(activity).await.unwrap();
    listed.users.sort_unstable();
    assert_eq!(listed.others, 0);
    listed.users.iter().map(|user| user.0).collect()
}

/// `store` is read by whoever serves, `editor` is an operator's.
pub async fn lists_are_sets_whose_version_rises<S: AllowListStore, E: AllowListEditor>(
    store: &S,
    editor: &E,
) {
    let (one, other) = (ActivityId(7), ActivityId(u32::MAX));
    assert_eq!(states(store, &[one, other]).await, [ListState::default(); 2]);
    assert!(listed(store, one).await.is_empty());
    assert_eq!(states(store, &[]).await, []);

    let great = UserId::MAX;
    assert_eq!(editor.change_list(one, &users([5, 2, great, 5]), true).await.unwrap(), 3);
    let first = state(store, one).await;
    assert_eq!((listed(store, one).await, first.users), (vec![2, 5, great], 3));
    // Again, and partly: only what is new counts, and nothing new is no change.
    assert_eq!(editor.change_list(one, &users([2, 5]), true).await.unwrap(), 0);
    assert_eq!(state(store, one).await, first);
    assert_eq!(editor.change_list(one, &users([5, 6]), true).await.unwrap(), 1);
    let second = state(store, one).await;
    assert!(second.version > first.version && second.users == 4, "{first:?} {second:?}");
    assert_eq!(editor.change_list(one, &users([2, 9]), false).await.unwrap(), 1);
    let third = state(store, one).await;
    assert!(third.version > second.version && third.users == 3);
    assert_eq!(listed(store, one).await, [5, 6, great]);
    assert_eq!(state(store, other).await, ListState::default(), "another activity's list is another");
    assert_eq!(editor.change_list(one, &[], true).await.unwrap(), 0);

    // Out again, and in again: the version goes on.
    assert_eq!(editor.change_list(one, &users([5, 6, great]), false).await.unwrap(), 3);
    let empty = state(store, one).await;
    assert!(empty.version > third.version && empty.users == 0);
    let many = users(1..=USERS_PER_CHANGE_MAX as u64);
    assert_eq!(editor.change_list(other, &many, true).await.unwrap(), many.len() as u64);
    assert_eq!(listed(store, other).await.len(), many.len());
    assert_eq!(states(store, &[other, one]).await[1], empty, "in the order asked for");
}

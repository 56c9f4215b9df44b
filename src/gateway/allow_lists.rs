//! The allow-lists that the gateway judges by.
//!
//! Connections read the list in force, without a lock and without waiting; `allow_list_follower` brings the lists of what is
//! on sale up to date. One that was not read yet is nobody's: see `eligibility`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwapOption;
use tokio::sync::Notify;

use crate::admission::eligibility::AllowList;
use crate::protocol::{ActivityId, UserId};

/// One activity's list.
#[derive(Debug, Default)]
pub(super) struct ListInForce(ArcSwapOption<AllowList>);

impl ListInForce {
    /// Whether the user is in it; `None` until it was read.
    pub(super) fn contains(&self, user: UserId) -> Option<bool> {
        self.0.load().as_ref().map(|list| list.contains(user))
    }

    pub(super) fn get(&self) -> Option<Arc<AllowList>> {
        self.0.load_full()
    }

    /// Puts one in force; `None`: nobody knows who is in it.
    pub(super) fn set(&self, list: Option<AllowList>) {
        self.0.store(list.map(Arc::new));
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

    /// Returns when one was asked for that had not been.
    pub(super) async fn one_is_new(&self) {
        self.asked.notified().await;
    }

    /// Those that anybody may still look at.
    pub(super) fn followed(&self) -> Vec<(ActivityId, Arc<ListInForce>)> {
        let mut lists = self.lists();
        // Nobody but this map holds one of an activity that is not on sale any more.
        lists.retain(|_, list| Arc::strong_count(list) > 1);
        lists.iter().map(|(activity, list)| (*activity, Arc::clone(list))).collect()
    }

    fn lists(&self) -> MutexGuard<'_, BTreeMap<ActivityId, Arc<ListInForce>>> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

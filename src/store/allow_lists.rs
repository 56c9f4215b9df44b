//! Where allow-lists are kept: for each activity the users that it lets in.
//!
//! A store knows nothing of what a list means. Every method may be called from any task. A change is a group of users that
//! come in or go out together; changing once more what is so already changes nothing, so that whatever fails is done
//! again. How a list stands is told by a version, which rises with every change, and by how many users are in it: who
//! puts one in by hand, without a version, is noticed by the number.

use std::future::Future;

use super::StoreError;
use crate::protocol::{ActivityId, UserId};

/// Users in one change.
pub const USERS_PER_CHANGE_MAX: usize = 1000;

/// How a list stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListState {
    /// Of its last change; 0 when there never was one, or the store has lost everything of it.
    pub version: u64,
    /// How many are in it.
    pub users: u64,
}

/// What stands in a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// Users, in any order; one may come twice.
    pub users: Vec<UserId>,
    /// Members that are no users, by somebody's hand; they count as members and let nobody in.
    pub others: u64,
}

/// A change that a store remembers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListChange {
    /// Whose list.
    pub activity: ActivityId,
    /// How the list stood before.
    pub before: u64,
    /// How it stood then.
    pub after: ListState,
    /// Whether the users came in, or went out.
    pub is_in: bool,
    /// Who.
    pub users: Vec<UserId>,
}

/// A store of allow-lists, as those read it who obey them.
pub trait AllowListStore: Send + Sync + 'static {
    /// How these lists stand, in their order. Cheap: asked several times a second.
    fn list_states(
        &self,
        activities: &[ActivityId],
    ) -> impl Future<Output = Result<Vec<ListState>, StoreError>> + Send;

    /// Every user of a list. Not of one instant where it changes meanwhile: who came in or went out since
    /// [`list_states`](Self::list_states) was asked may be there or not, and stands in a change.
    fn listed(&self, activity: ActivityId) -> impl Future<Output = Result<Listed, StoreError>> + Send;

    /// Changes of all lists after a version, oldest first, some at a time; none also when they are not remembered.
    fn list_changes(&self, after: u64) -> impl Future<Output = Result<Vec<ListChange>, StoreError>> + Send {
        let _ = after;
        std::future::ready(Ok(Vec::new()))
    }

    /// Gives a list back to a store that has lost everything of it. False: this store loses nothing, and what it says
    /// is what is.
    fn restore_list(
        &self,
        activity: ActivityId,
        users: &[UserId],
    ) -> impl Future<Output = Result<bool, StoreError>> + Send {
        let _ = (activity, users);
        std::future::ready(Ok(false))
    }
}

/// A store of allow-lists, as operators change it.
pub trait AllowListEditor: AllowListStore {
    /// Lets users in or takes them out, [`USERS_PER_CHANGE_MAX`] at most; for how many that was a change.
    fn change_list(
        &self,
        activity: ActivityId,
        users: &[UserId],
        is_in: bool,
    ) -> impl Future<Output = Result<u64, StoreError>> + Send;
}

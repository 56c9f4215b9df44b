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

/// What was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    /// Users came in, or went out.
    Users {
        /// Who.
        users: Vec<UserId>,
        /// Whether they came in.
        is_in: bool,
    },
    /// A whole list was put in the place of what stood there, by somebody who had known it under this version; `None`: by
    /// an operator.
    Whole {
        /// See above.
        known: Option<u64>,
    },
}

/// A change that a store remembers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListChange {
    /// Whose list.
    pub activity: ActivityId,
    /// The version of the list on which it was made.
    pub before: u64,
    /// How it stood then.
    pub after: ListState,
    /// What it was.
    pub what: Changed,
}

/// A list to be put in place as a whole.
#[derive(Clone, Copy, Debug)]
pub struct WholeList<'a> {
    /// Each user once.
    pub users: &'a [UserId],
    /// The version under which the caller has known it; `None`: he is an operator, and it is new.
    pub known: Option<u64>,
}

/// A store of allow-lists, as those read it who obey them.
pub trait AllowListStore: Send + Sync + 'static {
    /// How these lists stand, in their order; one that cannot be told hides no other. Cheap: asked several times a second.
    fn list_states(
        &self,
        activities: &[ActivityId],
    ) -> impl Future<Output = Result<Vec<Result<ListState, StoreError>>, StoreError>> + Send;

    /// Every user of a list. Not of one instant where it changes meanwhile: who came in or went out since
    /// [`list_states`](Self::list_states) was asked may be there or not, and stands in a change.
    fn listed(&self, activity: ActivityId) -> impl Future<Output = Result<Listed, StoreError>> + Send;

    /// Changes of all lists after a version, oldest first, some at a time; none also when they are not remembered.
    fn list_changes(&self, after: u64) -> impl Future<Output = Result<Vec<ListChange>, StoreError>> + Send {
        let _ = after;
        std::future::ready(Ok(Vec::new()))
    }

    /// Whether this store may have lost what it held and not know of it. A list of which it holds nothing at all is not an
    /// empty one then.
    fn may_lose(&self) -> bool {
        false
    }

    /// Puts a whole list in the place of what stands there, at once: nobody ever sees a part of it. How it stands then;
    /// `None`: nothing was done, because the list does not stand as it was `seen` any more, or because this store takes
    /// no whole lists.
    fn put_list(
        &self,
        activity: ActivityId,
        seen: ListState,
        whole: WholeList<'_>,
    ) -> impl Future<Output = Result<Option<ListState>, StoreError>> + Send {
        let _ = (activity, seen, whole);
        std::future::ready(Ok(None))
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

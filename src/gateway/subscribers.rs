//! Subscribers: which connections want to hear of a user's orders.
//!
//! An app connection subscribes its user at AUTH and leaves at its end. A service connection subscribes a user
//! when it is told of an order of his there is, or may be; winners are few, and so are doubts. Nothing keeps a
//! connection alive here: what is gone is dropped when the user subscribes anew.

use std::sync::{Arc, Weak};

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use dashmap::mapref::one::RefMut;
use foldhash::fast::RandomState;

use super::peer::Peer;
use super::post::Round;
use crate::protocol::{Order, UserId};

/// Connections per user; more than this many hear nothing (RESULT is the truth).
const PER_USER_MAX: usize = 16;

#[derive(Debug)]
struct Subscription {
    peer: Weak<Peer>,
    names_user: bool,
}

impl Subscription {
    fn of(peer: &Arc<Peer>, names_user: bool) -> Self {
        Self { peer: Arc::downgrade(peer), names_user }
    }

    fn is_of(&self, peer: &Arc<Peer>) -> bool {
        std::ptr::eq(self.peer.as_ptr(), Arc::as_ptr(peer))
    }
}

/// A user's subscriptions. Nearly all have one, which needs no memory of its own.
#[derive(Debug)]
enum Subscriptions {
    One(Subscription),
    Several(Vec<Subscription>),
}

impl Subscriptions {
    fn iter(&self) -> impl Iterator<Item = &Subscription> {
        match self {
            Self::One(only) => std::slice::from_ref(only),
            Self::Several(several) => several.as_slice(),
        }
        .iter()
    }

    /// Pushes an order to all of them; to how many it was handed.
    fn push(&self, user: UserId, order: Order, round: &mut Round) -> u64 {
        let mut pushed: u64 = 0;
        for subscription in self.iter() {
            if let Some(peer) = subscription.peer.upgrade() {
                let handed = peer.push(subscription.names_user.then_some(user), order, round);
                pushed = pushed.saturating_add(u64::from(handed));
            }
        }
        pushed
    }

    /// Adds a connection that is not there, unless too many are; those that are gone make room.
    fn add(self, new: Subscription) -> Self {
        let mut several = match self {
            Self::One(only) => vec![only],
            Self::Several(several) => several,
        };
        several.retain(|known| known.peer.strong_count() > 0);
        if several.len() < PER_USER_MAX {
            several.push(new);
        }
        match several.len() {
            1 => several.pop().map_or(Self::Several(several), Self::One),
            _ => Self::Several(several),
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Subscribers {
    by_user: DashMap<UserId, Subscriptions, RandomState>,
}

impl Subscribers {
    /// `names_user`: whether pushes name the user, as they do on service connections.
    pub(super) fn subscribe(&self, user: UserId, peer: &Arc<Peer>, names_user: bool) {
        drop(self.subscribed(user, peer, names_user));
    }

    /// Subscribes a service connection and pushes the order, in one look.
    pub(super) fn subscribe_and_push(
        &self,
        user: UserId,
        peer: &Arc<Peer>,
        order: Order,
        round: &mut Round,
    ) -> u64 {
        self.subscribed(user, peer, true).push(user, order, round)
    }

    fn subscribed(
        &self,
        user: UserId,
        peer: &Arc<Peer>,
        names_user: bool,
    ) -> RefMut<'_, UserId, Subscriptions> {
        match self.by_user.entry(user) {
            // A back end that asks again for the same user: nothing is made anew.
            Entry::Occupied(occupied) if occupied.get().iter().any(|known| known.is_of(peer)) => {
                occupied.into_ref()
            }
            Entry::Vacant(vacant) => vacant.insert(Subscriptions::One(Subscription::of(peer, names_user))),
            Entry::Occupied(occupied) => {
                let mut subscriptions = occupied.into_ref();
                let known = std::mem::replace(&mut *subscriptions, Subscriptions::Several(Vec::new()));
                *subscriptions = known.add(Subscription::of(peer, names_user));
                subscriptions
            }
        }
    }

    /// The connection of this user ends.
    pub(super) fn leave(&self, user: UserId, peer: &Arc<Peer>) {
        self.by_user.remove_if_mut(&user, |_, subscriptions| match subscriptions {
            Subscriptions::One(only) => only.is_of(peer),
            Subscriptions::Several(several) => {
                several.retain(|known| !known.is_of(peer));
                several.is_empty()
            }
        });
    }

    /// Pushes an order to all of the user's connections; to how many it was handed.
    pub(super) fn push(&self, user: UserId, order: Order, round: &mut Round) -> u64 {
        self.by_user.get(&user).map_or(0, |subscriptions| subscriptions.push(user, order, round))
    }
}

//! Subscribers: which connections want to hear of a user's orders.
//!
//! An app connection subscribes its user at AUTH and leaves at its end. A service connection subscribes a user
//! when it is told of an order of his there is, or may be; winners are few, and so are doubts. Nothing keeps a
//! connection alive here: what is gone is dropped when the user subscribes anew.

use std::sync::{Arc, Weak};

use dashmap::DashMap;

use super::peer::Peer;
use crate::protocol::{Order, UserId};

/// Connections per user; more than this many hear nothing (RESULT is the truth).
const PER_USER_MAX: usize = 16;

#[derive(Debug)]
struct Subscription {
    peer: Weak<Peer>,
    names_user: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Subscribers {
    by_user: DashMap<UserId, Vec<Subscription>>,
}

impl Subscribers {
    /// `names_user`: whether pushes name the user, as they do on service connections.
    pub(super) fn subscribe(&self, user: UserId, peer: &Arc<Peer>, names_user: bool) {
        let mut subscriptions = self.by_user.entry(user).or_default();
        subscriptions.retain(|subscription| subscription.peer.strong_count() > 0);
        let known = subscriptions.iter().any(|known| std::ptr::eq(known.peer.as_ptr(), Arc::as_ptr(peer)));
        if !known && subscriptions.len() < PER_USER_MAX {
            subscriptions.push(Subscription { peer: Arc::downgrade(peer), names_user });
        }
    }

    /// The connection of this user ends.
    pub(super) fn leave(&self, user: UserId, peer: &Arc<Peer>) {
        if let Some(mut subscriptions) = self.by_user.get_mut(&user) {
            subscriptions.retain(|known| !std::ptr::eq(known.peer.as_ptr(), Arc::as_ptr(peer)));
        }
        self.by_user.remove_if(&user, |_, subscriptions| subscriptions.is_empty());
    }

    /// Pushes an order to all of the user's connections; to how many it was handed.
    pub(super) fn push(&self, user: UserId, order: Order) -> u64 {
        let Some(subscriptions) = self.by_user.get(&user) else { return 0 };
        let mut pushed: u64 = 0;
        for subscription in subscriptions.iter() {
            if let Some(peer) = subscription.peer.upgrade() {
                let handed = peer.push(subscription.names_user.then_some(user), order);
                pushed = pushed.saturating_add(u64::from(handed));
            }
        }
        pushed
    }
}

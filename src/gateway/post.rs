//! The post of a worker: the connections for which other threads have left something.
//!
//! Other threads put connections in; a task of the worker takes all of them out and wakes them on its own thread. So
//! a batch of outcomes wakes a sleeping worker once, not once per outcome. Nothing is lost: a connection is put in
//! after its outbox was filled, and it looks into its outbox whenever it is woken.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use super::peer::Peer;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Post {
    waiting: Mutex<Vec<Arc<Peer>>>,
    arrived: Notify,
    /// Nobody delivers.
    is_shut: bool,
}

impl Post {
    /// For connections that look into their outbox unasked. What waited here would keep them for ever.
    pub(super) fn shut() -> Self {
        Self { is_shut: true, ..Self::default() }
    }

    /// Something was left for this connection.
    pub(super) fn put(&self, peer: Arc<Peer>) {
        if self.is_shut {
            return;
        }
        let was_empty = {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.push(peer);
            waiting.len() == 1
        };
        // The others of the batch are taken out together with the first.
        if was_empty {
            self.arrived.notify_one();
        }
    }

    /// Wakes connections for ever; a task of the worker.
    pub(super) async fn deliver(&self) {
        let mut taken = Vec::new();
        loop {
            self.arrived.notified().await;
            std::mem::swap(&mut taken, &mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
            taken.drain(..).for_each(|peer| peer.wake());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use bytes::BytesMut;

    use super::*;
    use crate::protocol::{Reply, Status};

    #[test]
    fn a_shut_post_keeps_nobody_and_his_mail_is_there_all_the_same() {
        let post = Arc::new(Post::shut());
        let peer = Arc::new(Peer::new(1, IpAddr::V4(Ipv4Addr::LOCALHOST), 1024, Arc::clone(&post)));
        peer.begin();
        peer.answer(7, Status::SoldOut, 0, &Reply::Empty);
        assert_eq!((Arc::strong_count(&peer), peer.in_flight()), (1, 0));
        let mut mail = BytesMut::new();
        peer.take_mail(&mut mail);
        assert_eq!(mail.len(), 24);
    }
}

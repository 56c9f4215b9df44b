//! Users who hold further connections that only listen: another device, on another gateway.
//!
//! Such a user has one connection to each of several gateways besides the one that he buys on. What is pushed on all
//! of them was also pushed where he did not buy, whichever gateway that was. Run by the user's task; a connection that
//! cannot be made, or breaks, hears nothing and fails nobody.

use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{Instant, timeout_at};

use super::history::{Event, Listening};
use super::plan::Part;
use super::stage::Stage;
use crate::client::{Client, Push};
use crate::protocol::Reply;

/// Pushes a connection may be behind.
const PUSHES_MAX: usize = 8;

/// One user's listening connections.
pub(super) struct Listeners {
    open: Vec<(Client, mpsc::Receiver<Push>)>,
    /// How many users listen at a time is bounded.
    #[allow(dead_code, reason = "held until the connections are closed")]
    permit: Option<OwnedSemaphorePermit>,
}

impl Listeners {
    /// Connects the user, if he is one who listens, and waits until the gateways know of him.
    pub(super) async fn open(stage: &Stage, part: &Part) -> Self {
        if !part.is_listening || stage.is_gone() {
            return Self { open: Vec::new(), permit: None };
        }
        let mut listeners = Self { open: Vec::new(), permit: stage.may_listen().await };
        let until = Instant::now().checked_add(stage.plan.push_wait).unwrap_or_else(Instant::now);
        for addr in &stage.plan.listen_addrs {
            let (pushes, pushed) = mpsc::channel(PUSHES_MAX);
            let client = stage.client_at(&[*addr], Some(part.user), pushes);
            if client.connected(until).await.is_ok() {
                listeners.open.push((client, pushed));
            }
        }
        listeners
    }

    /// Waits for the push of the user's order on every connection, as long as the plan says; then closes them.
    pub(super) async fn hear(mut self, stage: &Stage, task: usize, events: &mut Vec<Event>) -> Listening {
        let mut listening = Listening::default();
        let until = Instant::now().checked_add(stage.plan.push_wait).unwrap_or_else(Instant::now);
        for (_, pushed) in &mut self.open {
            listening.connections = listening.connections.saturating_add(1);
            while let Ok(Some(push)) = timeout_at(until, pushed.recv()).await {
                let Reply::Order(order) = &push.reply else { continue };
                if order.sku.activity == stage.plan.activity {
                    events.push(stage.recorder.record_push(task, push.status, order, push.received_at));
                    listening.heard = listening.heard.saturating_add(1);
                    break;
                }
            }
        }
        self.close().await;
        listening
    }

    /// Closes them.
    pub(super) async fn close(self) {
        for (client, _) in self.open {
            client.close().await;
        }
    }
}

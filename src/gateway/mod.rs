//! The gateway: connections, the funnel that every BUY climbs, and the task that sells.
//!
//! Threads: one worker per core, each with its own runtime, its own listeners on the shared ports and its own
//! connections. Tasks on the caller's runtime: the stock task, one that follows the catalogue, one that follows the
//! switches, one that follows the risk lists, one that writes flags into them, one that has devices counted, if anybody
//! wants that, one that follows the allow-lists, one that shares limits with the other gateways of the store, one that
//! forgets idle limiter keys. Threads that follow the file with token keys and the
//! files of TLS, where there are such.
//! [`Gateway::start`] binds and opens only when every shard is known; [`Gateway::drain`] ends it without
//! losing an answer. The gateway is stateless: kill it any time, what it said QUEUED to stands in the store.

mod allow_list_follower;
mod allow_lists;
mod arrival;
mod ask;
mod auth;
mod cancel_rung;
mod cancels;
mod catalogue;
mod clock;
mod conduct;
mod connection;
mod conversation;
mod counters;
mod deadlines;
mod delivery;
mod desk;
mod devices;
mod door;
mod eligibility;
mod explain;
mod file_stamp;
mod flags;
mod funnel;
mod greeting;
mod hello;
mod key_file;
mod life;
mod linger;
mod listener;
mod looks;
mod lookups;
mod named;
mod notices;
mod observed;
mod of_app;
mod on_sale;
mod peer;
mod ports;
mod post;
mod proxy;
mod proxy_header;
mod proxy_trouble;
mod queueing;
mod recoveries;
mod reply_parts;
mod reserve;
mod reserve_task;
mod risk;
mod risk_rung;
mod risk_status;
mod roster;
mod sale_clock;
mod session;
mod sessions;
mod settings;
mod slices;
mod stage;
mod start;
mod stock_task;
mod subscribers;
mod switches;
mod tasks;
mod tls;
mod trouble;
mod unpaid;
mod unpaid_rung;
mod view;
mod warm;
mod worker;
mod worker_thread;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use tokio::sync::{Notify, watch};

pub use conversation::Conversation;
pub use counters::{Counters, Ending, Event, PassedEnding, Rung};
pub use explain::LastBuy;
pub use ports::ListenError;
pub use risk_status::RiskStatus;
pub use settings::{LookupSettings, RiskSettings, Settings, TlsFiles, TlsSettings};
pub use slices::Sharing;
pub use start::{Gateway, StartError, TlsStatus};
pub use switches::Obeyed;
pub use tls::TlsError;
pub use worker_thread::worker_runtime;

use crate::admission::identity::{IdentityError, Verifier};
use crate::protocol::Status;

/// What all tasks of a gateway share.
#[derive(Debug)]
struct Core {
    settings: Settings,
    clock: clock::Clock,
    verifier: Verifier,
    funnel: funnel::Funnel,
    subscribers: subscribers::Subscribers,
    counters: Counters,
    conduct: conduct::Conduct,
    switches: switches::SwitchState,
    risk: risk::RiskState,
    allow_lists: allow_lists::AllowLists,
    sharing: slices::SharingState,
    sessions: sessions::Sessions,
    /// Where TLS is spoken.
    tls: Option<tls::Acceptor>,
    /// Connections open.
    connections: AtomicUsize,
    connection_closed: Notify,
    connection_ids: AtomicU64,
    /// True once nothing new is taken: read at every wake, so no lock stands before it.
    is_draining: AtomicBool,
    /// The same, for those who wait for it.
    draining: watch::Sender<bool>,
    /// True once it has ended: what is still connected is closed where it stands.
    stopped: watch::Sender<bool>,
}

impl Core {
    fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Acquire)
    }

    /// Nothing new is taken from now on.
    fn drain(&self) {
        self.is_draining.store(true, Ordering::Release);
        self.draining.send_replace(true);
    }

    fn is_stopped(&self) -> bool {
        *self.stopped.borrow()
    }

    fn next_connection_id(&self) -> u64 {
        self.connection_ids.fetch_add(1, Ordering::Relaxed).saturating_add(1)
    }
}

/// What AUTH answers to a token that was refused.
const fn token_status(error: IdentityError) -> Status {
    match error {
        IdentityError::Expired => Status::TokenExpired,
        _ => Status::BadToken,
    }
}

//! The real store behind a gate: while it is shut, calls and lookups of orders and of sessions wait outside and nothing of them
//! happens, as with a store that is slow or cut off. Feeds, snapshots, the catalogue and switches pass; feeds can be held
//! as well, so that the gateway knows that it does not hear of orders any more.

use std::time::Duration;

use rushgate::protocol::{ActivityId, UserId};
use rushgate::stock::calls::{Call, Mark, Reply, ShardId, Snapshot};
use rushgate::store::allow_lists::{AllowListStore, ListState, Listed};
use rushgate::store::cancels::{CancelStore, Cancelled};
use rushgate::store::catalog::{Activity, Catalogue, Ended};
use rushgate::store::devices::{CountBounds, DeviceCounts, DeviceStore, Sighting};
use rushgate::store::risk::{Change, Entry, Followed, NewEntry, NewFlag, Page, Removed, RiskStore};
use rushgate::store::sessions::{SessionKey, SessionStore, StoredSession};
use rushgate::store::slices::SliceStore;
use rushgate::store::sql::SqliteStore;
use rushgate::store::switches::{NewSwitch, SetSwitch, SwitchStore, Switches};
use rushgate::store::{FeedPositions, FeedRead, GatedStore, Registration, ReservationStore, StoreError};
use tokio::sync::watch;

pub(crate) struct Gated {
    store: SqliteStore,
    open: watch::Receiver<bool>,
    heard: watch::Receiver<bool>,
    torn: watch::Receiver<bool>,
    broken: watch::Receiver<bool>,
    arrived: watch::Sender<usize>,
}

pub(crate) struct Gate {
    open: watch::Sender<bool>,
    heard: watch::Sender<bool>,
    torn: watch::Sender<bool>,
    broken: watch::Sender<bool>,
    arrived: watch::Receiver<usize>,
}

impl Gate {
    pub(crate) fn shut(&self) {
        self.open.send_replace(false);
    }

    pub(crate) fn open(&self) {
        self.open.send_replace(true);
    }

    /// Whether feeds are heard.
    pub(crate) fn hear(&self, heard: bool) {
        self.heard.send_replace(heard);
    }

    /// From now on switches cannot be read.
    pub(crate) fn tear_switches(&self) {
        self.torn.send_replace(true);
    }

    /// Whether whoever looks something up, and has passed the gate, breaks off.
    pub(crate) fn break_lookups(&self, broken: bool) {
        self.broken.send_replace(broken);
    }

    /// Calls and lookups that came to the gate so far.
    pub(crate) fn arrived(&self) -> usize {
        *self.arrived.borrow()
    }
}

impl Gated {
    pub(crate) fn new(store: SqliteStore) -> (Self, Gate) {
        let (open, is_open) = watch::channel(true);
        let (arrived, seen) = watch::channel(0);
        let (heard, is_heard) = watch::channel(true);
        let (torn, is_torn) = watch::channel(false);
        let (broken, is_broken) = watch::channel(false);
        let gate = Gate { open, heard, torn, broken, arrived: seen };
        (Self { store, open: is_open, heard: is_heard, torn: is_torn, broken: is_broken, arrived }, gate)
    }

    async fn pass(&self) -> Result<(), StoreError> {
        self.arrived.send_modify(|arrived| *arrived += 1);
        wait_for(&self.open).await
    }

    async fn pass_to_look_up(&self) -> Result<(), StoreError> {
        self.pass().await?;
        assert!(!*self.broken.borrow(), "the test breaks lookups off");
        Ok(())
    }
}

async fn wait_for(open: &watch::Receiver<bool>) -> Result<(), StoreError> {
    match open.clone().wait_for(|open| *open).await {
        Ok(_) => Ok(()),
        Err(_) => Err(StoreError::Unavailable("the test ended".to_owned())),
    }
}

impl ReservationStore for Gated {
    async fn register(&self) -> Result<Registration, StoreError> {
        self.store.register().await
    }

    async fn call(&self, call: &Call) -> Result<Reply, StoreError> {
        self.pass().await?;
        self.store.call(call).await
    }

    async fn snapshot(&self, shard: ShardId) -> Result<Snapshot, StoreError> {
        self.store.snapshot(shard).await
    }

    async fn read_feeds(
        &self,
        after: &FeedPositions,
        wait: Duration,
    ) -> Result<Vec<(ShardId, FeedRead)>, StoreError> {
        wait_for(&self.heard).await?;
        self.store.read_feeds(after, wait).await
    }
}

impl SwitchStore for Gated {
    async fn switches(&self) -> Result<Switches, StoreError> {
        if *self.torn.borrow() {
            return Err(StoreError::Corrupt("the test tore the switches".to_owned()));
        }
        self.store.switches().await
    }

    async fn set_switch(&self, new: &NewSwitch) -> Result<u64, StoreError> {
        self.store.set_switch(new).await
    }

    async fn switch_changes(&self, after: u64, wait: Duration) -> Result<Vec<SetSwitch>, StoreError> {
        self.store.switch_changes(after, wait).await
    }
}

impl RiskStore for Gated {
    async fn risk_add(&self, entries: &[NewEntry]) -> Result<u64, StoreError> {
        self.store.risk_add(entries).await
    }

    async fn risk_flag(&self, flags: &[NewFlag]) -> Result<Vec<bool>, StoreError> {
        self.store.risk_flag(flags).await
    }

    async fn risk_remove(&self, subjects: &[String]) -> Result<Removed, StoreError> {
        self.store.risk_remove(subjects).await
    }

    async fn risk_find(&self, subjects: &[String]) -> Result<Vec<Entry>, StoreError> {
        self.store.risk_find(subjects).await
    }

    async fn risk_page(&self, cursor: Option<&str>) -> Result<Page<Entry>, StoreError> {
        self.store.risk_page(cursor).await
    }

    async fn risk_scan(&self, cursor: Option<&str>) -> Result<Page<Change>, StoreError> {
        self.store.risk_scan(cursor).await
    }

    async fn risk_version(&self) -> Result<u64, StoreError> {
        self.store.risk_version().await
    }

    async fn risk_changes(&self, after: u64, wait: Duration) -> Result<Followed, StoreError> {
        self.store.risk_changes(after, wait).await
    }
}

impl DeviceStore for Gated {
    async fn devices_seen(
        &self,
        sightings: &[Sighting],
        bounds: &CountBounds,
    ) -> Result<Vec<DeviceCounts>, StoreError> {
        self.pass().await?;
        self.store.devices_seen(sightings, bounds).await
    }
}

impl AllowListStore for Gated {
    async fn list_states(
        &self,
        activities: &[ActivityId],
    ) -> Result<Vec<Result<ListState, StoreError>>, StoreError> {
        self.store.list_states(activities).await
    }

    async fn listed(&self, activity: ActivityId) -> Result<Listed, StoreError> {
        self.store.listed(activity).await
    }
}

impl GatedStore for Gated {
    type Reserve = SqliteStore;
}

impl SliceStore for Gated {}

/// Through the gate.
impl CancelStore for Gated {
    async fn cancel(&self, user: UserId, mark: &Mark) -> Result<Cancelled, StoreError> {
        self.pass().await?;
        self.store.cancel(user, mark).await
    }
}

/// Through the gate.
impl SessionStore for Gated {
    async fn session(&self, key: &SessionKey) -> Result<Option<StoredSession>, StoreError> {
        self.pass_to_look_up().await?;
        self.store.session(key).await
    }
}

impl Catalogue for Gated {
    async fn version(&self) -> Result<u64, StoreError> {
        self.store.version().await
    }

    async fn activities(&self) -> Result<Vec<Activity>, StoreError> {
        self.store.activities().await
    }

    async fn ended(&self) -> Result<Vec<Ended>, StoreError> {
        self.store.ended().await
    }

    async fn order_of(&self, user: UserId, activity: ActivityId) -> Result<Option<Mark>, StoreError> {
        self.pass_to_look_up().await?;
        self.store.order_of(user, activity).await
    }

    async fn drive_loads(&self) -> Result<u64, StoreError> {
        self.store.drive_loads().await
    }
}

//! Which user came on which device, on its way to the store that counts them.
//!
//! A connection hands it over when its user has authenticated, a back end's with its requests, and never waits; one task
//! on the caller's runtime tells the store, many at a time and no more than so many a second, and flags what is too
//! many. Nobody is turned away here: a flag stands in the risk lists. While the store is away sightings wait, as many as
//! the queue holds; further ones are forgotten and counted, and told when the same user comes again.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::sleep;

use super::Core;
use super::clock::Now;
use super::counters::{Event, Sheet};
use super::trouble::Trouble;
use crate::admission::devices::{DeviceRules, Recent};
use crate::protocol::UserId;
use crate::store::StoreError;
use crate::store::devices::{CountBounds, DeviceStore, SIGHTINGS_MAX, Sighting};
use crate::store::watched;

/// The task, for people.
const WHAT: &str = "counting devices";
/// Sightings that wait for the store; each takes up to some 100 bytes.
const WAITING_MAX: usize = 131_072;
/// Between two steps: with [`SIGHTINGS_MAX`] of them each, at most 25,000 a second.
const PAUSE: Duration = Duration::from_millis(20);
/// After a failure.
const BACK_OFF: Duration = Duration::from_millis(100);

/// Where they are handed over. Nothing while devices are not counted.
#[derive(Debug)]
pub(super) struct Devices(Option<Counted>);

#[derive(Debug)]
struct Counted {
    recent: Recent,
    to_task: mpsc::Sender<Sighting>,
}

/// The task's side.
#[derive(Debug)]
pub(super) struct DeviceTask {
    rules: DeviceRules,
    waiting: mpsc::Receiver<Sighting>,
}

/// Both sides; without rules neither has anything to do.
pub(super) fn new(rules: DeviceRules) -> (Devices, Option<DeviceTask>) {
    if !rules.is_on() {
        return (Devices(None), None);
    }
    let (to_task, waiting) = mpsc::channel(WAITING_MAX);
    let recent = Recent::new(rules.count_again_after());
    (Devices(Some(Counted { recent, to_task })), Some(DeviceTask { rules, waiting }))
}

impl Devices {
    /// A user has authenticated on a device, or a back end has named one with a request of his that passed the rates.
    pub(super) fn seen(&self, now: Now, device: &str, user: UserId, sheet: &Sheet) {
        let Some(Counted { recent, to_task }) = &self.0 else { return };
        if !recent.is_due(now.mono_ms(), device, user) {
            return;
        }
        // Room first: while there is none, nothing is made of what a thousand requests a second tell.
        match to_task.try_reserve() {
            Ok(room) => {
                recent.counted(now.mono_ms(), device, user);
                room.send(Sighting { device: device.into(), user });
            }
            Err(_) => sheet.event(Event::DeviceForgotten, 1),
        }
    }
}

impl DeviceTask {
    /// Runs until the gateway stops it.
    pub(super) async fn run<S: DeviceStore>(mut self, core: Arc<Core>, store: Arc<S>) {
        let mut back_off = watched::BackOff::default();
        while watched::caught(WHAT, self.serve(&core, store.as_ref())).await.is_err() {
            back_off.wait(WHAT).await;
        }
    }

    async fn serve<S: DeviceStore>(&mut self, core: &Core, store: &S) {
        let sheet = core.counters.sheet();
        let DeviceRules { users_max, per_user_max, window, .. } = self.rules;
        let bounds = CountBounds { users_max, devices_max: per_user_max, window };
        let mut trouble = Trouble::new("devices cannot be counted");
        let mut sightings = Vec::with_capacity(SIGHTINGS_MAX);
        while self.waiting.recv_many(&mut sightings, SIGHTINGS_MAX).await > 0 {
            let told = u64::try_from(sightings.len()).unwrap_or(u64::MAX);
            let counts = loop {
                match store.devices_seen(&sightings, &bounds).await {
                    Ok(counts) => {
                        trouble.over();
                        sheet.event(Event::DeviceCounted, told);
                        break counts;
                    }
                    Err(error) => {
                        trouble.happened(&error);
                        sleep(BACK_OFF).await;
                        // What somebody has to mend is not waited for: those behind may be luckier.
                        if matches!(error, StoreError::Corrupt(_)) {
                            sheet.event(Event::DeviceForgotten, told);
                            break Vec::new();
                        }
                    }
                }
            };
            for (Sighting { device, user }, counts) in sightings.drain(..).zip(counts) {
                for flag in self.rules.judge(&device, user, counts.users, counts.devices) {
                    core.conduct.flags.raise(flag, &sheet);
                }
            }
            sleep(PAUSE).await;
        }
    }
}

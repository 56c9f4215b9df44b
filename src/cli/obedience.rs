//! The switches that a process obeys itself: what it logs, and, where it serves, when it drains.
//!
//! A serving process does what its gateway has read. A writer reads them itself, in a task that ends with the process;
//! while it cannot, what was obeyed last is obeyed on.

use std::time::{Duration, Instant};

use crate::admission::switches::{LogLevel, Switch, SwitchBoard};
use crate::gateway::{Gateway, Obeyed};
use crate::store::StoreError;
use crate::store::failures::{Failures, Say};
use crate::store::switches::SwitchStore;
use crate::store::watched;

use super::log::LogControl;

/// One wait for a change; then everything is read again.
const WAIT: Duration = Duration::from_secs(1);
/// After a failure.
const BACK_OFF: Duration = Duration::from_millis(500);

/// Follows what the gateway obeys until this gateway is to drain; who asked for that, and why.
pub(super) async fn until_drain(gateway: &Gateway, log: &LogControl) -> String {
    let mut switches = gateway.switches();
    let mut level = LogLevel::Default;
    loop {
        let obeyed = switches.borrow_and_update().clone();
        let wanted = obeyed.board.log_level();
        if wanted != level {
            level = wanted;
            log.set(level);
        }
        let number = gateway.process().0;
        if obeyed.board.drains(number) {
            return asked_by(&obeyed, number);
        }
        if switches.changed().await.is_err() {
            // The gateway is gone, and with it whoever would wait for this.
            std::future::pending::<()>().await;
        }
    }
}

fn asked_by(obeyed: &Obeyed, number: u32) -> String {
    let name = Switch::Drain(number, true).to_string();
    match obeyed.set.iter().find(|switch| switch.name == name) {
        Some(set) => format!("switch {name}, set by {}: {}", set.who, set.why),
        None => format!("switch {name}"),
    }
}

/// Makes a process that has no gateway log what the switch says.
pub(super) struct LogFollower<S> {
    store: S,
    log: LogControl,
    board: SwitchBoard,
    version: u64,
    failures: Failures,
}

impl<S: SwitchStore> LogFollower<S> {
    /// Reads it for the first time; a store that does not answer is asked again later.
    pub(super) async fn begin(store: S, log: LogControl) -> Self {
        let (board, failures) = (SwitchBoard::default(), Failures::default());
        let mut follower = Self { store, log, board, version: 0, failures };
        follower.read_again().await;
        follower
    }

    /// Runs until the process ends.
    pub(super) async fn run(mut self) {
        let (task, mut back_off) = ("following the switch log_level", watched::BackOff::default());
        while watched::caught(task, self.follow()).await.is_err() {
            back_off.wait(task).await;
        }
    }

    async fn follow(&mut self) {
        loop {
            // What came is read with all the others; a wait that fails is told of by the next reading.
            let began = Instant::now();
            let told = self.store.switch_changes(self.version, WAIT).await;
            let is_news = told.is_ok_and(|changes| !changes.is_empty());
            if !is_news && began.elapsed() < BACK_OFF {
                tokio::time::sleep(BACK_OFF).await;
            }
            self.read_again().await;
        }
    }

    async fn read_again(&mut self) {
        match self.read().await {
            Ok(board) => {
                if let Some(failures) = self.failures.succeeded() {
                    tracing::warn!(failures, "switches can be read again");
                }
                let level = board.log_level();
                if level != self.board.log_level() {
                    tracing::info!(level = level.name(), "the switch log_level is obeyed");
                    self.log.set(level);
                }
                self.board = board;
            }
            Err(error) => match self.failures.failed(Instant::now()) {
                Say::Nothing => {}
                Say::First => tracing::warn!(%error, "switches cannot be read; the one known last is obeyed"),
                Say::Summary(count) => tracing::warn!(%error, count, "switches still cannot be read"),
            },
        }
    }

    /// The switches; one that cannot be read is as it was.
    async fn read(&mut self) -> Result<SwitchBoard, StoreError> {
        let found = self.store.switches().await?;
        self.version = found.version();
        let set = found.set.iter().map(|switch| (switch.name.as_str(), Some(switch.value.as_str())));
        let unreadable = found.unreadable.iter().map(|name| (name.as_str(), None));
        Ok(SwitchBoard::read(set.chain(unreadable), &self.board).0)
    }
}

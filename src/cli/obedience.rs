//! The switches that a serving process obeys itself, beside those of its gateway: what it logs, and when it drains.

use crate::admission::switches::{LogLevel, Switch};
use crate::gateway::{Gateway, Obeyed};

use super::output::LogControl;

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

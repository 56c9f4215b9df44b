//! What the operators' port asks of a process, and what it is told: the [`Probe`] that every process that serves has, and
//! the views that it gives.
//!
//! Asked on the port's task; nothing here waits but for the store, where something is to be changed.

use std::future::Future;
use std::net::IpAddr;

use axum::body::Bytes;
use serde::{Deserialize, Serialize};

use super::risk::{RiskDone, RiskError, RiskRequest};
use super::switches::{SetDone, SetError, SetRequest, SwitchView};
use crate::payment::Answer;
use crate::protocol::UserId;

/// What a process tells of itself.
pub trait Probe: Send + Sync + 'static {
    /// Why it should not be sent clients; empty when it may.
    fn not_ready(&self) -> Vec<&'static str>;
    /// What is not as usual, though it works.
    fn notes(&self) -> Vec<&'static str> {
        Vec::new()
    }
    /// Its metrics, in the Prometheus text format 0.0.4.
    fn metrics(&self) -> String;
    /// The switches that it obeys; `None` where it obeys none, or is not there yet.
    fn switches(&self) -> Option<SwitchesView> {
        None
    }
    /// Sets a switch, for all that obey it; `None` as above.
    fn set_switch(
        &self,
        request: SetRequest,
    ) -> impl Future<Output = Option<Result<SetDone, SetError>>> + Send {
        let _ = request;
        std::future::ready(None)
    }
    /// How the risk lists that it goes by stand; `None` where it goes by none, or is not there yet.
    fn risk(&self) -> Option<RiskView> {
        None
    }
    /// Changes them, for all that go by them; `None` as above.
    fn change_risk(
        &self,
        request: RiskRequest,
    ) -> impl Future<Output = Option<Result<RiskDone, RiskError>>> + Send {
        let _ = request;
        std::future::ready(None)
    }
    /// Why somebody was turned away; `None` as above.
    fn explain(&self, asked: &Asked) -> Option<Explanation> {
        let _ = asked;
        None
    }
    /// Takes a payment notice; `None` where none are taken.
    fn payment_notice(&self, notice: SignedNotice) -> impl Future<Output = Option<Answer>> + Send {
        let _ = notice;
        std::future::ready(None)
    }
}

/// The switches that a process obeys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SwitchesView {
    /// Its number, as `drain/NUMBER` names it.
    pub gateway: u32,
    /// Of the last change that it obeys.
    pub version: u64,
    /// For how long the store has not confirmed it.
    pub age_ms: u64,
    /// By name.
    pub switches: Vec<SwitchView>,
}

/// How the risk lists stand in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RiskView {
    /// Its number.
    pub gateway: u32,
    /// Of the last change that is in force.
    pub version: u64,
    /// For how long the store has not confirmed it.
    pub age_ms: u64,
    /// Users listed; of each kind some whose time has passed may be counted.
    pub users: usize,
    /// Blocks of addresses listed.
    pub ips: usize,
    /// Devices listed.
    pub devices: usize,
}

/// Whom an explanation is about; at least one of these.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// The user.
    pub user: Option<UserId>,
    /// An address.
    pub ip: Option<IpAddr>,
    /// A device.
    pub device: Option<String>,
}

/// Why somebody was turned away, as a gateway knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// Its number.
    pub gateway: u32,
    /// What is in force of him there.
    pub listed: Vec<ListedView>,
    /// What became of the user's last BUY there, if it is remembered.
    pub last_buy: Option<LastBuyView>,
}

/// What is in force of a subject.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedView {
    /// Whom it is about.
    pub subject: String,
    /// What becomes of it.
    pub effect: String,
    /// Until when, in Unix milliseconds; 0 = for good.
    pub until_ms: u64,
}

/// What became of a BUY.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastBuyView {
    /// The rung of the funnel where it ended, as in `rushgate_buys_total`; `passed`: it went to the stock task.
    pub rung: String,
    /// What was answered; none where the stock task was to answer.
    pub status: Option<String>,
    /// In which activity.
    pub activity: u32,
    /// When, in Unix milliseconds of the sale clock, to the second.
    pub at_ms: u64,
}

/// A notice as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedNotice {
    /// When it was signed, as the header says; `None` if there is none, or several.
    pub timestamp: Option<String>,
    /// The signature, likewise.
    pub signature: Option<String>,
    /// What was signed.
    pub body: Bytes,
}

//! What a serving process tells of itself on the admin port.

use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::sync::watch;

use super::log::LogCounts;
use super::metric_text::{family, labelled, single};
use super::process_metrics::put_process;
use super::writer_metrics::put_payments;
use crate::admin::probe::{
    Asked, Explanation, LastBuyView, ListedView, Probe, RiskView, SignedNotice, SwitchesView,
};
use crate::admin::risk::{RiskDone, RiskError, RiskPlace, RiskRequest, change};
use crate::admin::switches::{SetDone, SetError, SetRequest, SwitchPlace, set, views};
use crate::admission::identity::IdentityError;
use crate::admission::risk::Listed;
use crate::gateway::{Ending, Event, Gateway, PassedEnding, RiskStatus, Rung, Sharing, TlsStatus};
use crate::orders::{Counters, Notices, PaymentTasks};
use crate::payment::Answer;
use crate::store::breaker::BreakerState;
use crate::store::shared::{BreakersView, KeeperState};
use crate::store::sql::SqliteStore;
use crate::store::switches::Switches;

/// The process's probe: it is asked from the start on, before there is a gateway.
#[derive(Debug, Default)]
pub(super) struct ServeProbe {
    serving: OnceLock<Serving>,
    /// Where this process takes payments, because no writer does.
    payments: OnceLock<Payments>,
    log: Option<LogCounts>,
}

#[derive(Debug)]
struct Payments {
    notices: Option<Notices<SqliteStore>>,
    counters: Arc<Counters>,
}

#[derive(Debug)]
struct Serving {
    gateway: Arc<Gateway>,
    /// Where the store is shared.
    keeper: Option<watch::Receiver<KeeperState>>,
    switches: SwitchPlace,
    risk: RiskPlace,
}

impl ServeProbe {
    pub(super) fn new(log: Option<LogCounts>) -> Self {
        Self { log, ..Self::default() }
    }

    /// The gateway is there.
    pub(super) fn serves(
        &self,
        gateway: Gateway,
        keeper: Option<watch::Receiver<KeeperState>>,
        switches: SwitchPlace,
        risk: RiskPlace,
    ) -> Arc<Gateway> {
        let serving =
            self.serving.get_or_init(|| Serving { gateway: Arc::new(gateway), keeper, switches, risk });
        Arc::clone(&serving.gateway)
    }

    /// It takes payments from now on.
    pub(super) fn takes_payments(&self, tasks: &PaymentTasks<SqliteStore>) {
        let _ = self.payments.set(Payments { notices: tasks.notices(), counters: tasks.counters() });
    }
}

impl Probe for ServeProbe {
    fn not_ready(&self) -> Vec<&'static str> {
        let Some(Serving { gateway, keeper, .. }) = self.serving.get() else { return vec!["starting"] };
        let keeper = keeper.as_ref().map(|keeper| *keeper.borrow());
        // The cause first, then what comes of it.
        keeper.iter().flat_map(KeeperState::not_ready).chain(gateway.not_ready()).collect()
    }

    fn notes(&self) -> Vec<&'static str> {
        let sells = self.serving.get().is_some_and(|serving| serving.gateway.sells_the_reserve());
        sells.then_some("purchases are sold from the reserve in the database").into_iter().collect()
    }

    fn metrics(&self) -> String {
        let Some(Serving { gateway, keeper, .. }) = self.serving.get() else { return String::new() };
        let mut text = metrics(gateway);
        put_risk(&mut text, gateway);
        put_sharing(&mut text, gateway.sharing());
        if let Some(keeper) = keeper {
            put_keeper(&mut text, *keeper.borrow());
            put_breakers(&mut text, keeper.borrow().breakers);
        }
        if let Some(payments) = self.payments.get() {
            put_payments(&mut text, &payments.counters);
        }
        put_process(&mut text, self.log.as_ref());
        let ready = u64::from(self.not_ready().is_empty());
        single(&mut text, "rushgate_ready", "gauge", "1 when clients may come", ready);
        text
    }

    fn switches(&self) -> Option<SwitchesView> {
        let Serving { gateway, .. } = self.serving.get()?;
        let (obeyed, age_ms) = (gateway.switches().borrow().clone(), gateway.switches_age_ms());
        let unreadable = obeyed.ignored.iter().filter(|one| one.why.is_none());
        let unreadable = unreadable.map(|one| one.name.clone()).collect();
        Some(SwitchesView {
            gateway: gateway.process().0,
            version: obeyed.version,
            age_ms,
            switches: views(Switches { set: obeyed.set.clone(), unreadable }),
        })
    }

    async fn set_switch(&self, request: SetRequest) -> Option<Result<SetDone, SetError>> {
        let Serving { switches, .. } = self.serving.get()?;
        Some(set(switches, request).await)
    }

    fn risk(&self) -> Option<RiskView> {
        let gateway = &self.serving.get()?.gateway;
        let RiskStatus { version, age_ms, users, ips, devices } = gateway.risk_status();
        Some(RiskView { gateway: gateway.process().0, version, age_ms, users, ips, devices })
    }

    async fn change_risk(&self, request: RiskRequest) -> Option<Result<RiskDone, RiskError>> {
        Some(change(&self.serving.get()?.risk, request).await)
    }

    fn explain(&self, asked: &Asked) -> Option<Explanation> {
        let gateway = &self.serving.get()?.gateway;
        let listed = gateway.risk_of(asked.user, asked.ip, asked.device.as_deref()).into_iter();
        let listed = listed.map(|Listed { subject, effect, until_ms, .. }| ListedView {
            subject: subject.to_string(),
            effect: effect.name().to_owned(),
            until_ms,
        });
        let last_buy = asked.user.and_then(|user| gateway.last_buy(user)).map(|buy| LastBuyView {
            rung: buy.rung.name().to_owned(),
            status: (buy.rung != Rung::Passed).then(|| buy.status.name().to_owned()),
            activity: buy.activity.0,
            at_ms: u64::from(buy.at_s).saturating_mul(1000),
        });
        Some(Explanation { gateway: gateway.process().0, listed: listed.collect(), last_buy })
    }

    async fn payment_notice(&self, notice: SignedNotice) -> Option<Answer> {
        let notices = self.payments.get()?.notices.as_ref()?;
        let (timestamp, signature) = (notice.timestamp.as_deref(), notice.signature.as_deref());
        Some(notices.take(timestamp, signature, &notice.body).await)
    }
}

/// What is counted beside replies, rungs and ends.
const EVENTS: &[(&str, &str, Event)] = &[
    ("rushgate_connections_accepted_total", "Connections accepted", Event::Accepted),
    ("rushgate_pushes_total", "RESULT_PUSH frames handed to a connection", Event::Push),
    ("rushgate_store_calls_total", "Calls that the store answered", Event::CallAnswered),
    ("rushgate_store_calls_repeated_total", "Calls without a reply, repeated", Event::CallRepeated),
    ("rushgate_reserve_sold_total", "Purchases sold from the reserve", Event::SoldFromReserve),
    ("rushgate_archive_lookups_total", "RESULTs answered from the database", Event::LookedUp),
    ("rushgate_recoveries_total", "Recoveries that took this gateway's marks in time", Event::HandedIn),
    ("rushgate_promises_offered_total", "Orders offered again after a recovery", Event::OfferedAgain),
    ("rushgate_promises_failed_total", "Acknowledged orders that ended FAILED", Event::PromiseFailed),
    ("rushgate_switch_changes_total", "Changes of switches that were obeyed", Event::SwitchObeyed),
    ("rushgate_switches_ignored_total", "Times something was found that is no switch", Event::SwitchIgnored),
    ("rushgate_auth_rate_limited_total", "AUTHs over the rate of their address", Event::AuthRateLimited),
    ("rushgate_session_lookups_total", "Sessions that the store was asked for", Event::SessionLookedUp),
    (
        "rushgate_session_lookups_failed_total",
        "Sessions that the store did not tell of in time",
        Event::SessionUnanswered,
    ),
    ("rushgate_allow_lists_read_total", "Allow-lists read as a whole", Event::ListRead),
    ("rushgate_allow_lists_restored_total", "Allow-lists the store had lost, put back", Event::ListRestored),
    ("rushgate_switches_restored_total", "Switches the store had lost, put back", Event::SwitchRestored),
    (
        "rushgate_devices_refused_total",
        "HELLOs and AUTHs without such a device as is asked for",
        Event::DeviceRefused,
    ),
    ("rushgate_devices_counted_total", "Users on devices that were counted", Event::DeviceCounted),
    (
        "rushgate_devices_forgotten_total",
        "Users on devices that were not counted, for too many waited",
        Event::DeviceForgotten,
    ),
    ("rushgate_flagged_total", "Users and devices put into the risk lists", Event::Flagged),
    (
        "rushgate_flags_forgotten_total",
        "Flags that were not written, for too many waited",
        Event::FlagForgotten,
    ),
    ("rushgate_tls_full_total", "TLS handshakes with the certificate's signature", Event::TlsFull),
    ("rushgate_tls_resumed_total", "TLS handshakes with a ticket", Event::TlsResumed),
    ("rushgate_tls_changed_total", "Times certificate or ticket keys became others", Event::TlsChanged),
    (
        "rushgate_tls_files_refused_total",
        "Looks at the files of TLS that found no use",
        Event::TlsFilesRefused,
    ),
    ("rushgate_token_keys_changed_total", "Times the token keys in force became others", Event::KeysChanged),
    (
        "rushgate_key_file_refused_total",
        "Looks at auth.jwks_file that found no use in it",
        Event::KeyFileRefused,
    ),
];

fn metrics(gateway: &Gateway) -> String {
    let counters = gateway.counters();
    let mut text = String::new();
    let rungs = Rung::ALL.iter().map(|rung| (rung.name(), counters.rung_count(*rung)));
    family(
        &mut text,
        "rushgate_buys_total",
        "BUYs by the rung of the funnel where they ended",
        "rung",
        rungs,
    );
    let passed = PassedEnding::ALL.iter().map(|ending| (ending.name(), counters.passed_count(*ending)));
    let help = "BUYs that passed the funnel by what came of them";
    family(&mut text, "rushgate_buys_passed_total", help, "outcome", passed);
    let statuses = counters.status_counts().map(|(status, count)| (status.name(), count));
    family(&mut text, "rushgate_replies_total", "Replies by status", "status", statuses);
    let endings = Ending::ALL.iter().map(|ending| (ending.name(), counters.ending_count(*ending)));
    family(&mut text, "rushgate_connections_ended_total", "Ends of connections", "why", endings);
    let tokens = IdentityError::ALL.iter().map(|why| (why.name(), counters.token_refusal_count(*why)));
    family(&mut text, "rushgate_tokens_refused_total", "Tokens refused in AUTH", "why", tokens);
    for &(name, help, event) in EVENTS {
        single(&mut text, name, "counter", help, counters.event_count(event));
    }
    let count = |value: usize| u64::try_from(value).unwrap_or(u64::MAX);
    let (keys, obeyed) = (gateway.limiter_keys(), gateway.switches().borrow().clone());
    for (name, help, value) in [
        ("rushgate_connections", "Connections open", count(gateway.connections())),
        ("rushgate_purchases_unfinished", "Purchases accepted and not answered", count(gateway.unfinished())),
        ("rushgate_token_keys", "Keys that tokens are checked with", count(gateway.token_keys())),
        ("rushgate_limiter_ips", "Addresses that the limits remember", count(keys.ips)),
        ("rushgate_limiter_users", "Users that the limits remember", count(keys.users)),
        ("rushgate_limiter_overflowed", "Checks that shared a bucket for want of memory", keys.overflowed),
        ("rushgate_process", "The gateway's number, as in drain/NUMBER", gateway.process().0.into()),
        ("rushgate_switches_version", "The last change of switches that is obeyed", obeyed.version),
        (
            "rushgate_switches_age_ms",
            "Since the store last confirmed the switches",
            gateway.switches_age_ms(),
        ),
        ("rushgate_switches_ignored", "What the store holds that is no switch", count(obeyed.ignored.len())),
    ] {
        single(&mut text, name, "gauge", help, value);
    }
    if let Some(tls) = gateway.tls() {
        put_tls(&mut text, tls);
    }
    text
}

/// How TLS stands, where it is spoken.
fn put_tls(text: &mut String, tls: TlsStatus) {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let left_s = tls.expires_s.saturating_sub(now_s);
    let handshakes = u64::try_from(tls.handshakes).unwrap_or(u64::MAX);
    single(text, "rushgate_tls_certificate_left_s", "gauge", "Until the certificate expires", left_s);
    single(text, "rushgate_tls_handshakes", "gauge", "TLS handshakes under way", handshakes);
}

/// How the risk lists stand.
fn put_risk(text: &mut String, gateway: &Gateway) {
    for (name, help, event) in [
        ("rushgate_risk_changes_total", "Changes of the risk lists put in force", Event::RiskChanged),
        ("rushgate_risk_read_all_total", "Times all of the risk lists was read", Event::RiskReadAll),
        ("rushgate_risk_ignored_total", "Times a risk list held what is no entry", Event::RiskIgnored),
        ("rushgate_risk_restored_total", "Entries the store had lost, put back", Event::RiskRestored),
    ] {
        single(text, name, "counter", help, gateway.counters().event_count(event));
    }
    let risk = gateway.risk_status();
    let count = |value: usize| u64::try_from(value).unwrap_or(u64::MAX);
    for (name, help, value) in [
        ("rushgate_risk_users", "Users on the risk lists", count(risk.users)),
        ("rushgate_risk_ips", "Blocks of addresses on the risk lists", count(risk.ips)),
        ("rushgate_risk_devices", "Devices on the risk lists", count(risk.devices)),
        ("rushgate_risk_version", "The last change of the risk lists that is in force", risk.version),
        ("rushgate_risk_age_ms", "Since the store last confirmed the risk lists", risk.age_ms),
    ] {
        single(text, name, "gauge", help, value);
    }
}

/// How the limits are shared with other gateways.
fn put_sharing(text: &mut String, sharing: Sharing) {
    let Sharing { gateways, can_borrow, traded } = sharing;
    for (name, kind, help, value) in [
        ("rushgate_gateways", "gauge", "Gateways that share the limits", gateways.into()),
        ("rushgate_slices_available", "gauge", "1 while shares can be lent and borrowed", can_borrow.into()),
        (
            "rushgate_slices_borrowed_total",
            "counter",
            "Tokens of limits, borrowed of others",
            traded.borrowed,
        ),
        ("rushgate_slices_lent_total", "counter", "Tokens of limits, lent to others", traded.lent),
    ] {
        single(text, name, kind, help, value);
    }
}

/// What the heartbeat and recoveries have come to.
pub(super) fn put_keeper(text: &mut String, state: KeeperState) {
    for (name, help, value) in [
        ("rushgate_recoveries_led_total", "Recoveries led to their end", state.recoveries_led),
        ("rushgate_promises_broken_total", "Reservations given up in recoveries", state.promises_broken),
        ("rushgate_leases_lost_total", "Times the lease ran out", state.leases_lost),
    ] {
        single(text, name, "counter", help, value);
    }
    let help = "How long shards were closed at the last recovery";
    single(text, "rushgate_last_closed_ms", "gauge", help, state.last_closed_ms);
}

/// How the circuit breakers stand.
fn put_breakers(text: &mut String, view: BreakersView) {
    let BreakersView { redis, sql, redis_opened, sql_opened, database_shards, mode_changes, .. } = view;
    let state = |state: BreakerState| match state {
        BreakerState::Closed => 0,
        BreakerState::HalfOpen => 1,
        BreakerState::Open => 2,
    };
    let help = "Circuit breakers: 0 closed, 1 half open, 2 open; of several the worst";
    let states = [("redis", state(redis)), ("database", state(sql))];
    labelled(text, ("rushgate_breaker_state", "gauge", help), "breaker", states.into_iter());
    let help = "Times a circuit breaker opened";
    let opened = [("redis", redis_opened), ("database", sql_opened)];
    family(text, "rushgate_breaker_opened_total", help, "breaker", opened.into_iter());
    let help = "Shards whose purchases are sold from the reserve in the database";
    single(text, "rushgate_stock_database_shards", "gauge", help, database_shards.into());
    let help = "Times that what purchases are sold from became another";
    single(text, "rushgate_stock_mode_changes_total", "counter", help, mode_changes);
}

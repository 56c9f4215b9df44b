//! The operators' HTTP port: /livez, /readyz, /metrics, /switches and /risk where there are any, /payments where they are
//! taken.
//!
//! One task of its own on a listener of its own, by default on loopback only. It reads what the process knows of
//! itself through a [`Probe`], and changes nothing but switches and risk lists; payment notices are handed on. A request
//! that it does not know gets 404.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::rejection::JsonRejection;
use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Serialize;
use tokio::net::TcpListener;

use super::http_risk::{self, Asked, Explanation, RiskView};
use super::payments::{self, SignedNotice};
use super::risk::{RiskDone, RiskError, RiskRequest};
use super::switches::{SetDone, SetError, SetRequest, SwitchView};
use crate::payment::Answer;

/// What a process tells of itself.
pub trait Probe: Send + Sync + 'static {
    /// Why it should not be sent clients; empty when it may.
    fn not_ready(&self) -> Vec<&'static str>;
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

/// Serves until the task is dropped.
pub async fn serve<P: Probe>(listener: TcpListener, probe: Arc<P>) -> std::io::Result<()> {
    let router = Router::new()
        .route("/livez", get(|| async { "alive\n" }))
        .route("/readyz", get(ready::<P>))
        .route("/metrics", get(metrics::<P>))
        .route("/switches", get(switches::<P>).post(set_switch::<P>))
        .route("/risk", get(http_risk::risk::<P>).post(http_risk::change_risk::<P>))
        .route("/risk/explain", get(http_risk::explain::<P>))
        .route("/payments", post(payments::take::<P>))
        .with_state(probe);
    axum::serve(listener, router.into_make_service_with_connect_info::<SocketAddr>()).await
}

async fn ready<P: Probe>(State(probe): State<Arc<P>>) -> Response {
    let reasons = probe.not_ready();
    let status = if reasons.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    json(status, &serde_json::json!({ "ready": reasons.is_empty(), "reasons": reasons }))
}

async fn metrics<P: Probe>(State(probe): State<Arc<P>>) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], probe.metrics()).into_response()
}

async fn switches<P: Probe>(State(probe): State<Arc<P>>) -> Response {
    match probe.switches() {
        Some(view) => json(StatusCode::OK, &view),
        None => no_switches(),
    }
}

/// Only from this machine, for the port has no passwords and health checks may need it elsewhere. And only as
/// `application/json`, and from no browser: a web page that an operator looks at must not be able to send it, not even
/// one whose name leads to this machine.
async fn set_switch<P: Probe>(
    State(probe): State<Arc<P>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    request: Result<Json<SetRequest>, JsonRejection>,
) -> Response {
    if let Some(why) = not_from_here(peer, &headers, "switches", "rushgate switch set") {
        return refused(StatusCode::FORBIDDEN, &why);
    }
    let Json(request) = match request {
        Ok(request) => request,
        Err(rejection) => return refused(rejection.status(), &rejection.body_text()),
    };
    match probe.set_switch(request).await {
        Some(Ok(done)) => json(StatusCode::OK, &done),
        Some(Err(error @ SetError::Store(_))) => refused(StatusCode::SERVICE_UNAVAILABLE, &error.to_string()),
        Some(Err(error)) => refused(StatusCode::BAD_REQUEST, &error.to_string()),
        None => no_switches(),
    }
}

/// Why this request is not for this machine alone; `what` it is about, and the command for that.
pub(super) fn not_from_here(
    peer: SocketAddr,
    headers: &HeaderMap,
    what: &str,
    command: &str,
) -> Option<String> {
    if !peer.ip().to_canonical().is_loopback() {
        return Some(format!("{what} are for the gateway's own machine; there, or anywhere: {command}"));
    }
    let is_browser = headers.contains_key(header::ORIGIN) || headers.contains_key("sec-fetch-site");
    is_browser.then(|| format!("{what} are not for web pages; use curl, or {command}"))
}

fn no_switches() -> Response {
    refused(StatusCode::NOT_FOUND, "this process obeys no switches, or is only starting")
}

pub(super) fn refused(status: StatusCode, why: &str) -> Response {
    json(status, &serde_json::json!({ "error": why }))
}

pub(super) fn json(status: StatusCode, body: &impl Serialize) -> Response {
    let text = serde_json::to_string(body).unwrap_or_default();
    (status, [(header::CONTENT_TYPE, "application/json")], format!("{text}\n")).into_response()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn switches_are_set_from_this_machine_alone_and_by_no_web_page() {
        let with = |name: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            headers
                .extend(name.map(|name| (name.parse::<header::HeaderName>().unwrap(), "x".parse().unwrap())));
            headers
        };
        let refused =
            |peer: &str, name| not_from_here(peer.parse().unwrap(), &with(name), "switches", "").is_some();
        assert!(
            !refused("127.0.0.1:9", None)
                && !refused("[::1]:9", None)
                && !refused("[::ffff:127.0.0.1]:9", None)
        );
        assert!(refused("10.0.0.7:9", None) && refused("[2001:db8::1]:9", None));
        assert!(refused("127.0.0.1:9", Some("origin")) && refused("127.0.0.1:9", Some("sec-fetch-site")));
    }
}

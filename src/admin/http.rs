//! The operators' HTTP port: /livez, /readyz, /metrics, and /switches where there are any.
//!
//! One task of its own on a listener of its own, by default on loopback only. It reads what the process knows of
//! itself through a [`Probe`], and changes nothing but switches. A request that it does not know gets 404.

use std::future::Future;
use std::sync::Arc;

use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::Serialize;
use tokio::net::TcpListener;

use super::switches::{SetDone, SetError, SetRequest, SwitchView};

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
        .with_state(probe);
    axum::serve(listener, router).await
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

/// Only as `application/json`: a form on some web page that an operator looks at must not be able to send it.
async fn set_switch<P: Probe>(
    State(probe): State<Arc<P>>,
    request: Result<Json<SetRequest>, JsonRejection>,
) -> Response {
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

fn no_switches() -> Response {
    refused(StatusCode::NOT_FOUND, "this process obeys no switches, or is only starting")
}

fn refused(status: StatusCode, why: &str) -> Response {
    json(status, &serde_json::json!({ "error": why }))
}

fn json(status: StatusCode, body: &impl Serialize) -> Response {
    let text = serde_json::to_string(body).unwrap_or_default();
    (status, [(header::CONTENT_TYPE, "application/json")], format!("{text}\n")).into_response()
}

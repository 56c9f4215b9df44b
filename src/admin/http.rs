//! The operators' HTTP port: /livez, /readyz, /metrics, /switches and /risk where there are any, /payments where they are
//! taken.
//!
//! One task of its own on a listener of its own, by default on loopback only. It reads what the process knows of
//! itself through a [`Probe`], and changes nothing but switches and risk lists; payment notices are handed on. A request
//! that it does not know gets 404.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::rejection::JsonRejection;
use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use tokio::net::TcpListener;

use super::probe::Probe;
use super::reply::{json, not_from_here, refused};
use super::switches::{SetError, SetRequest};
use super::{http_risk, payments};

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
    let mut body = serde_json::json!({ "ready": reasons.is_empty(), "reasons": reasons });
    let notes = probe.notes();
    if let Some(body) = body.as_object_mut().filter(|_| !notes.is_empty()) {
        body.insert("notes".to_owned(), notes.into());
    }
    json(status, &body)
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

fn no_switches() -> Response {
    refused(StatusCode::NOT_FOUND, "this process obeys no switches, or is only starting")
}

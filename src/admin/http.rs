//! The operators' HTTP port: /livez, /readyz, /metrics.
//!
//! One task of its own on a listener of its own, by default on loopback only. It reads what the process knows of
//! itself through a [`Probe`] and changes nothing. A request that it does not know gets 404.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;

/// What a process tells of itself.
pub trait Probe: Send + Sync + 'static {
    /// Why it should not be sent clients; empty when it may.
    fn not_ready(&self) -> Vec<&'static str>;
    /// Its metrics, in the Prometheus text format 0.0.4.
    fn metrics(&self) -> String;
}

/// Serves until the task is dropped.
pub async fn serve<P: Probe>(listener: TcpListener, probe: Arc<P>) -> std::io::Result<()> {
    let router = Router::new()
        .route("/livez", get(|| async { "alive\n" }))
        .route("/readyz", get(ready::<P>))
        .route("/metrics", get(metrics::<P>))
        .with_state(probe);
    axum::serve(listener, router).await
}

async fn ready<P: Probe>(State(probe): State<Arc<P>>) -> Response {
    let reasons = probe.not_ready();
    let status = if reasons.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let body = serde_json::json!({ "ready": reasons.is_empty(), "reasons": reasons });
    (status, [(header::CONTENT_TYPE, "application/json")], format!("{body}\n")).into_response()
}

async fn metrics<P: Probe>(State(probe): State<Arc<P>>) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], probe.metrics()).into_response()
}

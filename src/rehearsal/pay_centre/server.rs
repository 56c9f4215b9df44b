//! Its HTTP port.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::json;
use tokio::net::TcpListener;

use super::{Inner, count, now_ms};
use crate::payment::{SIGNATURE_HEADER, TIMESTAMP_HEADER, asked_body, read_ask};
use crate::protocol::OrderNumber;

const BODY_BYTES_MAX: usize = 1024 * 1024;
/// How far from its own time a question may have been signed.
const WINDOW_MS: u64 = 300_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PayBody {
    order: String,
    amount_minor: u64,
}

pub(super) async fn run(listener: TcpListener, inner: Arc<Inner>) {
    let router = Router::new()
        .route("/pay", post(pay))
        .route("/close", post(close))
        .route("/stats", get(stats))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(inner);
    if let Err(error) = axum::serve(listener, router).await {
        tracing::error!(%error, "the payment centre's port ended");
    }
}

async fn stats(State(inner): State<Arc<Inner>>) -> Response {
    Json(inner.stats()).into_response()
}

async fn pay(State(inner): State<Arc<Inner>>, Json(body): Json<PayBody>) -> Response {
    let Ok(order) = body.order.parse().map(OrderNumber) else {
        return (StatusCode::BAD_REQUEST, Json(json!({ "error": "no order number" }))).into_response();
    };
    let is_paid = inner.pay(order, body.amount_minor);
    let (status, state) = if is_paid { (StatusCode::OK, "paid") } else { (StatusCode::CONFLICT, "closed") };
    (status, Json(json!({ "state": state }))).into_response()
}

async fn close(State(inner): State<Arc<Inner>>, headers: HeaderMap, body: Bytes) -> Response {
    count(&inner.counts.questions);
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let signed_at_ms = inner.keys.verify(header(TIMESTAMP_HEADER), header(SIGNATURE_HEADER), &body);
    if signed_at_ms.is_none_or(|at_ms| at_ms.abs_diff(now_ms()) > WINDOW_MS) {
        count(&inner.counts.refused);
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let Ok(orders) = read_ask(&body) else { return StatusCode::BAD_REQUEST.into_response() };
    let (delay, fails, before) = inner.with_till(|till| {
        let delay: Duration = inner.faults.answer_delay_max.mul_f64(till.part());
        (delay, till.hits(inner.faults.error_rate), till.hits(0.5))
    });
    tokio::time::sleep(delay).await;
    let failed = || {
        count(&inner.counts.errors);
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    };
    if fails && before {
        return failed();
    }
    let mut answers = Vec::with_capacity(orders.len());
    for order in orders {
        let (asked, late) = inner.with_till(|till| till.close(order, &inner.faults, now_ms()));
        if let Some(payment) = late {
            let _ = inner.notices.send(payment);
        }
        answers.push((order, asked));
    }
    if fails {
        return failed();
    }
    ([("content-type", "application/json")], asked_body(&answers)).into_response()
}

//! The admin port's /risk and /risk/explain.
//!
//! What is listed of whom, and what became of him, is told on the gateway's own machine alone; so are changes taken.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{ConnectInfo, RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;

use super::probe::{Asked, Probe};
use super::reply::{json, not_from_here, refused};
use super::risk::{RiskError, RiskRequest};
use crate::protocol::UserId;

const WHAT: &str = "risk lists";
const COMMAND: &str = "rushgate risk";

pub(super) async fn risk<P: Probe>(State(probe): State<Arc<P>>) -> Response {
    match probe.risk() {
        Some(view) => json(StatusCode::OK, &view),
        None => no_lists(),
    }
}

pub(super) async fn change_risk<P: Probe>(
    State(probe): State<Arc<P>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    request: Result<Json<RiskRequest>, JsonRejection>,
) -> Response {
    if let Some(why) = not_from_here(peer, &headers, WHAT, COMMAND) {
        return refused(StatusCode::FORBIDDEN, &why);
    }
    let Json(request) = match request {
        Ok(request) => request,
        Err(rejection) => return refused(rejection.status(), &rejection.body_text()),
    };
    match probe.change_risk(request).await {
        Some(Ok(done)) => json(StatusCode::OK, &done),
        Some(Err(error @ RiskError::Store(_))) => {
            refused(StatusCode::SERVICE_UNAVAILABLE, &error.to_string())
        }
        Some(Err(error)) => refused(StatusCode::BAD_REQUEST, &error.to_string()),
        None => no_lists(),
    }
}

pub(super) async fn explain<P: Probe>(
    State(probe): State<Arc<P>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Response {
    if let Some(why) = not_from_here(peer, &headers, WHAT, COMMAND) {
        return refused(StatusCode::FORBIDDEN, &why);
    }
    match asked(&query.unwrap_or_default()) {
        Ok(asked) => probe.explain(&asked).map_or_else(no_lists, |found| json(StatusCode::OK, &found)),
        Err(why) => refused(StatusCode::BAD_REQUEST, &why),
    }
}

fn no_lists() -> Response {
    refused(StatusCode::NOT_FOUND, "this process goes by no risk lists, or is only starting")
}

/// `user=42&ip=10.1.2.3&device=ios-7f3a`, any of them.
fn asked(query: &str) -> Result<Asked, String> {
    let mut asked = Asked::default();
    for part in query.split('&').filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let value = decoded(value).ok_or_else(|| format!("{part:?} is not percent-encoded UTF-8"))?;
        match name {
            "user" => {
                let user = value.parse().ok().and_then(UserId::new);
                asked.user = Some(user.ok_or_else(|| format!("{value:?} is no user's number"))?);
            }
            "ip" => asked.ip = Some(value.parse().map_err(|_| format!("{value:?} is no IP address"))?),
            "device" => asked.device = Some(value),
            _ => return Err(format!("{name:?} is unknown; ask by user, ip and device")),
        }
    }
    if asked == Asked::default() {
        return Err(
            "nobody is named; write /risk/explain?user=42&ip=10.1.2.3&device=NAME, any of them".to_owned()
        );
    }
    Ok(asked)
}

/// A value of a query, without its percent signs.
fn decoded(value: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first == b'%' {
            let (digits, after) = rest.split_at_checked(2)?;
            let digits = std::str::from_utf8(digits).ok().filter(|text| !text.starts_with('+'))?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = after;
        } else {
            bytes.push(*first);
        }
    }
    String::from_utf8(bytes).ok()
}

/// A value for a query.
pub fn encoded(value: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~:".contains(&byte);
    let encode = |byte| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    value.bytes().map(encode).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_query_names_whom_it_asks_about() {
        let device = "a b&c=%/误";
        let query = format!("user=42&ip=2001:db8::1&device={}", encoded(device));
        let due = Asked {
            user: Some(UserId(42)),
            ip: Some("2001:db8::1".parse().unwrap()),
            device: Some(device.to_owned()),
        };
        assert_eq!(asked(&query), Ok(due));
        for (query, says) in [
            ("", "nobody is named"),
            ("user=", "no user's number"),
            ("user=0", "no user's number"),
            ("ip=10.0.0.0/8", "no IP address"),
            ("name=x", "ask by user, ip and device"),
            ("device=%", "not percent-encoded"),
            ("device=%+1", "not percent-encoded"),
            ("device=%FF", "not percent-encoded UTF-8"),
        ] {
            let error = asked(query).unwrap_err();
            assert!(error.contains(says), "{query}: {error}");
        }
    }
}

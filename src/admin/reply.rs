//! What the operators' port replies, and to whom it does not.
//!
//! Pure; called by whoever answers a request.

use std::net::SocketAddr;

use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

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

//! The HTTP client: one signed POST on a connection of its own, within a time and a length.
//!
//! Without encryption, as the connections to Redis and the database are: it stays on a private network, or goes to a
//! proxy on this machine that encrypts. What the other side may have done when no answer came is not known here.

use std::str::FromStr;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::signature::{Keys, SIGNATURE_HEADER, TIMESTAMP_HEADER};

/// Longest answer that is read: 100 bytes for each of as many orders as may be asked about, twice.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// Where a payment centre or a writer listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    authority: String,
    address: (String, u16),
    /// Without a slash at its end.
    path: String,
}

/// Why a text is no such place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a URL such as http://10.0.0.7:8080 or http://pay.internal:8080/shop (without https, user or query)"
)]
pub struct NotATarget(String);

impl FromStr for Target {
    type Err = NotATarget;

    fn from_str(text: &str) -> Result<Self, NotATarget> {
        let wrong = || NotATarget(text.to_owned());
        let uri: Uri = text.parse().map_err(|_| wrong())?;
        let authority = uri.authority().ok_or_else(wrong)?;
        if uri.scheme_str() != Some("http") || uri.query().is_some() || authority.as_str().contains('@') {
            return Err(wrong());
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Err(wrong());
        }
        Ok(Self {
            authority: authority.to_string(),
            address: (host.to_owned(), authority.port_u16().unwrap_or(80)),
            path: uri.path().trim_end_matches('/').to_owned(),
        })
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum PostError {
    /// Nobody answers there, or not in time.
    #[error("{0} does not answer: {1}")]
    Unreachable(String, String),
    /// What came was no answer.
    #[error("{0} answers nonsense: {1}")]
    Broken(String, String),
}

/// Signs a body and posts it; the answer's status and body.
pub async fn post(
    target: &Target,
    path: &str,
    keys: &Keys,
    at_ms: u64,
    body: String,
    patience: Duration,
) -> Result<(u16, Bytes), PostError> {
    let signature = keys.sign(at_ms, body.as_bytes());
    post_signed(target, path, (at_ms, &signature), body, patience).await
}

/// Posts a body with this time and signature, good or not.
pub async fn post_signed(
    target: &Target,
    path: &str,
    (at_ms, signature): (u64, &str),
    body: String,
    patience: Duration,
) -> Result<(u16, Bytes), PostError> {
    let failed = |why: String| PostError::Unreachable(target.authority.clone(), why);
    let request = Request::post(format!("{}{path}", target.path))
        .header(HOST, &target.authority)
        .header(CONNECTION, "close")
        .header(CONTENT_TYPE, "application/json")
        .header(TIMESTAMP_HEADER, at_ms)
        .header(SIGNATURE_HEADER, signature)
        .body(Full::new(Bytes::from(body)))
        .map_err(|error| failed(error.to_string()))?;
    let exchange = exchange(target, request);
    tokio::time::timeout(patience, exchange)
        .await
        .unwrap_or_else(|_| Err(failed(format!("not within {patience:?}"))))
}

async fn exchange(target: &Target, request: Request<Full<Bytes>>) -> Result<(u16, Bytes), PostError> {
    let unreachable = |why: String| PostError::Unreachable(target.authority.clone(), why);
    let (host, port) = &target.address;
    let stream =
        TcpStream::connect((host.as_str(), *port)).await.map_err(|error| unreachable(error.to_string()))?;
    let _ = stream.set_nodelay(true);
    let broken = |why: String| PostError::Broken(target.authority.clone(), why);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| broken(error.to_string()))?;
    let answering = async {
        let answer = sender.send_request(request).await.map_err(|error| broken(error.to_string()))?;
        let status = answer.status().as_u16();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        Ok((status, body.map_err(|error| broken(error.to_string()))?.to_bytes()))
    };
    tokio::pin!(answering);
    // The connection moves the bytes while the answer is waited for; both end here.
    tokio::select! {
        answer = &mut answering => answer,
        ended = connection => match ended {
            // Whatever it brought before its end is there to be taken.
            Ok(()) => answering.await,
            Err(error) => Err(broken(error.to_string())),
        },
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_target_is_a_plain_http_url() {
        let target = |text: &str| text.parse::<Target>().map(|target| (target.address, target.path));
        let at = |host: &str, port| (host.to_owned(), port);
        assert_eq!(target("http://127.0.0.1:8080"), Ok((at("127.0.0.1", 8080), String::new())));
        assert_eq!(target("http://pay/shop/"), Ok((at("pay", 80), "/shop".to_owned())));
        assert_eq!(target("http://[::1]:9/"), Ok((at("::1", 9), String::new())));
        for wrong in [
            "",
            "pay:80",
            "https://pay",
            "http://",
            "http://u:p@pay",
            "http://pay/?a=1",
            "/close",
            "http://a b",
        ] {
            assert!(target(wrong).unwrap_err().to_string().contains("is not a URL"), "{wrong}");
        }
    }
}

//! Payment notices on the operators' port: the HTTP around them. What they say and whether they are good is for
//! whoever the [`Probe`] hands them to.
//!
//! A body is read within a time and up to a length, so that whoever dribbles or floods holds a little memory and a
//! connection, nothing more. It comes from anywhere that reaches the port: its signature says whose it is.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use http_body_util::LengthLimitError;

use super::probe::{Probe, SignedNotice};
use super::reply::{json as answer, refused};
use crate::payment::{NOTICE_BYTES_MAX, SIGNATURE_HEADER, TIMESTAMP_HEADER};

const BODY_PATIENCE: Duration = Duration::from_secs(5);

pub(super) async fn take<P: Probe>(State(probe): State<Arc<P>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = match read(body).await {
        Ok(body) => body,
        Err((status, why)) => return refused(status, why),
    };
    let header = |name| only(&parts.headers, name);
    let notice =
        SignedNotice { timestamp: header(TIMESTAMP_HEADER), signature: header(SIGNATURE_HEADER), body };
    match probe.payment_notice(notice).await {
        Some(taken) => {
            let status = StatusCode::from_u16(taken.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            answer(status, &taken.body())
        }
        None => refused(
            // A status below 500 would be final, and the next writer takes it.
            StatusCode::SERVICE_UNAVAILABLE,
            "no payment notices are taken here; a writer takes them (without Redis the gateway), with payment.key_file",
        ),
    }
}

async fn read(body: Body) -> Result<Bytes, (StatusCode, &'static str)> {
    match tokio::time::timeout(BODY_PATIENCE, to_bytes(body, NOTICE_BYTES_MAX)).await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(error)) if error.source().is_some_and(<dyn Error>::is::<LengthLimitError>) => {
            Err((StatusCode::PAYLOAD_TOO_LARGE, "no notice is longer than 4096 bytes"))
        }
        // What broke off or stalled is to be repeated: a status below 500 would be final.
        Ok(Err(_)) => Err((StatusCode::SERVICE_UNAVAILABLE, "the body broke off; repeat it")),
        Err(_) => {
            Err((StatusCode::SERVICE_UNAVAILABLE, "the body did not come within five seconds; repeat it"))
        }
    }
}

/// A header that comes twice says nothing.
fn only(headers: &HeaderMap, name: &str) -> Option<String> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    values.next().is_none().then(|| value.to_str().ok().map(str::to_owned))?
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use axum::body::HttpBody;
    use hyper::body::Frame;

    use super::*;

    /// Breaks off, or stalls.
    struct Bad {
        breaks: bool,
    }

    impl HttpBody for Bad {
        type Data = Bytes;
        type Error = std::io::Error;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
            if self.breaks { Poll::Ready(Some(Err(std::io::Error::other("reset")))) } else { Poll::Pending }
        }
    }

    async fn status(body: Body) -> u16 {
        read(body).await.map_or_else(|(status, _)| status.as_u16(), |_| 200)
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_body_that_is_too_long_is_refused_for_good() {
        assert_eq!(status(Body::from(vec![b'x'; NOTICE_BYTES_MAX])).await, 200);
        assert_eq!(status(Body::from(vec![b'x'; NOTICE_BYTES_MAX + 1])).await, 413);
        assert_eq!(status(Body::new(Bad { breaks: true })).await, 503);
        assert_eq!(status(Body::new(Bad { breaks: false })).await, 503);
    }
}

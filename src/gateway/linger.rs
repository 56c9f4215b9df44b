//! The end of a connection whose client may still hear: its last replies get through.
//!
//! Runs at the end of the connection's task, for a bounded time and a bounded number of bytes. Nothing that is
//! read here is looked at. A socket that fails is closed as it is.

use std::io;
use std::pin::Pin;
use std::task::ready;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead as _, AsyncWriteExt as _, ReadBuf};

use super::tls::Wire;

const LINGER: Duration = Duration::from_millis(500);
const LINGER_BYTES_MAX: usize = 1024 * 1024;

/// Writes the rest, then reads a while into nothing: a socket closed with unread bytes is reset, and the reset may
/// overtake the last reply.
pub(super) async fn linger(mut wire: Wire, mut rest: BytesMut) {
    let closing = async {
        if wire.write_all_buf(&mut rest).await.is_err() || wire.shutdown().await.is_err() {
            return;
        }
        let mut left = LINGER_BYTES_MAX;
        while left > 0 {
            match read_into_nothing(&mut wire).await {
                Ok(0) | Err(_) => return,
                Ok(count) => left = left.saturating_sub(count),
            }
        }
    };
    // Over the time: closed as it is.
    let _ = tokio::time::timeout(LINGER, closing).await;
}

/// Its buffer lives only while it reads: held across an await it would be part of every connection's task.
async fn read_into_nothing(wire: &mut Wire) -> io::Result<usize> {
    std::future::poll_fn(|cx| {
        let mut nothing = [0; 4096];
        let mut read = ReadBuf::new(&mut nothing);
        ready!(Pin::new(&mut *wire).poll_read(cx, &mut read))?;
        Ok(read.filled().len()).into()
    })
    .await
}

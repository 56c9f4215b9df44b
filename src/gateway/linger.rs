//! The end of a connection whose client may still hear: its last replies get through.
//!
//! Runs at the end of the connection's task, for a bounded time and a bounded number of bytes. Nothing that is
//! read here is looked at. A socket that fails is closed as it is.

use std::io;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

const LINGER: Duration = Duration::from_millis(500);
const LINGER_BYTES_MAX: usize = 1024 * 1024;

/// Writes the rest, then reads a while into nothing: a socket closed with unread bytes is reset, and the reset may
/// overtake the last reply.
pub(super) async fn linger(mut stream: TcpStream, mut rest: BytesMut) {
    let closing = async {
        while !rest.is_empty() && stream.writable().await.is_ok() {
            match stream.try_write(&rest) {
                Ok(written) => rest.advance(written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
        if stream.shutdown().await.is_err() {
            return;
        }
        let mut left = LINGER_BYTES_MAX;
        while left > 0 && stream.readable().await.is_ok() {
            match read_into_nothing(&stream) {
                Ok(0) => return,
                Ok(count) => left = left.saturating_sub(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    };
    // Over the time: closed as it is.
    let _ = tokio::time::timeout(LINGER, closing).await;
}

/// Its buffer lives only here: held across an await it would be part of every connection's task.
fn read_into_nothing(stream: &TcpStream) -> io::Result<usize> {
    stream.try_read(&mut [0; 4096])
}

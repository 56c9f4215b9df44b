//! What a connection reads from and writes to: its socket, or TLS on it.
//!
//! Runs in the connection's wakes. What a TLS connection has encrypted and the socket does not take waits in it: that is
//! written by `poll_flush`, which a plain socket has nothing to do in. A TLS connection that is closed without the alert that
//! says so ends with `UnexpectedEof`.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

/// The socket, or TLS on it: in a box, since the state of a session takes a kilobyte and more.
pub(in crate::gateway) type Wire = Either<TcpStream, Box<TlsStream<Rewound>>>;

/// A socket of which something was read before: that is read first.
#[derive(Debug)]
pub(in crate::gateway) struct Rewound {
    read: BytesMut,
    stream: TcpStream,
}

impl Rewound {
    pub(super) const fn new(read: BytesMut, stream: TcpStream) -> Self {
        Self { read, stream }
    }
}

impl AsyncRead for Rewound {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, into);
        }
        let bytes = self.read.len().min(into.remaining());
        into.put_slice(self.read.get(..bytes).unwrap_or_default());
        self.read.advance(bytes);
        if self.read.is_empty() {
            self.read = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Rewound {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

//! The listening socket: a backlog for thousands of connections at once, and descriptors to hold them.

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Socket, Type};

/// Connections that may wait to be accepted; the kernel caps it at `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// Binds, ready for a reactor: not blocking.
pub(crate) fn bind(listen: SocketAddr) -> io::Result<TcpListener> {
    // As many as the system allows; with fewer, accepting fails later and says so.
    let _ = rlimit::increase_nofile_limit(u64::MAX);
    let socket = Socket::new(Domain::for_address(listen), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&listen.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

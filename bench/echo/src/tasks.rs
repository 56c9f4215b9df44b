//! The echo on tokio: a task per connection that awaits a read, then a write, with a buffer of its own.
//!
//! What anybody would write first. A connection that fails or misbehaves ends its own task; the others go on.

use std::io;
use std::net;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime;

use crate::framing::{FRAME_BYTES_MAX, whole_bytes};

/// Where a connection's buffer starts; a longer frame makes it [`FRAME_BYTES_MAX`].
const BUFFER_BYTES: usize = 8192;

/// Which of tokio's schedulers runs the tasks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Scheduler {
    CurrentThread,
    MultiThread { workers: u16 },
}

/// Serves for ever; `Err` when the system gives no reactor or no connection.
pub(crate) fn serve(listener: net::TcpListener, scheduler: Scheduler) -> io::Result<()> {
    let runtime = match scheduler {
        Scheduler::CurrentThread => runtime::Builder::new_current_thread().enable_io().build(),
        Scheduler::MultiThread { workers } => {
            runtime::Builder::new_multi_thread().worker_threads(usize::from(workers)).enable_io().build()
        }
    }?;
    runtime.block_on(async {
        let listener = TcpListener::from_std(listener)?;
        loop {
            match listener.accept().await {
                Ok((stream, _)) => drop(tokio::spawn(connection(stream))),
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => return Err(error),
            }
        }
    })
}

/// One connection to its end.
async fn connection(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut held = 0_usize;
    loop {
        let count = stream.read(buffer.get_mut(held..).unwrap_or_default()).await?;
        if count == 0 {
            return Ok(());
        }
        held = held.saturating_add(count);
        let bytes = buffer.get(..held).unwrap_or_default();
        let whole = whole_bytes(bytes).map_err(io::Error::other)?;
        stream.write_all(bytes.get(..whole).unwrap_or_default()).await?;
        buffer.copy_within(whole..held, 0);
        held = held.saturating_sub(whole);
        if held == buffer.len() {
            // Half of a frame fills it; the rest is to fit as well.
            buffer.resize(FRAME_BYTES_MAX, 0);
        }
    }
}

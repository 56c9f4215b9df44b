//! A bare tokio task per connection that holds nothing but its socket: the floor of what an idle connection can cost.
//!
//! One thread. It returns what it reads, without looking at it; a reader that does not take it at once is closed. It
//! prints its address and serves until it is killed.

use std::io;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Builder;

const BACKLOG: u32 = 4096;

fn main() -> io::Result<()> {
    Builder::new_current_thread().enable_io().build()?.block_on(serve(listen()?))
}

/// On a free port of loopback, once the runtime runs.
fn listen() -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(([127, 0, 0, 1], 0).into())?;
    Ok(socket)
}

async fn serve(socket: TcpSocket) -> io::Result<()> {
    let listener: TcpListener = socket.listen(BACKLOG)?;
    println!("listens on {}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(echo(stream));
    }
}

async fn echo(stream: TcpStream) -> io::Result<()> {
    loop {
        stream.readable().await?;
        if !pass(&stream)? {
            return Ok(());
        }
    }
}

/// Reads into the stack, which no waiting task keeps; false at the end.
fn pass(stream: &TcpStream) -> io::Result<bool> {
    let mut buffer = [0; 4096];
    let count = match stream.try_read(&mut buffer) {
        Ok(count) => count,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
        Err(error) => return Err(error),
    };
    let bytes = buffer.get(..count).unwrap_or_default();
    Ok(count > 0 && stream.try_write(bytes)? == count)
}

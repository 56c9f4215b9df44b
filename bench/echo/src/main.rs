//! `rushgate-echo`: bare frame-echo servers, the limit that Rushgate is measured against.
//!
//! Each splits what it reads into frames by their length prefix and writes the whole frames back, one write per
//! read: no checksum, no decision, no counters. Two bodies for the same work: a bare epoll loop and tokio tasks.

mod epoll;
mod framing;
mod listener;
mod tasks;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};

use self::tasks::Scheduler;

/// Echoes frames (u32 length, big-endian, then so many bytes) until it is killed.
///
/// Prints the address it listens on. Exit code 2: it could not start; 1: it could not go on.
#[derive(Debug, Parser)]
#[command(name = "rushgate-echo", version)]
struct Args {
    /// What carries the connections
    #[arg(long, value_enum, default_value = "epoll")]
    runtime: Runtime,
    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Worker threads of tokio-multi
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Runtime {
    /// One thread, one epoll, no tasks
    Epoll,
    /// A task per connection on one thread
    Tokio,
    /// A task per connection on tokio's work-stealing scheduler
    TokioMulti,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let listener = match listener::bind(args.listen) {
        Ok(listener) => listener,
        Err(error) => {
            return fail(2, &format!("cannot listen on {}: {error}; give --listen another", args.listen));
        }
    };
    let shown = listener.local_addr().map(|addr| writeln!(io::stdout().lock(), "{addr}"));
    if let Err(error) = shown.and_then(|printed| printed) {
        return fail(2, &format!("cannot print the address: {error}"));
    }
    let served = match args.runtime {
        Runtime::Epoll => epoll::serve(listener),
        Runtime::Tokio => tasks::serve(listener, Scheduler::CurrentThread),
        Runtime::TokioMulti => tasks::serve(listener, Scheduler::MultiThread { workers: args.workers }),
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(1, &format!("cannot go on: {error}")),
    }
}

fn fail(code: u8, message: &str) -> ExitCode {
    // Nowhere to report to if stderr is gone.
    let _ = writeln!(io::stderr().lock(), "rushgate-echo: {message}");
    ExitCode::from(code)
}

//! A link that delays: stands between two processes and keeps every byte back for a while, each way. For measuring
//! what distance costs. Prints its address and runs until it is killed.

#![allow(clippy::print_stdout, reason = "a program's output")]

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use rushgate_servers::{Direction, FaultyLink};

const USAGE: &str = "usage: rushgate-link --upstream 127.0.0.1:6379 --delay 2.5ms";

fn arguments() -> Option<(SocketAddr, Duration)> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["--upstream", upstream, "--delay", delay] => {
            let delay_ms: f64 = delay.strip_suffix("ms")?.parse().ok()?;
            Some((upstream.parse().ok()?, Duration::try_from_secs_f64(delay_ms / 1000.0).ok()?))
        }
        _ => None,
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Some((upstream, delay)) = arguments() else {
        println!("{USAGE}");
        return ExitCode::from(2);
    };
    match FaultyLink::start(upstream).await {
        Ok(link) => {
            for direction in [Direction::ToServer, Direction::ToClient] {
                link.delay(direction, delay);
            }
            println!("{}", link.address());
            std::future::pending().await
        }
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}

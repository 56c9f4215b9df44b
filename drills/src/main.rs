//! The binary `rushgate-drills`: faults on purpose, on real servers, with an audit of what everybody was told.
//!
//! A drill starts a Redis (or a cluster of them), two gateways and a writer of the real binary on a database of its
//! own, lets users buy, injects its fault at a moment that its seed decides, lets everything recover, and then
//! compares what users were told with what Redis and SQL hold, read without any code of the library's stores. A
//! violation is told with the command that replays its choices.

#![allow(clippy::arithmetic_side_effects, reason = "sums of a few thousand units and users")]

mod audit;
mod buyers;
mod drills;
mod error;
mod layout;
mod output;
mod pay_side;
mod program;
mod redis_side;
mod report;
mod settled;
mod shop;
mod sql_side;
mod stock_servers;
mod till;
mod told;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    output::run(&output::Arguments::parse())
}

//! The program as its operators meet it: started, signalled, starved, killed, and started again.
//!
//! Every test runs the real binary on free ports in a folder of its own. A process that a test started ends with
//! it, also when the test fails; what happens in another process is waited for, never slept for.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic,
    missing_docs,
    reason = "tests"
)]

mod again;
mod allow_lists;
mod archive;
mod bad_input;
mod balancer;
mod breakers;
#[path = "../gateway/bystander.rs"]
mod bystander;
mod conduct;
mod crash;
mod descriptors;
mod embedded_payments;
mod funnel;
mod house;
mod lease;
mod logs;
mod operators;
mod panics;
mod payments;
mod production;
mod rate_switches;
mod recoveries;
mod redis_configurations;
mod refusals;
mod reserve;
mod risk;
mod risk_commands;
mod sale_clock;
mod serving;
mod sessions;
mod shared_limits;
mod shared_store;
mod shop;
mod start;
mod store_attempts;
mod switch_commands;
mod switches;
mod takeover;
mod tokens;
mod trouble;
mod unpaid;
#[path = "../gateway/wire.rs"]
#[allow(dead_code, reason = "shared with tests/gateway, which uses all of it")]
mod wire;

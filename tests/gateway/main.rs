//! The gateway from outside: real sockets on a real store, and whatever bytes a client may send.
//!
//! Every test has a gateway of its own on a free port and a data folder of its own. Nothing sleeps to be in time:
//! a test waits for the frame or the end that has to come, and fails when it has not come after [`wire::PATIENCE`].
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic,
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "tests"
)]

mod again;
mod archived;
mod bad_bytes;
mod bad_input;
mod behaviour;
mod bystander;
mod cancels;
mod clients;
mod connections;
mod counters;
mod deadlines;
mod departures;
mod devices;
mod eligibility;
mod garbage;
mod gated;
mod going_away;
mod handshake;
mod house;
mod limits;
mod pipelining;
mod precedence;
mod proxy;
mod purchase;
mod pushes;
mod rate_switches;
mod risk;
mod service;
mod sessions;
mod slow_readers;
mod starting;
mod switches;
mod tls;
mod tlv_lengths;
mod tokens;
mod unfinished;
mod unpaid;
mod vectors;
mod waiting;
mod windows;
mod wire;

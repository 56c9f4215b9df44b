//! The client against a gateway that does exactly what the test says.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

mod client;
mod peer;
mod session;

use peer::{Peer, order};

//! Stock, exactly: 16 sub-keys per SKU, what one gateway knows of them, and who waits for them.
//!
//! [`Stock`] is the engine that the gateway's stock task drives; [`Board`] and [`Buyers`] are what every
//! connection may read beside it. Nothing here does I/O or reads a clock: `tests/stock_model.rs` drives several
//! engines against a store that loses, delays and repeats messages.

mod again;
mod attempts;
mod board;
mod buyers;
pub mod calls;
mod ended;
mod engine;
mod lane;
mod order_numbers;
mod over;
mod per_shard;
mod plan;
mod promises;
mod purchase;
mod recovery;
mod replies;
mod taken;
mod view;

pub use board::{Board, Left, Slot};
pub use buyers::{Buyers, Standing};
pub use engine::Stock;
pub use order_numbers::{OrderNumbers, PROCESS_MAX};
pub use per_shard::PerShard;
pub use purchase::{Outcome, Purchase, Settings};

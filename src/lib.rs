//! Rushgate: a flash-sale gateway. It refuses the doomed from memory and sells every unit exactly once.
//!
//! Imports run one way: `cli` → `gateway`, `orders`, `admin`, `rehearsal` → `client`, `admission`, `store` →
//! `stock`, `payment` → `protocol`. ARCHITECTURE.md walks one purchase through the files.

pub mod admin;
pub mod admission;
pub mod cli;
pub mod client;
pub mod config;
pub mod gateway;
pub mod orders;
pub mod payment;
pub mod protocol;
pub mod rehearsal;
pub mod stock;
pub mod store;

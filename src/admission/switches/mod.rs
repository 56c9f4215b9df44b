//! Switches: what the person on call changes while a sale runs, and what it means.
//!
//! Names, scopes and values ([`Switch`]), and all of them as they stand ([`SwitchBoard`]). Pure: a store keeps the texts,
//! the gateway follows it and publishes a board. Nothing here fails on what a store holds: what cannot be read is
//! told, and what was in force before stays.
//!
//! A switch is declared here together with the mechanism that obeys it, never before it.

mod board;
mod open_unpaid;
mod orders_mode;
mod rate;
mod stock_mode;
mod switch;

pub use board::{Ignored, SwitchBoard};
pub use open_unpaid::{UnpaidCap, UnpaidOf};
pub use orders_mode::OrdersMode;
pub use rate::{Limit, RateSetting};
pub use stock_mode::StockMode;
pub use switch::{Entry, LogLevel, Switch, SwitchError, SwitchKind};

#[cfg(test)]
mod tests;

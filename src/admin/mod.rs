//! Operators: what they do to activities and switches, and what they see of a running process.
//!
//! [`activities`] is used by the commands; [`http`] by every process that serves, through its [`probe`]; [`switches`] by
//! both. None of them decides anything about stock: they write what the store then applies, and read what the parts count.

pub mod activities;
pub mod allow_lists;
pub mod http;
pub mod http_risk;
mod payments;
pub mod probe;
mod reply;
pub mod risk;
pub mod switches;

//! Operators: what they do to activities and switches, and what they see of a running process.
//!
//! [`activities`] is used by the commands; [`http`] by every process that serves; [`switches`] by both. Neither decides anything about
//! stock: they write what the store then applies, and read what the parts count.

pub mod activities;
pub mod allow_lists;
pub mod http;
pub mod http_risk;
pub mod payments;
pub mod risk;
pub mod switches;

//! Operators: what they do to activities, and what they see of a running process.
//!
//! [`activities`] is used by the commands; [`http`] by every process that serves. Neither decides anything about
//! stock: they write what the store then applies, and read what the parts count.

pub mod activities;
pub mod http;

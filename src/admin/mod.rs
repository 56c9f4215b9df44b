//! Operators: activities, health, metrics.

pub mod activities;

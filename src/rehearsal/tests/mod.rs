//! Histories and databases made by hand: one that is right, and others that are each wrong in one way.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "tests")]

mod audit;
mod fixture;
mod funnel;
mod life;
mod stock;

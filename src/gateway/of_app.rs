//! What an app connection keeps of its one user, address and device: looked up once, then at hand.
//!
//! Belongs to the connection's task. It comes with the first request that asks for it: an idle connection has one word.

use std::cell::OnceCell;

use super::ask::RiskHeld;
use crate::admission::limits::Held;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct OfApp(OnceCell<Box<Kept>>);

/// What is kept.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// The limiters of the user and the address.
    pub(super) limits: Held,
    /// What the lists say of them and of the device.
    pub(super) risk: RiskHeld,
}

impl OfApp {
    pub(super) const fn new() -> Self {
        Self(OnceCell::new())
    }

    pub(super) fn kept(&self) -> &Kept {
        self.0.get_or_init(Box::default)
    }
}

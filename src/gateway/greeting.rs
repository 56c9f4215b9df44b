//! What a client said of itself in HELLO, as far as it is needed later.
//!
//! Belongs to the connection's task.

use crate::admission::clients::Platform;

/// See the module: one word in each connection.
#[derive(Debug)]
pub(super) struct Greeting(Option<Box<Said>>);

#[derive(Debug)]
struct Said {
    is_back_end: bool,
    /// Its name; empty = none.
    device: Box<str>,
}

impl Greeting {
    /// Nothing was said yet, or nothing of interest.
    pub(super) const NONE: Self = Self(None);

    pub(super) fn new(platform: Platform, device: &str) -> Self {
        let is_back_end = platform == Platform::BackEnd;
        let is_needed = is_back_end || !device.is_empty();
        Self(is_needed.then(|| Box::new(Said { is_back_end, device: device.into() })))
    }

    pub(super) fn device(&self) -> &str {
        self.0.as_ref().map_or("", |said| &said.device)
    }

    pub(super) fn is_back_end(&self) -> bool {
        self.0.as_ref().is_some_and(|said| said.is_back_end)
    }
}

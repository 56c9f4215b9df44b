//! How often a user may buy again after his order was closed, by activity.

use std::fmt;

use crate::protocol::ActivityId;

/// How often a user may buy again, by activity; never, as long as nobody has told.
#[derive(Default)]
pub(super) struct Again(Option<Box<dyn Fn(ActivityId) -> u8 + Send + Sync>>);

impl Again {
    pub(super) fn new(max: impl Fn(ActivityId) -> u8 + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(max)))
    }

    pub(super) fn max(&self, activity: ActivityId) -> u8 {
        self.0.as_ref().map_or(0, |max| max(activity))
    }
}

impl fmt::Debug for Again {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Again")
    }
}

//! Which activities are over: closed by an operator, or their window has ended.

use std::fmt;

use crate::protocol::ActivityId;

/// Nothing is, as long as nobody has told.
#[derive(Default)]
pub(super) struct Over(Option<Box<dyn Fn(ActivityId) -> bool + Send + Sync>>);

impl Over {
    pub(super) fn new(is_over: impl Fn(ActivityId) -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(is_over)))
    }

    pub(super) fn holds(&self, activity: ActivityId) -> bool {
        self.0.as_ref().is_some_and(|is_over| is_over(activity))
    }
}

impl fmt::Debug for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Over")
    }
}

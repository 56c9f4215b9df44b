//! Where switches are kept: names and values as texts, with who set them, when and why.
//!
//! A store knows nothing of what a switch means; whoever sets one has checked it, and whoever obeys one checks it again.
//! Every method may be called from any task. On failure nothing was set, or it was and the next reading says so.

use std::future::Future;
use std::time::Duration;

use super::StoreError;

/// Changes that are remembered for those who follow them; switches themselves are kept for ever.
pub const CHANGES_KEPT: usize = 1000;

/// From here on it is no version, but what somebody's hand has written: the year 4821 in Unix milliseconds. What stands
/// under one is as good as what cannot be read, so that versions given later need not be greater.
pub const VERSION_MAX: u64 = 90_000_000_000_000;

/// A switch to be set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSwitch {
    /// Its name, scope included.
    pub name: String,
    /// What it is set to.
    pub value: String,
    /// Who sets it.
    pub who: String,
    /// Why.
    pub why: String,
}

/// A switch as it was set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetSwitch {
    /// Its name, scope included.
    pub name: String,
    /// What it was set to.
    pub value: String,
    /// Greater than that of everything set before, of whatever name: Unix milliseconds, or the next number after the
    /// last one where that clock did not move on. So what is set after a store lost its data is newer than what it lost.
    pub version: u64,
    /// When, in Unix milliseconds by the store's clock.
    pub at_ms: u64,
    /// Who set it.
    pub who: String,
    /// Why.
    pub why: String,
}

/// Everything a store keeps of switches, at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    /// By name.
    pub set: Vec<SetSwitch>,
    /// Names under which something else is kept, by somebody else's hand.
    pub unreadable: Vec<String>,
}

impl Switches {
    /// That of the last change; 0 when nothing was ever set.
    pub fn version(&self) -> u64 {
        self.set.iter().map(|switch| switch.version).max().unwrap_or_default()
    }

    /// What of `known` is missing here, or older: the store has lost it.
    pub fn lost<'a>(&'a self, known: &'a [SetSwitch]) -> impl Iterator<Item = &'a SetSwitch> {
        known.iter().filter(|known| {
            let here = self.set.binary_search_by(|here| here.name.as_str().cmp(&known.name));
            let here = here.ok().and_then(|index| self.set.get(index));
            match here {
                Some(here) => here.version < known.version,
                None => !self.unreadable.contains(&known.name),
            }
        })
    }
}

/// A store of switches.
pub trait SwitchStore: Send + Sync + 'static {
    /// Every switch that was ever set.
    fn switches(&self) -> impl Future<Output = Result<Switches, StoreError>> + Send;

    /// Whether a switch of this name is obeyed by anybody here.
    fn keeps(&self, name: &str) -> bool {
        let _ = name;
        true
    }

    /// Sets one, and remembers the change, in one step; its version. After a failure it may be set or not, or be set a
    /// moment later; but not over what somebody else has set by then.
    fn set_switch(&self, new: &NewSwitch) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Changes after a version, oldest first; waits up to `wait` for one, and may give up earlier. Only the last
    /// [`CHANGES_KEPT`] are there: for what holds now, see [`switches`](Self::switches). Dropping the future loses
    /// nothing.
    fn switch_changes(
        &self,
        after: u64,
        wait: Duration,
    ) -> impl Future<Output = Result<Vec<SetSwitch>, StoreError>> + Send;

    /// Puts back what the store has lost, each unless something newer stands there by now; how many that were. A store
    /// that loses nothing has nothing to do.
    fn restore_switches(&self, lost: &[SetSwitch]) -> impl Future<Output = Result<u64, StoreError>> + Send {
        let _ = lost;
        std::future::ready(Ok(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(name: &str, version: u64) -> SetSwitch {
        let text = |text: &str| text.to_owned();
        SetSwitch { name: text(name), value: text("v"), version, at_ms: 1, who: text("w"), why: text("y") }
    }

    #[test]
    fn what_is_missing_or_older_was_lost_and_what_cannot_be_read_was_not() {
        let here =
            Switches { set: vec![set("a", 5), set("b", 7), set("d", 9)], unreadable: vec!["c".to_owned()] };
        assert_eq!(here.version(), 9);
        let known = [set("a", 6), set("b", 7), set("c", 8), set("d", 3), set("e", 1)];
        assert!(here.lost(&known).map(|lost| lost.name.as_str()).eq(["a", "e"]));
        assert_eq!(here.lost(&[]).count(), 0);
        assert_eq!(Switches::default().lost(&known).count(), 5);
    }
}

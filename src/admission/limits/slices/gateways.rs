//! How many gateways share a rate, from what is heard of them. Pure.
//!
//! More than before counts at once: until then they give out too much together. Fewer counts only after it has been
//! heard for a while without a gap: a store that was away has not heard of anybody for as long, and one that has lost
//! its data knows of whoever speaks first alone.

/// For so long fewer have to be heard of before it counts.
const HOLD_NS: u64 = 1_500_000_000;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gateways {
    in_force: u32,
    /// Since when fewer were heard of, and the most that were.
    fewer: Option<(u64, u32)>,
}

impl Gateways {
    /// At least one.
    pub(super) fn in_force(self) -> u32 {
        self.in_force.max(1)
    }

    /// So many were heard of.
    pub(super) fn heard(&mut self, now_ns: u64, count: u32) {
        if count >= self.in_force {
            (self.in_force, self.fewer) = (count, None);
            return;
        }
        let (since_ns, most) = self.fewer.unwrap_or((now_ns, count));
        let most = most.max(count);
        if now_ns.saturating_sub(since_ns) < HOLD_NS {
            self.fewer = Some((since_ns, most));
        } else {
            (self.in_force, self.fewer) = (most, None);
        }
    }

    /// Nothing was heard: what was counted last still counts.
    pub(super) const fn silence(&mut self) {
        self.fewer = None;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::arithmetic_side_effects, reason = "tests")]

    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn more_count_at_once_and_fewer_only_when_they_stay_fewer() {
        let mut gateways = Gateways::default();
        assert_eq!(gateways.in_force(), 1);
        gateways.heard(0, 3);
        assert_eq!(gateways.in_force(), 3);
        // A store that begins anew hears of one after the other.
        gateways.heard(S, 1);
        gateways.heard(2 * S, 2);
        assert_eq!(gateways.in_force(), 3);
        gateways.heard(2 * S + S / 2, 1);
        assert_eq!(gateways.in_force(), 2, "the most of that time");
        gateways.heard(3 * S, 1);
        gateways.silence();
        gateways.heard(4 * S + S / 2, 1);
        assert_eq!(gateways.in_force(), 2, "nothing was heard in between");
        gateways.heard(6 * S, 1);
        assert_eq!(gateways.in_force(), 1);
        gateways.heard(6 * S, 0);
        assert_eq!(gateways.in_force(), 1);
    }
}

//! How units are shared among shards, by both databases. Pure.

use crate::protocol::{SkuKey, UserId};
use crate::stock::calls::{SHARDS, ShardId};

/// Where an SKU's odd units go first: another shard for every SKU, so that small stocks do not meet in one.
fn first_shard(sku: SkuKey) -> usize {
    ShardId::of(UserId((u64::from(sku.activity.0) << 16) | u64::from(sku.sku.0))).index()
}

/// Splits units over the 16 shards as evenly as possible.
pub(super) fn split(units: u32, sku: SkuKey) -> [u32; SHARDS] {
    let mut shares = [0; SHARDS];
    let mut shards: Vec<usize> = (0..SHARDS).collect();
    shards.rotate_left(first_shard(sku));
    for (shard, share) in split_over(units, &shards) {
        if let Some(slot) = shares.get_mut(shard) {
            *slot = share;
        }
    }
    shares
}

/// Splits units over some shards as evenly as possible; those named first get the odd ones.
pub(super) fn split_over(units: u32, shards: &[usize]) -> Vec<(usize, u32)> {
    let count = u32::try_from(shards.len()).unwrap_or(u32::MAX);
    let (Some(each), Some(odd)) = (units.checked_div(count), units.checked_rem(count)) else {
        return Vec::new();
    };
    let share = |(shard, nth): (&usize, u32)| (*shard, each.saturating_add(u32::from(nth < odd)));
    shards.iter().zip(0..).map(share).collect()
}

/// Takes up to `units` of what is free, as evenly as the shards allow.
pub(super) fn take(units: u32, free: &[u32; SHARDS]) -> [u32; SHARDS] {
    let mut taken = [0; SHARDS];
    let mut rest = units;
    let mut emptiest_first: Vec<_> = free.iter().copied().zip(0_usize..).collect();
    emptiest_first.sort_unstable();
    // What an emptier shard cannot give is shared by those after it.
    for ((free, shard), left) in emptiest_first.into_iter().zip((1..=16_u32).rev()) {
        let given = free.min(rest.checked_div(left).unwrap_or(0));
        if let Some(slot) = taken.get_mut(shard) {
            *slot = given;
        }
        rest = rest.saturating_sub(given);
    }
    taken
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        reason = "tests"
    )]

    use proptest::prelude::*;

    use super::*;
    use crate::protocol::{ActivityId, SkuId};

    proptest! {
        #[test]
        fn units_are_split_evenly_and_whole(units: u32, activity: u32, sku: u16) {
            let sku = SkuKey { activity: ActivityId(activity), sku: SkuId(sku) };
            let shares = split(units, sku);
            prop_assert_eq!(shares.iter().map(|share| u64::from(*share)).sum::<u64>(), u64::from(units));
            let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
            prop_assert!(most - least <= 1);
            prop_assert_eq!(shares[first_shard(sku)], *most);
        }

        #[test]
        fn a_take_is_what_is_asked_or_all_there_is(
            units in 0..200_u32,
            free in proptest::array::uniform16(0..20_u32),
        ) {
            let taken = take(units, &free);
            prop_assert_eq!(taken.iter().sum::<u32>(), units.min(free.iter().sum()));
            for (taken_here, free_here) in taken.iter().zip(&free) {
                prop_assert!(taken_here <= free_here);
                // Whoever gave less than another (by more than the odd unit) gave all it had.
                prop_assert!(taken.iter().all(|other| other - taken_here.min(other) <= 1 || taken_here == free_here));
            }
        }

        #[test]
        fn some_shards_share_all_of_it(units: u32, shards in 0..17_usize) {
            let shards: Vec<usize> = (0..shards).collect();
            let shares = split_over(units, &shards);
            let sum: u64 = shares.iter().map(|(_, share)| u64::from(*share)).sum();
            prop_assert_eq!(sum, if shards.is_empty() { 0 } else { u64::from(units) });
        }
    }
}

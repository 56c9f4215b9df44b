//! What an activity holds back from Redis, compared with itself: pure. Both sides are of one transaction of the database,
//! so that a difference is exact at any instant.

use super::difference::{Difference, Kind, Remedy, plural};
use super::evidence::Evidence;
use super::findings::Findings;
use crate::stock::calls::ShardId;

/// Adds what the sums of the reserve say.
pub(super) fn add_up(evidence: &Evidence, findings: &mut Findings) {
    for (sku, books) in &evidence.sql.reserve {
        findings.figures.entry(*sku).or_default().reserve = Some(*books);
        let off = books.off();
        if off == 0 {
            continue;
        }
        let many = if off > 0 { "many" } else { "few" };
        let sentence = format!(
            "the reserve has {} {} too {many}: {} free, where what was held back, moves and orders leave {}",
            off.unsigned_abs(),
            plural(off),
            books.free,
            books.free.saturating_sub(off)
        );
        let at = (ShardId::ALL[0], *sku);
        let difference = Difference::of_units(Kind::ReserveUnits, at, off, sentence, Remedy::CountReserve);
        findings.differences.push(Difference { shard: None, ..difference });
    }
}

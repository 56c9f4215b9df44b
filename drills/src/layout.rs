//! What every drill's installation is like.

/// The activity of every drill.
pub(crate) const ACTIVITY: u32 = 7;
/// Shards of an installation.
pub(crate) const SHARDS: usize = 16;
/// What a unit of any SKU costs.
pub(crate) const PRICE_MINOR: u64 = 999;

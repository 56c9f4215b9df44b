//! What the reserve of an SKU adds up to. Pure data.

/// What the reserve of an SKU adds up to; none of it is in the other figures. `total = free + sold`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReserveFigures {
    /// Held back so far, less what was handed over to Redis.
    pub total: u64,
    /// Free, or on its way between two shards.
    pub free: u64,
    /// Units of orders that hold them.
    pub sold: u64,
}

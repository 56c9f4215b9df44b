//! The switch of what purchases are sold from, where there is a choice.

/// What gateways of the production form sell from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StockMode {
    /// As configured.
    Default,
    /// From Redis alone.
    Redis,
    /// From the reserve in the database.
    Database,
}

impl StockMode {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Default, Self::Redis, Self::Database];

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Redis => "redis",
            Self::Database => "database",
        }
    }
}

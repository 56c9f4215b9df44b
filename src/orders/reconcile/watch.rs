//! How far a reconciliation is, for whoever shows it. Called often, so it must be quick.

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Shards are read.
    Shards,
    /// What is on its way is read.
    Feeds,
    /// SQL is read.
    Database,
    /// Differences are corrected.
    Mending,
}

/// Is told how far it is.
pub trait Watch: Send + Sync {
    /// So much of a stage is done.
    fn at(&self, stage: Stage, done: u64, total: u64);
}

//! Arguments that say where the data is, and how to print: of all commands that operators use.

use std::path::PathBuf;

use clap::Args;

use super::ConfigArgs;

/// Where the data is, and how to print. With store.kind = "redis" it is in the MySQL or MariaDB of the configuration.
#[derive(Debug, Args)]
pub(super) struct Common {
    /// Data folder of the embedded store [default: what the configuration says]
    #[arg(long, value_name = "DIR")]
    pub(super) data_dir: Option<PathBuf>,
    #[command(flatten)]
    pub(super) config: ConfigArgs,
    /// Print one JSON value
    #[arg(long)]
    pub(super) json: bool,
}

/// One activity.
#[derive(Debug, Args)]
pub(super) struct One {
    /// Its number
    pub(super) id: u64,
    #[command(flatten)]
    pub(super) common: Common,
}

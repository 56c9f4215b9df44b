//! Arguments of `rushgate switch`.

use clap::{Args, Subcommand};

use super::data_args::Common;
use super::whoami::whoami;

/// Arguments of `switch`.
#[derive(Debug, Args)]
pub(super) struct SwitchArgs {
    #[command(subcommand)]
    pub(super) command: SwitchCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum SwitchCommand {
    /// All switches that were ever set, and what there is to set
    List(Common),
    /// Set one; every gateway obeys within 100 ms
    Set(SetArgs),
    /// Print what is set from now on, until Ctrl-C
    Watch(Common),
}

#[derive(Debug, Args)]
pub(super) struct SetArgs {
    #[arg(
        help = "Its name: entry, entry/7 (one activity), limits.per_ip, log_level, drain/12 (one gateway)"
    )]
    pub(super) name: String,
    /// What to set it to, such as closed
    pub(super) value: String,
    /// Why, for those who look at it later
    #[arg(long)]
    pub(super) why: String,
    /// Who sets it
    #[arg(long, default_value_t = whoami())]
    pub(super) who: String,
    #[command(flatten)]
    pub(super) common: Common,
}

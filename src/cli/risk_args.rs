//! Arguments of `rushgate risk`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use super::data_args::Common;
use super::whoami::whoami;
use crate::config::parse_duration;

const EFFECT_HELP: &str =
    "block: told BLOCKED. slow: one request in risk.slow_interval passes, others are told RATE_LIMITED";

/// Arguments of `risk`.
#[derive(Debug, Args)]
pub(super) struct RiskArgs {
    #[command(subcommand)]
    pub(super) command: RiskCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum RiskCommand {
    /// Who is listed, by whom and why
    List(ListArgs),
    /// Block or slow down a user, addresses or a device; every gateway does within a second
    Add(AddArgs),
    /// Take them off
    Remove(RemoveArgs),
    /// List everybody in a file, one a line
    Import(ImportArgs),
    /// Why was this user turned away: what is listed of him, and what became of his last BUY
    Explain(ExplainArgs),
}

#[derive(Debug, Args)]
pub(super) struct ListArgs {
    /// Only users, addresses or devices
    #[arg(long)]
    pub(super) kind: Option<Kind>,
    /// How many are shown at most; 0 = all
    #[arg(long, default_value_t = 1000)]
    pub(super) limit: usize,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Kind {
    User,
    Ip,
    Device,
}

/// What becomes of those who are listed.
#[derive(Debug, Args)]
pub(super) struct Terms {
    #[arg(long, default_value = "block", help = EFFECT_HELP)]
    pub(super) effect: String,
    /// For how long, such as 2h [default: for good]
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    pub(super) listed_for: Option<Duration>,
    /// Why, for those who look at it later
    #[arg(long)]
    pub(super) why: String,
    /// Who lists them
    #[arg(long, default_value_t = whoami())]
    pub(super) who: String,
}

#[derive(Debug, Args)]
pub(super) struct AddArgs {
    /// user:42, ip:10.0.0.0/8, device:NAME
    #[arg(required = true, value_name = "SUBJECT")]
    pub(super) subjects: Vec<String>,
    #[command(flatten)]
    pub(super) terms: Terms,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Debug, Args)]
pub(super) struct RemoveArgs {
    /// As it was listed: user:42, ip:10.0.0.0/8, device:NAME
    #[arg(required = true, value_name = "SUBJECT")]
    pub(super) subjects: Vec<String>,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Debug, Args)]
pub(super) struct ImportArgs {
    /// A subject a line, and behind tabs, if it is another than the options say, its effect and for how long; # begins
    /// a comment. - reads from stdin
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,
    #[command(flatten)]
    pub(super) terms: Terms,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Debug, Args)]
pub(super) struct ExplainArgs {
    /// The user's number
    pub(super) user: u64,
    /// The user's device
    #[arg(long, value_name = "NAME")]
    pub(super) device: Option<String>,
    /// The user's address
    #[arg(long, value_name = "ADDRESS")]
    pub(super) ip: Option<IpAddr>,
    /// The admin port of a gateway on this machine; may be repeated [default: admin.listen]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(super) admin: Vec<SocketAddr>,
    #[command(flatten)]
    pub(super) common: Common,
}

//! Arguments of `rushgate token session-add` and `session-remove`.

use std::time::Duration;

use clap::Args;
use serde_json::Value;

use super::data_args::Common;
use super::token_text::parse_claim;
use crate::config::parse_duration;

/// Arguments of `token session-add`.
#[derive(Debug, Args)]
pub(super) struct SessionAddArgs {
    /// The session's token; "-" reads it from standard input [default: a new one, which is printed]
    pub(super) token: Option<String>,
    /// The user it speaks for, 1 to 2^63-1
    #[arg(long, required_unless_present = "service", conflicts_with = "service",
        value_parser = clap::value_parser!(u64).range(1..=crate::protocol::UserId::MAX))]
    pub(super) user: Option<u64>,
    /// For a service connection, which names the user in each request
    #[arg(long)]
    pub(super) service: bool,
    /// How long it lasts
    #[arg(long, default_value = "1h", value_parser = parse_duration)]
    pub(super) ttl: Duration,
    /// What it says of its user besides, such as level=3, vip=true or city=Wuhan; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_claim)]
    pub(super) claim: Vec<(String, Value)>,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Arguments of `token session-remove`.
#[derive(Debug, Args)]
pub(super) struct SessionRemoveArgs {
    /// The session's token; "-" reads it from standard input, where no list of processes shows it
    pub(super) token: String,
    #[command(flatten)]
    pub(super) common: Common,
}

//! Arguments of `rushgate activity allow`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::data_args::{Common, One};
use crate::protocol::UserId;

/// Arguments of `activity allow`.
#[derive(Debug, Args)]
pub(super) struct AllowArgs {
    #[command(subcommand)]
    pub(super) command: AllowCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum AllowCommand {
    /// Let users in
    Add(Users),
    /// Take users out
    Remove(Users),
    /// Let in the users of a file, one id a line; "-" reads standard input
    Import(ImportArgs),
    /// Print who is on it, one a line
    List(One),
    /// Take out everybody
    Clear(One),
}

#[derive(Debug, Args)]
pub(super) struct Users {
    /// The activity's number
    pub(super) id: u64,
    /// User ids
    #[arg(required = true, value_name = "USER", value_parser = parse_user)]
    pub(super) named: Vec<UserId>,
    #[command(flatten)]
    pub(super) common: Common,
}

#[derive(Debug, Args)]
pub(super) struct ImportArgs {
    /// The activity's number
    pub(super) id: u64,
    /// The file
    pub(super) file: PathBuf,
    #[command(flatten)]
    pub(super) common: Common,
}

fn parse_user(text: &str) -> Result<UserId, String> {
    let user = text.parse().ok().and_then(UserId::new);
    user.ok_or_else(|| format!("a user id is a number from 1 to {}", UserId::MAX))
}

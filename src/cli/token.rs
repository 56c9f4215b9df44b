//! `rushgate token mint`: a token for development and for load tests.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};

use super::output::print;
use super::startup::minter;
use super::{ConfigArgs, Failure};
use crate::admission::identity::IdentityKind;
use crate::config::{KeyFiles, parse_duration};
use crate::protocol::UserId;

/// Arguments of `token`.
#[derive(Debug, Args)]
pub(super) struct TokenArgs {
    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(Debug, Subcommand)]
enum TokenCommand {
    /// Print a signed token for one user, or for a back end (--service)
    Mint(MintArgs),
}

#[derive(Debug, Args)]
struct MintArgs {
    /// The user it speaks for, 1 to 2^63-1
    #[arg(long, required_unless_present = "service", conflicts_with = "service")]
    user: Option<u64>,
    /// For a service connection, which names the user in each request
    #[arg(long)]
    service: bool,
    /// How long it is valid
    #[arg(long, default_value = "1h", value_parser = parse_duration)]
    ttl: Duration,
    /// The private key (PEM), when the algorithm is EdDSA
    #[arg(long, value_name = "FILE")]
    private_key_file: Option<PathBuf>,
    #[command(flatten)]
    config: ConfigArgs,
}

/// Runs the command.
pub(super) fn run(args: TokenArgs) -> Result<(), Failure> {
    let TokenCommand::Mint(args) = args.command;
    let kind = match args.user.map(UserId::new) {
        None => IdentityKind::Service,
        Some(Some(user)) => IdentityKind::App(user),
        Some(None) => return Err(Failure::cannot_start("--user has to be from 1 to 2^63-1")),
    };
    let config = args.config.load(KeyFiles::Unopened)?;
    let minter = minter(&config, args.private_key_file)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let token = minter
        .mint(kind, now, args.ttl.max(Duration::from_secs(1)))
        .map_err(|error| Failure::bad_result(error.to_string()))?;
    print(&token);
    Ok(())
}

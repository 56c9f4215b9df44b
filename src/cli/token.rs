//! `rushgate token mint`: a token for development and for load tests.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};

use super::output::print;
use super::startup::minter;
use super::{ConfigArgs, Failure};
use crate::admission::identity::{IdentityKind, MintKey};
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
    /// The private key (PEM, Ed25519 or P-256) to sign with
    #[arg(long, value_name = "FILE")]
    private_key_file: Option<PathBuf>,
    /// The HS256 secret to sign with, if it is not the configured one
    #[arg(long, value_name = "FILE", conflicts_with = "private_key_file")]
    secret_file: Option<PathBuf>,
    /// How the token calls its key [default: auth.kid, if the configured secret signs]
    #[arg(long)]
    kid: Option<String>,
    #[command(flatten)]
    config: ConfigArgs,
}

/// Runs the command.
pub(super) fn run(args: TokenArgs) -> Result<(), Failure> {
    match args.command {
        TokenCommand::Mint(args) => mint(args),
    }
}

fn now_unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn mint(args: MintArgs) -> Result<(), Failure> {
    let kind = match args.user.map(UserId::new) {
        None => IdentityKind::Service,
        Some(Some(user)) => IdentityKind::App(user),
        Some(None) => return Err(Failure::cannot_start("--user has to be from 1 to 2^63-1")),
    };
    let config = args.config.load(KeyFiles::Unopened)?;
    let private_key = args.private_key_file.map(MintKey::PrivateKeyFile);
    let minter = minter(&config, private_key.or(args.secret_file.map(MintKey::SecretFile)), args.kid)?;
    let token = minter
        .mint(kind, now_unix_s(), args.ttl.max(Duration::from_secs(1)))
        .map_err(|error| Failure::bad_result(error.to_string()))?;
    print(&token);
    Ok(())
}

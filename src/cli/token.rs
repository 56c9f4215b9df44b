//! `rushgate token`: tokens for development and load tests, and why one is refused.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::output::{print, print_json};
use super::session_args::{SessionAddArgs, SessionRemoveArgs};
use super::startup::minter;
use super::times::now_unix_s;
use super::token_report::{Verdict, content};
use super::token_text::{given, parse_claim};
use super::{ConfigArgs, Failure, session};
use crate::admission::identity::{IdentityKind, MintKey, Verifier, inspect};
use crate::config::{KeyFiles, parse_duration};
use crate::protocol::UserId;
use crate::store::sessions::SessionKey;

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
    /// Print what a token says, without checking it
    Inspect(InspectArgs),
    /// Say whether this configuration's gateway takes a token, and if not, why
    Verify(VerifyArgs),
    /// Keep a session, whose token says nothing itself (auth.sessions)
    SessionAdd(SessionAddArgs),
    /// Remove a session: its token opens no connection any more
    SessionRemove(SessionRemoveArgs),
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
    /// What it says of its user besides, such as level=3, vip=true or city=Wuhan; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_claim)]
    claim: Vec<(String, Value)>,
    /// How the token calls its key [default: auth.kid, if the configured secret signs]
    #[arg(long)]
    kid: Option<String>,
    #[command(flatten)]
    config: ConfigArgs,
}

#[derive(Debug, Args)]
struct InspectArgs {
    /// The token; "-" reads it from standard input, where no list of processes shows it
    token: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct VerifyArgs {
    /// The token; "-" reads it from standard input, where no list of processes shows it
    token: String,
    /// From where the client would connect; matters for service tokens
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    from: IpAddr,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    config: ConfigArgs,
}

/// Runs the command.
pub(super) fn run(args: TokenArgs) -> Result<(), Failure> {
    match args.command {
        TokenCommand::Mint(args) => mint(args),
        TokenCommand::Inspect(args) => inspected(args),
        TokenCommand::Verify(args) => verify(args),
        TokenCommand::SessionAdd(args) => session::add(args),
        TokenCommand::SessionRemove(args) => session::remove(args),
    }
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
        .with_claims(args.claim.into_iter().collect())
        .mint(kind, now_unix_s(), args.ttl.max(Duration::from_secs(1)))
        .map_err(|error| Failure::bad_result(error.to_string()))?;
    print(&token);
    Ok(())
}

fn inspected(args: InspectArgs) -> Result<(), Failure> {
    let token = given(args.token)?;
    let said = inspect(token.as_bytes()).map_err(|_| {
        Failure::bad_result("this is not a token: three parts of base64url with dots between")
    })?;
    if args.json {
        return print_json(&json!({ "header": said.header, "claims": said.claims }));
    }
    print(&format!(
        "{}\nNothing of this was checked: rushgate token verify does.",
        content(&said, now_unix_s())
    ));
    Ok(())
}

fn verify(args: VerifyArgs) -> Result<(), Failure> {
    let token = given(args.token)?;
    let config = args.config.load(KeyFiles::Tried)?;
    let settings = config.identity_settings();
    let verifier = Verifier::new(&settings).map_err(|error| Failure::cannot_start(error.to_string()))?;
    if let Some(digest) = verifier.session_of(token.as_bytes()) {
        let key = SessionKey(digest);
        return Err(Failure::bad_result(format!(
            "this is no JWT but the token of a session: what counts is kept in the store under session:{key}"
        )));
    }
    let verdict = Verdict::of(&verifier, &settings, token.as_bytes(), args.from, now_unix_s());
    if args.json {
        print_json(&verdict.json())?;
    } else if verdict.is_good() {
        print(&verdict.to_string());
    }
    match (verdict.is_good(), args.json) {
        (true, _) => Ok(()),
        (false, true) => Err(Failure::bad_result("")),
        (false, false) => Err(Failure::bad_result(verdict.to_string())),
    }
}

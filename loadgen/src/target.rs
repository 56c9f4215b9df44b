//! The arguments that every command shares: which gateway, which sale, whose tokens.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use rushgate::admission::identity::{DEV_SECRET_FILE, IdentityKind, MintKey, MintSettings, Minter};
use rushgate::client::ClientTls;
use rushgate::config::{Config, ConfigFile, KeyFiles, Sources};
use rushgate::protocol::{ActivityId, SkuId, UserId};
use rushgate::store::crash_point;

use crate::output::Failure;

/// No command runs longer than this, so that no token ends before it.
pub(crate) const TOKEN_VALID_FOR: Duration = Duration::from_secs(7200);

/// Where the keys for tokens are.
#[derive(Debug, Args)]
pub(crate) struct KeyArgs {
    /// The gateway's configuration file: what it says of tokens holds here, too (`sale` reads orders where it says)
    #[arg(long, value_name = "FILE", conflicts_with = "data_dir")]
    config: Option<PathBuf>,
    /// Without --config, the gateway's data folder: its secret for the tokens (`sale` reads its database there, too)
    #[arg(long, value_name = "DIR", default_value = "rushgate-data")]
    data_dir: PathBuf,
    /// The HS256 secret for the tokens, if it is not the gateway's
    #[arg(long, value_name = "FILE", conflicts_with = "private_key_file")]
    secret_file: Option<PathBuf>,
    /// The private key (PEM) for the tokens, when the gateway checks EdDSA or ES256
    #[arg(long, value_name = "FILE")]
    private_key_file: Option<PathBuf>,
    /// What the tokens call their key, if the gateway knows several [default: as configured]
    #[arg(long)]
    kid: Option<String>,
    /// The tokens' audience [default: as configured, else rushgate]
    #[arg(long, value_name = "NAME")]
    audience: Option<String>,
    /// The tokens' issuer, if the gateway asks for one
    #[arg(long, value_name = "NAME")]
    issuer: Option<String>,
}

impl KeyArgs {
    /// The gateway's configuration, or what follows from its data folder.
    pub(crate) fn gateway(&self) -> Result<Config, Failure> {
        let Some(file) = &self.config else {
            let mut config = Config::default();
            config.store.data_dir.clone_from(&self.data_dir);
            return Ok(config);
        };
        let mut env: Vec<_> = std::env::vars_os().collect();
        // It is named like a key and is none.
        env.retain(|(name, _)| name != crash_point::VARIABLE);
        let file = ConfigFile::Required(file.clone());
        let sources = Sources { file, env, set: Vec::new(), key_files: KeyFiles::Unopened };
        Config::load(&sources).map_err(Failure::cannot_start)
    }

    /// Makes tokens that the gateway accepts.
    pub(crate) fn minter(&self) -> Result<Minter, Failure> {
        self.minter_for(&self.gateway()?)
    }

    /// The same, of the gateway with this configuration.
    pub(crate) fn minter_for(&self, config: &Config) -> Result<Minter, Failure> {
        let key = match (&self.secret_file, &self.private_key_file) {
            (Some(file), _) => MintKey::SecretFile(file.clone()),
            (None, Some(file)) => MintKey::PrivateKeyFile(file.clone()),
            (None, None) => MintKey::SecretFile(match &config.auth.secret_file {
                Some(file) => file.clone(),
                // Read only: a secret made here would not be the gateway's.
                None => config.store.data_dir.join(DEV_SECRET_FILE),
            }),
        };
        // Another key than the gateway's own has another name.
        let is_configured = self.secret_file.is_none() && self.private_key_file.is_none();
        let kid = self.kid.clone().or_else(|| config.auth.kid.clone().filter(|_| is_configured));
        let audience = self.audience.as_ref().unwrap_or(&config.auth.audience).clone();
        let issuer = self.issuer.clone().or_else(|| config.auth.issuer.clone());
        let minter = Minter::new(&MintSettings { key, audience, issuer }).map_err(|error| {
            Failure::cannot_start(format!(
                "no tokens can be made: {error}; --config names the gateway's configuration, --data-dir its folder, \
                 --secret-file another secret"
            ))
        })?;
        Ok(minter.with_kid(kid))
    }
}

/// Which gateway, and how it is spoken to.
#[derive(Debug, Args)]
pub(crate) struct DoorArgs {
    /// The gateway
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7700")]
    addr: String,
    #[command(flatten)]
    tls: TlsArgs,
}

impl DoorArgs {
    /// Resolves the address, and reads what TLS needs.
    pub(crate) fn check(&self) -> Result<Door, Failure> {
        Ok(Door { addr: resolve(&self.addr)?, tls: self.tls.check()? })
    }
}

/// The gateway under stress, and what is asked of it.
#[derive(Debug, Args)]
pub(crate) struct TargetArgs {
    #[command(flatten)]
    door: DoorArgs,
    /// The activity asked about
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    activity: u32,
    /// The SKU to buy
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    sku: u16,
    /// Id of the first user; the others follow it
    #[arg(long, value_name = "ID", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1 << 62))]
    first_user: u64,
    #[command(flatten)]
    keys: KeyArgs,
}

/// Whether TLS is spoken, and to whom.
#[derive(Debug, Args)]
pub(crate) struct TlsArgs {
    /// Speaks TLS, to a gateway whose certificate is for this name
    #[arg(long = "tls", value_name = "NAME")]
    name: Option<String>,
    /// With --tls: the authorities that are believed, in PEM [default: those of the system]
    #[arg(long = "tls-roots", value_name = "FILE", requires = "name")]
    roots: Option<PathBuf>,
}

impl TlsArgs {
    /// `None`: it is not spoken.
    pub(crate) fn check(&self) -> Result<Option<ClientTls>, Failure> {
        let tls = self.name.as_ref().map(|name| ClientTls::new(self.roots.as_deref(), name));
        tls.transpose().map_err(|error| Failure::cannot_start(format!("--tls: {error}")))
    }
}

/// Where connections are opened, and how.
#[derive(Clone, Debug)]
pub(crate) struct Door {
    pub(crate) addr: SocketAddr,
    pub(crate) tls: Option<ClientTls>,
}

/// [`TargetArgs`], checked.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) door: Door,
    pub(crate) activity: ActivityId,
    pub(crate) sku: SkuId,
    first_user: u64,
    minter: Minter,
    now_unix_s: u64,
}

impl TargetArgs {
    /// Resolves the address alone: for servers that check no tokens.
    pub(crate) fn addr(&self) -> Result<SocketAddr, Failure> {
        resolve(&self.door.addr)
    }

    /// What is to be bought.
    pub(crate) const fn article(&self) -> (ActivityId, SkuId) {
        (ActivityId(self.activity), SkuId(self.sku))
    }

    /// The first user; the others follow it.
    pub(crate) const fn first_user(&self) -> UserId {
        UserId(self.first_user)
    }

    /// Resolves the address and reads the keys.
    pub(crate) fn check(&self) -> Result<Target, Failure> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Target {
            door: self.door.check()?,
            activity: ActivityId(self.activity),
            sku: SkuId(self.sku),
            first_user: self.first_user,
            minter: self.keys.minter()?,
            now_unix_s: now.as_secs(),
        })
    }
}

impl Target {
    /// The user of a number from 0 up.
    pub(crate) const fn user(&self, number: u64) -> UserId {
        UserId(self.first_user.saturating_add(number))
    }

    /// A token of the user of a number, for a connection of his own.
    pub(crate) fn app_token(&self, number: u64) -> Result<String, Failure> {
        self.token(IdentityKind::App(self.user(number)))
    }

    /// A token of a back end.
    pub(crate) fn service_token(&self) -> Result<String, Failure> {
        self.token(IdentityKind::Service)
    }

    fn token(&self, kind: IdentityKind) -> Result<String, Failure> {
        self.minter.mint(kind, self.now_unix_s, TOKEN_VALID_FOR).map_err(Failure::cannot_start)
    }
}

/// The address that a person wrote.
pub(crate) fn resolve(addr: &str) -> Result<SocketAddr, Failure> {
    let found = addr.to_socket_addrs().map(|mut found| found.next());
    match found {
        Ok(Some(addr)) => Ok(addr),
        Ok(None) => Err(Failure::cannot_start(format!("--addr {addr} names no address"))),
        Err(error) => Err(Failure::cannot_start(format!(
            "--addr {addr} cannot be used ({error}); write it like 127.0.0.1:7700"
        ))),
    }
}

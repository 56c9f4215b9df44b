//! From sections to the settings of the modules that use them.

use std::path::PathBuf;

use super::{Config, IpOverride, Rate};
use crate::admission::identity::{
    ClaimNames, IdentitySettings, MintKey, MintSettings, TokenAlgorithm, VerifyKey,
};
use crate::admission::limits::{self, LimitsSettings, OpenUnpaidMax};

/// Why tokens cannot be made with this configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MintSettingsError {
    /// The configuration knows only the public key.
    #[error("auth.algorithm is \"{}\": making a token needs the private key; name its file", .0.name())]
    PrivateKeyNeeded(TokenAlgorithm),
    /// It knows only a set of keys.
    #[error(
        "all keys are those of auth.jwks_file: name the file of the secret or private key to make a token with, and \
         its kid"
    )]
    KeyNeeded,
    /// A private key is of no use.
    #[error("auth.algorithm is \"HS256\": tokens are made with the secret, not with private key {}", .0.display())]
    PrivateKeyUnused(PathBuf),
}

impl Config {
    /// For `admission::limits`.
    pub fn limits_settings(&self) -> LimitsSettings {
        let limits = &self.limits;
        LimitsSettings {
            global: limits.global.into(),
            per_ip: limits.per_ip.into(),
            per_user: limits.per_user.into(),
            result_per_user: limits.result_per_user.into(),
            per_connection: limits.per_connection.into(),
            per_activity: limits.per_activity.into(),
            auth_per_ip: limits.auth_per_ip.into(),
            open_unpaid: OpenUnpaidMax {
                per_user: limits.open_unpaid_per_user_max,
                per_device: limits.open_unpaid_per_device_max,
            },
            per_ip_overrides: limits.per_ip_overrides.iter().map(|entry| (*entry).into()).collect(),
            keys_max: limits.keys_max,
        }
    }

    /// For a `Verifier`.
    pub fn identity_settings(&self) -> IdentitySettings {
        let auth = &self.auth;
        let key = match auth.algorithm {
            // Where keys are in a file, a secret that nobody asked for is not one of them.
            _ if auth.jwks_file.is_some() && !auth.names_a_key() => None,
            TokenAlgorithm::Hs256 => Some(match &auth.secret_file {
                Some(path) => VerifyKey::SecretFile(path.clone()),
                None => VerifyKey::DevSecret(self.store.data_dir.clone()),
            }),
            // `load` refuses these without a key; a struct filled by hand fails when the key is read.
            TokenAlgorithm::EdDsa => {
                Some(VerifyKey::Ed25519File(auth.public_key_file.clone().unwrap_or_default()))
            }
            TokenAlgorithm::Es256 => {
                Some(VerifyKey::P256File(auth.public_key_file.clone().unwrap_or_default()))
            }
        };
        IdentitySettings {
            key,
            kid: auth.kid.clone(),
            jwks_file: auth.jwks_file.clone(),
            audience: auth.audience.clone(),
            issuer: auth.issuer.clone(),
            leeway: auth.leeway,
            service_from: auth.service_from.clone(),
            // `load` refuses names that are none; of a struct filled by hand none are kept then.
            claims: ClaimNames::new(&auth.claims).unwrap_or_default(),
            sessions: auth.sessions,
        }
    }

    /// For a `Minter` whose tokens [`Self::identity_settings`] accept: with the key given, or with the one that a
    /// gateway's configuration has, which is a secret.
    pub fn mint_settings(&self, given: Option<MintKey>) -> Result<MintSettings, MintSettingsError> {
        let auth = &self.auth;
        let key = match (given, auth.algorithm, &auth.secret_file) {
            (Some(MintKey::PrivateKeyFile(path)), TokenAlgorithm::Hs256, _) if auth.jwks_file.is_none() => {
                return Err(MintSettingsError::PrivateKeyUnused(path));
            }
            (Some(key), ..) => key,
            (None, ..) if auth.jwks_file.is_some() && !auth.names_a_key() => {
                return Err(MintSettingsError::KeyNeeded);
            }
            (None, TokenAlgorithm::Hs256, Some(path)) => MintKey::SecretFile(path.clone()),
            (None, TokenAlgorithm::Hs256, None) => MintKey::DevSecret(self.store.data_dir.clone()),
            (None, algorithm, _) => return Err(MintSettingsError::PrivateKeyNeeded(algorithm)),
        };
        Ok(MintSettings { key, audience: auth.audience.clone(), issuer: auth.issuer.clone() })
    }
}

impl From<Rate> for limits::Rate {
    fn from(rate: Rate) -> Self {
        Self { rate_per_s: rate.rate_per_s, burst: rate.burst }
    }
}

impl From<IpOverride> for limits::IpOverride {
    fn from(entry: IpOverride) -> Self {
        Self { cidr: entry.cidr, rate: limits::Rate { rate_per_s: entry.rate_per_s, burst: entry.burst } }
    }
}

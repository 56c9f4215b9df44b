//! From sections to the settings of the modules that use them.

use std::path::PathBuf;

use super::sections::TokenAlgorithm;
use super::{Config, IpOverride, Rate};
use crate::admission::identity::{IdentitySettings, MintKey, MintSettings, VerifyKey};
use crate::admission::limits::{self, LimitsSettings};

/// Why tokens cannot be made with this configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MintSettingsError {
    /// The configuration knows only the public key.
    #[error("auth.algorithm is \"EdDSA\": making a token needs the private key; name its file")]
    PrivateKeyNeeded,
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
            per_ip_overrides: limits.per_ip_overrides.iter().map(|entry| (*entry).into()).collect(),
            keys_max: limits.keys_max,
        }
    }

    /// For a `Verifier`.
    pub fn identity_settings(&self) -> IdentitySettings {
        let auth = &self.auth;
        let key = match (auth.algorithm, &auth.secret_file) {
            (TokenAlgorithm::Hs256, Some(path)) => VerifyKey::SecretFile(path.clone()),
            (TokenAlgorithm::Hs256, None) => VerifyKey::DevSecret(self.store.data_dir.clone()),
            // `load` refuses EdDSA without a key; a struct filled by hand fails when the key is read.
            (TokenAlgorithm::EdDsa, _) => {
                VerifyKey::PublicKeyFile(auth.public_key_file.clone().unwrap_or_default())
            }
        };
        IdentitySettings {
            key,
            audience: auth.audience.clone(),
            issuer: auth.issuer.clone(),
            leeway: auth.leeway,
        }
    }

    /// For a `Minter` whose tokens [`Self::identity_settings`] accept. EdDSA needs the private key, which a
    /// gateway's configuration does not have.
    pub fn mint_settings(
        &self,
        private_key_file: Option<PathBuf>,
    ) -> Result<MintSettings, MintSettingsError> {
        let key = match (self.auth.algorithm, private_key_file) {
            (TokenAlgorithm::EdDsa, Some(path)) => MintKey::PrivateKeyFile(path),
            (TokenAlgorithm::EdDsa, None) => return Err(MintSettingsError::PrivateKeyNeeded),
            (TokenAlgorithm::Hs256, Some(path)) => return Err(MintSettingsError::PrivateKeyUnused(path)),
            (TokenAlgorithm::Hs256, None) => match &self.auth.secret_file {
                Some(path) => MintKey::SecretFile(path.clone()),
                None => MintKey::DevSecret(self.store.data_dir.clone()),
            },
        };
        Ok(MintSettings { key, audience: self.auth.audience.clone(), issuer: self.auth.issuer.clone() })
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

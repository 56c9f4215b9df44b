//! What TLS is spoken with: certificate, private key and ticket keys, read from their files and judged as a whole.
//!
//! Runs at the start, and on the thread that follows the files.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use std::{fs, io};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::NoServerSessionStorage;
use rustls::{ServerConfig, version};
use sha2::{Digest as _, Sha256};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::tickets::Tickets;
use crate::gateway::settings::TlsFiles;

/// What clients may ask for by ALPN (protocol.md); who asks for nothing is served too.
const ALPN: &[u8] = b"rushgate/1";

/// Why TLS cannot be spoken with these files.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {what} {}: {source}", .path.display())]
    Read {
        /// The key that names it.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file does not hold what it should.
    #[error("{what} {}: {why}", .path.display())]
    Content {
        /// The key that names it.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        why: String,
    },
    /// The system gives no random numbers.
    #[error("the system gives no random numbers for a ticket key")]
    Random,
}

const CERTIFICATE: &str = "tls.certificate_file";
const PRIVATE_KEY: &str = "tls.private_key_file";
const TICKET_KEYS: &str = "tls.ticket_keys_file";

/// Everything for a handshake.
#[derive(Debug)]
pub(super) struct Material {
    pub(super) config: Arc<ServerConfig>,
    /// Unix seconds after which the certificate is not good any more.
    pub(super) expires_s: u64,
    /// Of what was read.
    pub(super) digest: [u8; 32],
}

impl Material {
    /// From the files as they are now. `own` are the tickets where no file has keys for them.
    pub(super) fn load(files: &TlsFiles, own: &Arc<Tickets>, now: SystemTime) -> Result<Self, TlsError> {
        let mut digest = Sha256::new();
        let pem = read(CERTIFICATE, &files.certificate)?;
        digest.update(&pem);
        let content = |what, path: &Path, why: String| TlsError::Content { what, path: path.to_owned(), why };
        let bad_certificate = |why| content(CERTIFICATE, &files.certificate, why);
        let chain = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|error| bad_certificate(format!("is not PEM: {error}")))?;
        let expires_s = match chain.first() {
            Some(leaf) => expiry(leaf, now).map_err(bad_certificate)?,
            None => {
                return Err(bad_certificate(
                    "holds no CERTIFICATE section; give the chain, the server's own first".to_owned(),
                ));
            }
        };
        let pem = read(PRIVATE_KEY, &files.private_key)?;
        digest.update(&pem);
        let bad_key = |why| content(PRIVATE_KEY, &files.private_key, why);
        let key = PrivateKeyDer::from_pem_slice(&pem)
            .map_err(|error| bad_key(format!("holds no private key in PEM: {error}")))?;
        let tickets = match &files.ticket_keys {
            None => Arc::clone(own),
            Some(path) => {
                let text = read(TICKET_KEYS, path)?;
                digest.update(&text);
                Arc::new(tickets(path, &text)?)
            }
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[&version::TLS13]);
        let config = config.map(|config| config.with_no_client_auth().with_single_cert(chain, key));
        let mut config = config
            .flatten()
            .map_err(|error| bad_key(format!("does not go with the certificate: {error}")))?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.ticketer = tickets;
        // A phone has one connection: it comes again with one ticket.
        config.send_tls13_tickets = 1;
        Ok(Self { config: Arc::new(config), expires_s, digest: digest.finalize().into() })
    }
}

fn read(what: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|source| TlsError::Read { what, path: path.to_owned(), source })
}

fn tickets(path: &Path, text: &[u8]) -> Result<Tickets, TlsError> {
    let content = |why: String| TlsError::Content { what: TICKET_KEYS, path: path.to_owned(), why };
    let text = std::str::from_utf8(text).map_err(|_| content("is not text".to_owned()))?;
    Tickets::of_text(text).map_err(|error| content(error.to_string()))
}

/// When it is not good any more, in Unix seconds; `Err` when it is not good now.
fn expiry(leaf: &CertificateDer<'_>, now: SystemTime) -> Result<u64, String> {
    let (_, certificate) =
        X509Certificate::from_der(leaf).map_err(|error| format!("is no certificate: {error}"))?;
    let validity = certificate.validity();
    let now_s = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let seconds = |time: x509_parser::time::ASN1Time| u64::try_from(time.timestamp()).unwrap_or_default();
    if now_s < seconds(validity.not_before) {
        return Err(format!("is good only from {} on", validity.not_before));
    }
    let expires_s = seconds(validity.not_after);
    if now_s > expires_s {
        return Err(format!("has expired: it was good until {}; renew it", validity.not_after));
    }
    Ok(expires_s)
}

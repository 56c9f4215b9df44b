//! TLS to a gateway: whom it is believed to be.
//!
//! Plain data that connections share; the handshake runs on the task that connects. TLS 1.3 only. Sessions are resumed with
//! the tickets that the gateway gave, so that connecting again is cheap for both.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, io};

use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore, version};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

/// What a connection reads from and writes to: its socket, or TLS on it. In a box, since the state of a session takes a
/// kilobyte and more.
pub type Wire = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// What this side asks for by ALPN (protocol.md).
const ALPN: &[u8] = b"rushgate/1";

/// Why TLS cannot be spoken to a gateway.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientTlsError {
    /// The file of roots is of no use.
    #[error("certificates to trust, {}: {why}", .path.display())]
    Roots {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The system has none.
    #[error("this system has no certificates to trust; name a file with them")]
    NoRoots,
    /// What the gateway is to be called is no name.
    #[error("{0:?} is neither a host name nor an address")]
    Name(String),
    /// What was given cannot be used together.
    #[error("TLS cannot be set up: {0}")]
    Setup(String),
}

/// Speaks TLS with a gateway of a name. Cheap to clone; clones share what they remember of sessions.
#[derive(Clone)]
pub struct ClientTls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls").field("name", &self.name).finish_non_exhaustive()
    }
}

impl ClientTls {
    /// `roots`: certificates in PEM, of the authorities that are believed; `None` = those of the system. `name`: what the
    /// gateway's certificate has to be for.
    pub fn new(roots: Option<&Path>, name: &str) -> Result<Self, ClientTlsError> {
        let name =
            ServerName::try_from(name.to_owned()).map_err(|_| ClientTlsError::Name(name.to_owned()))?;
        let setup = |error: &dyn fmt::Display| ClientTlsError::Setup(error.to_string());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(trusted(roots)?), Arc::clone(&provider));
        let verifier = verifier.build().map_err(|error| setup(&error))?;
        let config = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&version::TLS13]);
        let config = config.map_err(|error| setup(&error))?;
        let mut config = config.with_webpki_verifier(verifier).with_no_client_auth();
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(Self { config: Arc::new(config), name })
    }

    /// The same, with nothing remembered: each handshake is a full one.
    #[must_use]
    pub fn without_tickets(&self) -> Self {
        let mut config = ClientConfig::clone(&self.config);
        config.resumption = Resumption::disabled();
        Self { config: Arc::new(config), name: self.name.clone() }
    }

    /// Makes the handshake on a connected socket.
    pub async fn connect(&self, stream: TcpStream) -> io::Result<Wire> {
        let connector = TlsConnector::from(Arc::clone(&self.config));
        let shaken = connector.connect(self.name.clone(), stream).await?;
        Ok(Wire::Right(Box::new(shaken)))
    }
}

fn trusted(roots: Option<&Path>) -> Result<RootCertStore, ClientTlsError> {
    let mut store = RootCertStore::empty();
    let Some(path) = roots else {
        store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return if store.is_empty() { Err(ClientTlsError::NoRoots) } else { Ok(store) };
    };
    let bad = |why: String| ClientTlsError::Roots { path: path.to_owned(), why };
    let pem = std::fs::read(path).map_err(|error| bad(format!("cannot be read: {error}")))?;
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|error| bad(format!("is not PEM: {error}")))?;
        store.add(certificate).map_err(|error| bad(error.to_string()))?;
    }
    if store.is_empty() { Err(bad("holds no CERTIFICATE section".to_owned())) } else { Ok(store) }
}

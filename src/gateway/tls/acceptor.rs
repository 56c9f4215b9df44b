//! What handshakes are made with, and how many there are at once.
//!
//! Shared by all workers; read at the beginning of each handshake, replaced by the thread that follows the files.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use arc_swap::ArcSwap;
use rustls::ServerConfig;

use super::material::{Material, TlsError};
use super::tickets::Tickets;
use crate::gateway::settings::{TlsFiles, TlsSettings};

/// See the module.
#[derive(Debug)]
pub(in crate::gateway) struct Acceptor {
    pub(super) files: TlsFiles,
    /// The tickets where no file has keys for them: the same as long as the process lives.
    own: Arc<Tickets>,
    material: ArcSwap<Material>,
    handshakes: AtomicUsize,
    handshakes_max: usize,
}

/// One of the handshakes that there may be at once; given back when dropped.
#[derive(Debug)]
pub(super) struct Turn<'a>(&'a AtomicUsize);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Acceptor {
    /// From the files, which have to be usable now.
    pub(in crate::gateway) fn new(settings: &TlsSettings) -> Result<Self, TlsError> {
        let own = Arc::new(Tickets::own().ok_or(TlsError::Random)?);
        let material = Material::load(&settings.files, &own, SystemTime::now())?;
        Ok(Self {
            files: settings.files.clone(),
            own,
            material: ArcSwap::from_pointee(material),
            handshakes: AtomicUsize::new(0),
            handshakes_max: settings.handshakes_max,
        })
    }

    /// Reads the files again; what they hold is for the next handshake. True if it is something else than before. After an
    /// error what was in force stays.
    pub(super) fn reload(&self) -> Result<bool, TlsError> {
        let material = Material::load(&self.files, &self.own, SystemTime::now())?;
        let is_other = material.digest != self.material.load().digest;
        if is_other {
            self.material.store(Arc::new(material));
        }
        Ok(is_other)
    }

    pub(super) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.material.load().config)
    }

    /// When the certificate in force is not good any more, in Unix seconds.
    pub(in crate::gateway) fn expires_s(&self) -> u64 {
        self.material.load().expires_s
    }

    /// Handshakes now.
    pub(in crate::gateway) fn handshakes(&self) -> usize {
        self.handshakes.load(Ordering::Relaxed)
    }

    /// `None`: there are as many as there may be.
    pub(super) fn turn(&self) -> Option<Turn<'_>> {
        let before = self.handshakes.fetch_add(1, Ordering::AcqRel);
        let turn = Turn(&self.handshakes);
        (before < self.handshakes_max).then_some(turn)
    }
}

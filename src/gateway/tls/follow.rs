//! Follows the files of TLS: a renewed certificate, or new ticket keys, are in force within a second or so, for the
//! handshakes that begin then; connections that are there stay.
//!
//! A thread of its own, only where TLS is spoken: a folder that hangs holds up nothing else. It looks at the files' states by
//! a timer and ends with the gateway. Files that cannot be used together (an expired certificate, a key that does not go
//! with it, because only one of them is there yet) change nothing: what was in force stays, it is said once and counted at
//! every look until it is mended.

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::SystemTime;
use std::{io, thread};

use super::acceptor::Acceptor;
use crate::gateway::Core;
use crate::gateway::counters::{Event, Sheet};
use crate::gateway::file_stamp::{LOOK_INTERVAL, Stamp};
use crate::store::watched;

/// See the module.
#[derive(Debug, Default)]
struct Follower {
    /// The states that were read; `None` when they have to be read again, whatever they look like.
    known: Option<Vec<Stamp>>,
    /// What was said of files that cannot be used.
    said: Option<String>,
}

/// Starts the thread, if TLS is spoken.
pub(in crate::gateway) fn follow(core: &Arc<Core>) -> io::Result<()> {
    if core.tls.is_none() {
        return Ok(());
    }
    let (sheet, core) = (core.counters.sheet(), Arc::downgrade(core));
    let follow = move || {
        let mut follower = Follower::default();
        loop {
            thread::sleep(LOOK_INTERVAL);
            let Some(core) = Weak::upgrade(&core) else { return };
            let Some(acceptor) = &core.tls else { return };
            let look = || follower.look(acceptor, &sheet);
            // At the next look all of it is read again.
            if watched::caught_now("following the files of TLS", look).is_err() {
                follower = Follower::default();
            }
        }
    };
    thread::Builder::new().name("rushgate-tls".to_owned()).spawn(follow).map(drop)
}

impl Follower {
    fn look(&mut self, acceptor: &Acceptor, sheet: &Sheet) {
        // Before they are read: what is written meanwhile has another stamp then.
        let now = SystemTime::now();
        let files = &acceptor.files;
        let paths: Vec<&PathBuf> =
            [Some(&files.certificate), Some(&files.private_key), files.ticket_keys.as_ref()]
                .into_iter()
                .flatten()
                .collect();
        let stamps: Option<Vec<Stamp>> = paths.iter().map(|path| Stamp::of(path).ok()).collect();
        if stamps.is_some() && stamps == self.known {
            return;
        }
        match acceptor.reload() {
            Ok(is_other) => {
                self.known = stamps.filter(|stamps| stamps.iter().all(|stamp| stamp.is_settled(now)));
                if self.said.take().is_some() {
                    tracing::info!("the files of TLS can be used again");
                }
                if is_other {
                    sheet.event(Event::TlsChanged, 1);
                    tracing::info!(
                        expires_s = acceptor.expires_s(),
                        "TLS has another certificate or other ticket keys"
                    );
                }
            }
            Err(error) => {
                self.known = None;
                sheet.event(Event::TlsFilesRefused, 1);
                let text = error.to_string();
                if self.said.as_ref() != Some(&text) {
                    tracing::error!("{text}; what was in force stays");
                    self.said = Some(text);
                }
            }
        }
    }
}

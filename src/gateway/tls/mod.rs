//! TLS 1.3 on ports of its own: for clients that come straight from the open internet, or through a balancer that only
//! passes TCP on.
//!
//! A handshake runs on a task of the connection's own, on its worker's thread, within the time and number that are
//! configured; then the connection has the same task as any other, on a [`Wire`] that encrypts. Certificate, key and
//! ticket keys are followed by a thread: what is written to their files is in force for the next handshake. No TLS 1.2,
//! no early data (a purchase must not be repeated by whoever recorded it), no client certificates.

mod acceptor;
mod follow;
mod handshake;
mod material;
mod tickets;
mod wire;

pub(super) use acceptor::Acceptor;
pub(super) use follow::follow;
pub(super) use handshake::receive;
pub use material::TlsError;
pub(super) use wire::Wire;

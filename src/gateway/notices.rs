//! Frames of a session that answer no request as such: ERROR and GOAWAY.
//!
//! Run on the connection's task, inside one wake; appended to what is written next.

use bytes::BytesMut;

use super::session::Session;
use crate::protocol::{Head, Opcode, Reply, Status, encode};

impl Session {
    /// An ERROR frame: for what no known request can be answered with.
    pub(super) fn error(&self, request_id: u32, status: Status, message: &str, out: &mut BytesMut) {
        self.worker.sheet.status(status);
        let head = Head::reply(Opcode::Error, request_id, status, 0);
        let reply = Reply::Error { message: message.to_owned() };
        encode(out, head, |_| {}, |body| reply.write(body));
    }

    /// Tells the client that nothing new is taken.
    pub(super) fn go_away(&mut self, out: &mut BytesMut) {
        self.going_away = true;
        let drain_ms = u32::try_from(self.worker.core.settings.drain_timeout.as_millis()).unwrap_or(u32::MAX);
        let hint_ms = fastrand::u32(0..=1000);
        let head = Head::reply(Opcode::Goaway, 0, Status::GoingAway, hint_ms);
        encode(out, head, |_| {}, |body| Reply::Goaway { drain_ms }.write(body));
    }
}

//! A session: what one connection may say when, and what it is answered at once.
//!
//! Runs on the connection's task, inside one wake: it is given whole frames and appends replies to a buffer; it
//! does no I/O and reads no clock. Faults of the stream end the connection, faults of a request are answered and
//! leave it alive, and both are counted.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::BytesMut;

use super::ask::Ask;
use super::cancel_rung::Cancellable;
use super::clock::Now;
use super::counters::Rung;
use super::door::Knock;
use super::eligibility::Known;
use super::funnel::Found;
use super::greeting::Greeting;
use super::named::Named;
use super::of_app::{Kept, OfApp};
use super::peer::Peer;
use super::stage::{Flow, Stage, Waiting};
use super::view::View;
use super::worker::Worker;
use crate::admission::identity::Claims;
use crate::admission::limits::Held;
use crate::protocol::frame::FRAME_BYTES_MAX_BEFORE_AUTH;
use crate::protocol::{ActivityId, Frame, Head, Opcode, OrderNumber, Reply, Request, Status, UserId, encode};

/// Whom a request is about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Speaker<'a> {
    pub(super) user: UserId,
    ip: Option<IpAddr>,
    pub(super) device: Option<&'a str>,
    claims: Known<'a>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) worker: Arc<Worker>,
    pub(super) peer: Arc<Peer>,
    pub(super) stage: Stage,
    pub(super) greeting: Greeting,
    /// What is looked up once, because user, address and device stay the same.
    of_app: OfApp,
    /// What the connection's token says besides.
    pub(super) claims: Claims,
    /// An AUTH that waits for the store. In a box: hardly any connection has one.
    pub(super) waiting: Option<Box<Waiting>>,
    /// GOAWAY was sent: nothing new is done.
    pub(super) going_away: bool,
    /// Owed since a BUY of this wake went through the door.
    pub(super) knock: Knock,
}

impl Session {
    pub(super) fn new(worker: Arc<Worker>, peer: Arc<Peer>) -> Self {
        Self {
            worker,
            peer,
            stage: Stage::New,
            greeting: Greeting::NONE,
            of_app: OfApp::new(),
            claims: Claims::default(),
            waiting: None,
            going_away: false,
            knock: Knock::new(),
        }
    }

    pub(super) const fn is_authenticated(&self) -> bool {
        matches!(self.stage, Stage::App { .. } | Stage::Service { .. })
    }

    /// Cap on the next frame.
    pub(super) fn frame_bytes_max(&self) -> usize {
        if self.is_authenticated() {
            self.worker.core.settings.frame_bytes_max
        } else {
            FRAME_BYTES_MAX_BEFORE_AUTH.min(self.worker.core.settings.frame_bytes_max)
        }
    }

    /// Whether it speaks for many users.
    pub(super) const fn is_service(&self) -> bool {
        matches!(self.stage, Stage::Service { .. })
    }

    /// Handles one complete frame, in the order of precedence that protocol.md gives.
    pub(super) fn on_frame(&mut self, now: Now, view: &View, frame: &Frame<'_>, out: &mut BytesMut) -> Flow {
        if frame.has_unknown_flag() {
            self.count_frame_rung(frame);
            self.error(frame.request_id, Status::BadFlags, "unknown must-understand flag", out);
            return Flow::Go;
        }
        let opcode = Opcode::from_wire(frame.opcode);
        if opcode == Some(Opcode::Goaway) {
            return Flow::Finish;
        }
        if frame.request_id == 0 {
            self.count_frame_rung(frame);
            self.error(0, Status::BadRequestId, "a request needs an id other than 0", out);
            return Flow::Go;
        }
        let Some(opcode) = opcode else {
            self.error(frame.request_id, Status::UnknownOpcode, "unknown opcode", out);
            return Flow::Go;
        };
        if matches!(opcode, Opcode::Error | Opcode::ResultPush) {
            self.error(frame.request_id, Status::Unexpected, "only a gateway sends this opcode", out);
            return Flow::Go;
        }
        if let Some(status) = self.out_of_place(opcode) {
            self.refuse(frame, status, out);
            return Flow::Go;
        }
        let parsed = Request::parse(opcode, frame.body).and_then(|request| Ok((request, Named::of(frame)?)));
        match parsed {
            Err(status) => self.refuse(frame, status, out),
            Ok((Request::Auth { token }, _)) => return self.on_auth(now, frame, token, out),
            Ok((Request::Hello { version, device }, _)) => {
                return self.on_hello(now, frame, (version, device), out);
            }
            Ok((Request::Ping { client_time }, _)) => {
                let pong = Reply::Pong { server_time_ms: now.sale_ms, client_time };
                self.reply(frame, Status::Ok, 0, &pong, out);
            }
            Ok((request, named)) => self.on_user_request((now, view), frame, request, named, out),
        }
        Flow::Go
    }

    /// A BUY that is answered with an ERROR frame.
    fn count_frame_rung(&self, frame: &Frame<'_>) {
        if frame.opcode == Opcode::Buy as u8 {
            self.worker.sheet.rung(Rung::Frame);
        }
    }

    /// The status that tells of a message out of its place, or of one that comes too late.
    const fn out_of_place(&self, opcode: Opcode) -> Option<Status> {
        match (opcode, self.stage) {
            (Opcode::Hello | Opcode::Auth, _) if self.going_away => Some(Status::GoingAway),
            (Opcode::Hello, Stage::Greeted | Stage::App { .. } | Stage::Service { .. })
            | (Opcode::Auth | Opcode::Ping, Stage::New) => Some(Status::Unexpected),
            (Opcode::Hello | Opcode::Auth | Opcode::Ping, _) => None,
            _ if self.going_away => Some(Status::GoingAway),
            (_, Stage::New | Stage::Greeted) => Some(Status::NotAuthenticated),
            _ => None,
        }
    }

    /// Requests that are about a user.
    fn on_user_request(
        &self,
        (now, view): (Now, &View),
        frame: &Frame<'_>,
        request: Request<'_>,
        named: Named<'_>,
        out: &mut BytesMut,
    ) {
        let speaker = match self.speaker(named) {
            Err(status) => return self.refuse(frame, status, out),
            Ok(speaker) => speaker,
        };
        if matches!(request, Request::Buy { quantity: 0, .. }) {
            return self.refuse(frame, Status::BadQuantity, out);
        }
        if self.is_expired(now) {
            return self.refuse(frame, Status::TokenExpired, out);
        }
        self.observe(now, &request, &speaker);
        let (status, hint_ms, reply) = match request {
            Request::Buy { activity, sku, quantity } => {
                let ask = Ask {
                    peer: &self.peer,
                    request_id: frame.request_id,
                    user: speaker.user,
                    ip: speaker.ip,
                    held: self.held(),
                    risk_held: self.kept().map(|kept| &kept.risk),
                    device: speaker.device,
                    claims: speaker.claims,
                    names_user: self.is_service(),
                    activity,
                    sku,
                    quantity,
                    patience_ms: frame.hint_ms,
                };
                return self.on_buy(now, view, frame, &ask, out);
            }
            Request::Result { activity } => {
                match self.result(now, view, frame.request_id, (activity, speaker.user)) {
                    Some(told) => told,
                    None => return self.sight(now, speaker.device, speaker.user),
                }
            }
            Request::Cancel { activity, order } => {
                let asked = (activity, speaker.user);
                match self.cancel(now, view, frame.request_id, asked, order) {
                    Some(told) => told,
                    None => return,
                }
            }
            Request::Activity { activity } => {
                let Speaker { user, claims, .. } = speaker;
                self.worker.core.funnel.activity(now, view, (activity, user), self.held(), claims)
            }
            // Challenges and purchase tokens: no activity asks for one.
            _ => (Status::NotRequired, 0, Reply::Empty),
        };
        if !matches!(status, Status::RateLimited | Status::NotRequired) {
            self.sight(now, speaker.device, speaker.user);
        }
        if matches!(status, Status::Ok | Status::Unconfirmed) && matches!(request, Request::Result { .. }) {
            self.subscribe_named(speaker.user);
        }
        self.reply(frame, status, hint_ms, &reply, out);
    }

    /// What RESULT says at once; `None`: it is looked up, and answered then.
    fn result(
        &self,
        now: Now,
        view: &View,
        request_id: u32,
        (activity, user): (ActivityId, UserId),
    ) -> Option<(Status, u32, Reply)> {
        let funnel = &self.worker.core.funnel;
        match funnel.result(now, view, (activity, user), self.held()) {
            Found::Here(told) => Some(told),
            Found::InTheDatabase if self.peer.in_flight() >= u32::from(self.in_flight_max()) => {
                Some((Status::TooManyInFlight, super::reply_parts::busy_hint_ms(), Reply::Empty))
            }
            Found::InTheDatabase => {
                let asked = funnel.lookups.ask(now, &self.peer, request_id, user, activity);
                asked.err().map(|hint_ms| (Status::Busy, hint_ms, Reply::Empty))
            }
        }
    }

    /// What CANCEL says at once; `None`: the store is asked, and it is answered then.
    fn cancel(
        &self,
        now: Now,
        view: &View,
        request_id: u32,
        (activity, user): (ActivityId, UserId),
        order: OrderNumber,
    ) -> Option<(Status, u32, Reply)> {
        let funnel = &self.worker.core.funnel;
        match funnel.cancel(now, view, (activity, user), order, self.held()) {
            Cancellable::Told(told) => Some(told),
            Cancellable::AtTheStore(_) if self.peer.in_flight() >= u32::from(self.in_flight_max()) => {
                Some((Status::TooManyInFlight, super::reply_parts::busy_hint_ms(), Reply::Empty))
            }
            Cancellable::AtTheStore(mark) => {
                self.subscribe_named(user);
                let asked = funnel.cancels.ask(&self.peer, request_id, user, mark);
                asked.err().map(|hint_ms| (Status::Busy, hint_ms, Reply::Empty))
            }
        }
    }

    /// A service connection hears of the later life of an order that it has asked about.
    fn subscribe_named(&self, user: UserId) {
        if self.is_service() {
            self.worker.core.subscribers.subscribe(user, &self.peer, true);
        }
    }

    fn on_buy(&self, now: Now, view: &View, frame: &Frame<'_>, ask: &Ask<'_>, out: &mut BytesMut) {
        if self.peer.in_flight() >= u32::from(self.in_flight_max()) {
            self.refuse(frame, Status::TooManyInFlight, out);
            return;
        }
        let funnel = &self.worker.core.funnel;
        match funnel.buy(now, view, ask) {
            Ok(()) => {
                self.worker.sheet.rung(Rung::Passed);
                self.sight(now, ask.device, ask.user);
                funnel.remember(now, ask, Rung::Passed, Status::Ok);
                self.knock.owe();
            }
            Err(refusal) => {
                self.worker.sheet.rung(refusal.rung);
                if !refusal.rung.is_rate() {
                    self.sight(now, ask.device, ask.user);
                }
                funnel.remember(now, ask, refusal.rung, refusal.status);
                if matches!(refusal.status, Status::Already | Status::Unconfirmed) {
                    self.subscribe_named(ask.user);
                }
                self.reply(frame, refusal.status, refusal.hint_ms, &refusal.reply, out);
            }
        }
    }

    const fn is_expired(&self, now: Now) -> bool {
        match self.stage {
            Stage::App { expires_at_ms, .. } | Stage::Service { expires_at_ms } => {
                now.sale_ms >= expires_at_ms
            }
            Stage::New | Stage::Greeted => true,
        }
    }

    /// BUYs that may be unanswered at once on this connection.
    pub(super) fn in_flight_max(&self) -> u16 {
        match self.stage {
            Stage::Service { .. } => self.worker.core.settings.service_in_flight_max,
            _ => self.worker.core.settings.in_flight_max,
        }
    }

    /// Whom a request is about: the connection's user, or the one that a service connection names. What an app
    /// connection names is not believed.
    fn speaker<'a>(&'a self, named: Named<'a>) -> Result<Speaker<'a>, Status> {
        if let Stage::App { user, .. } = self.stage {
            let claims = Known::Token(&self.claims);
            return Ok(Speaker { user, ip: Some(self.peer.addr), device: self.device(), claims });
        }
        let user = named.user.and_then(UserId::new).ok_or(Status::UserRequired)?;
        let claims = Known::Asserted(named.claims);
        Ok(Speaker { user, ip: named.ip, device: named.device, claims })
    }

    /// The limiters that stay the same from request to request: an app connection's.
    fn held(&self) -> Option<&Held> {
        self.kept().map(|kept| &kept.limits)
    }

    fn kept(&self) -> Option<&Kept> {
        matches!(self.stage, Stage::App { .. }).then(|| self.of_app.kept())
    }

    pub(super) fn reply(
        &self,
        frame: &Frame<'_>,
        status: Status,
        hint_ms: u32,
        reply: &Reply,
        out: &mut BytesMut,
    ) {
        self.worker.sheet.status(status);
        let head = Head {
            opcode: frame.opcode,
            flags: 0,
            request_id: frame.request_id,
            status: status.code(),
            hint_ms,
        };
        encode(out, head, |_| {}, |body| reply.write(body));
    }

    /// A reply without a body.
    pub(super) fn refuse(&self, frame: &Frame<'_>, status: Status, out: &mut BytesMut) {
        if frame.opcode == Opcode::Buy as u8 {
            let on_connection =
                matches!(status, Status::GoingAway | Status::TokenExpired | Status::TooManyInFlight);
            self.worker.sheet.rung(if on_connection { Rung::Connection } else { Rung::Frame });
        }
        let hint_ms = match status {
            Status::GoingAway | Status::TooManyInFlight => super::reply_parts::busy_hint_ms(),
            _ => 0,
        };
        self.reply(frame, status, hint_ms, &Reply::Empty, out);
    }

    /// The connection ends: pushes go elsewhere. What it has in the queue runs to its end.
    pub(super) fn end(&self) {
        if let Stage::App { user, .. } = self.stage {
            self.worker.core.subscribers.leave(user, &self.peer);
        }
    }
}

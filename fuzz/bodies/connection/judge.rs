//! What protocol.md says must be answered to a frame: a second reading of its precedence list, apart from the
//! gateway's own, for one connection without deadlines, limits or drain.

use rushgate::protocol::frame::{FRAME_BYTES_MAX_AFTER_AUTH, FRAME_BYTES_MAX_BEFORE_AUTH};
use rushgate::protocol::{CLAIMS_BYTES_MAX, DEVICE_BYTES_MAX, Frame, Opcode, Request, Status, UserId, tlv};

use super::gateway::{
    Bearer, Bench, CLOSED, IN_FLIGHT_MAX, LIVE, MIN_VERSION, OWNER, PER_USER_LIMIT, SKU, SOLD_OUT, UPCOMING,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Accepted,
    Greeted,
    App(u64),
    Service,
}

/// What one frame must earn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// No answer, and nothing behind it is looked at.
    LastFrame,
    /// An ERROR frame; the connection lives.
    Error(Status),
    /// A reply; the connection lives.
    Reply(Status),
    /// A reply, and nothing behind it is looked at.
    Closes(Status),
    /// A reply with one of these.
    OneOf(Vec<Status>),
    /// A reply with one of these, or none until the stock has spoken.
    OrWaits(Vec<Status>),
}

pub(crate) struct Judge<'a> {
    bench: &'a Bench,
    stage: Stage,
    /// BUYs that may have had to wait: as many may be in flight still.
    waiting: usize,
}

/// The values of the known TLVs, or that one is malformed.
struct Named {
    user: Option<u64>,
}

impl Named {
    fn of(frame: &Frame<'_>) -> Option<Self> {
        let addr = frame.tlv(tlv::CLIENT_ADDR).is_none_or(|addr| matches!(addr.len(), 4 | 16));
        let texts = [(tlv::DEVICE, DEVICE_BYTES_MAX), (tlv::CLAIMS, CLAIMS_BYTES_MAX)];
        let texts = texts.iter().all(|(kind, max)| {
            frame.tlv(*kind).is_none_or(|text| {
                !text.is_empty() && text.len() <= *max && std::str::from_utf8(text).is_ok()
            })
        });
        let user = frame.tlv(tlv::USER).map(<[u8; 8]>::try_from).transpose().ok()?;
        (addr && texts).then_some(Self { user: user.map(u64::from_be_bytes) })
    }
}

impl<'a> Judge<'a> {
    pub(crate) const fn new(bench: &'a Bench) -> Self {
        Self { bench, stage: Stage::Accepted, waiting: 0 }
    }

    /// The cap on the next frame.
    pub(crate) const fn frame_bytes_max(&self) -> usize {
        match self.stage {
            Stage::Accepted | Stage::Greeted => FRAME_BYTES_MAX_BEFORE_AUTH,
            Stage::App(_) | Stage::Service => FRAME_BYTES_MAX_AFTER_AUTH,
        }
    }

    pub(crate) fn is_service(&self) -> bool {
        self.stage == Stage::Service
    }

    pub(crate) fn judge(&mut self, frame: &Frame<'_>) -> Verdict {
        if frame.flags & 0xFF00 != 0 {
            return Verdict::Error(Status::BadFlags);
        }
        let opcode = Opcode::from_wire(frame.opcode);
        if opcode == Some(Opcode::Goaway) {
            return Verdict::LastFrame;
        }
        if frame.request_id == 0 {
            return Verdict::Error(Status::BadRequestId);
        }
        let Some(opcode) = opcode else { return Verdict::Error(Status::UnknownOpcode) };
        if matches!(opcode, Opcode::Error | Opcode::ResultPush) {
            return Verdict::Error(Status::Unexpected);
        }
        if let Some(status) = self.out_of_place(opcode) {
            return Verdict::Reply(status);
        }
        let Ok(request) = Request::parse(opcode, frame.body) else { return Verdict::Reply(Status::BadBody) };
        let Some(named) = Named::of(frame) else { return Verdict::Reply(Status::BadBody) };
        match request {
            Request::Hello { version, .. } if version.platform == 2 && version.app < MIN_VERSION => {
                Verdict::Closes(Status::UpgradeRequired)
            }
            Request::Hello { .. } => {
                self.stage = Stage::Greeted;
                Verdict::Reply(Status::Ok)
            }
            Request::Ping { .. } => Verdict::Reply(Status::Ok),
            Request::Auth { token } => self.judge_auth(token),
            _ => self.judge_request(&request, &named),
        }
    }

    fn out_of_place(&self, opcode: Opcode) -> Option<Status> {
        let is_in = matches!(self.stage, Stage::App(_) | Stage::Service);
        match opcode {
            Opcode::Hello => (self.stage != Stage::Accepted).then_some(Status::Unexpected),
            Opcode::Auth | Opcode::Ping => (self.stage == Stage::Accepted).then_some(Status::Unexpected),
            _ => (!is_in).then_some(Status::NotAuthenticated),
        }
    }

    fn judge_auth(&mut self, token: &[u8]) -> Verdict {
        let known = self.bench.tokens.iter().find(|(good, _)| good.as_bytes() == token);
        let next = match known.map(|(_, bearer)| *bearer) {
            None => return Verdict::Closes(Status::BadToken),
            Some(Bearer::Refused(status)) => return Verdict::Closes(status),
            Some(Bearer::App(user)) => Stage::App(user),
            Some(Bearer::Service) => Stage::Service,
        };
        if self.stage != Stage::Greeted && self.stage != next {
            return Verdict::Reply(Status::Unexpected);
        }
        self.stage = next;
        Verdict::Reply(Status::Ok)
    }

    fn judge_request(&mut self, request: &Request<'_>, named: &Named) -> Verdict {
        let user = match self.stage {
            Stage::App(user) => user,
            _ => match named.user.and_then(UserId::new) {
                Some(user) => user.0,
                None => return Verdict::Reply(Status::UserRequired),
            },
        };
        match *request {
            Request::Buy { quantity: 0, .. } => Verdict::Reply(Status::BadQuantity),
            Request::Buy { activity, sku, quantity } => {
                self.judge_buy(user, activity.0, sku.0 == SKU, quantity)
            }
            Request::Activity { activity } => Verdict::Reply(match activity.0 {
                LIVE | SOLD_OUT | UPCOMING | CLOSED => Status::Ok,
                _ => Status::UnknownActivity,
            }),
            Request::Result { activity } => match activity.0 {
                LIVE => Verdict::OneOf(vec![Status::NoOrder, Status::Ok, Status::Unconfirmed]),
                SOLD_OUT if user == OWNER => Verdict::Reply(Status::Ok),
                _ => Verdict::Reply(Status::NoOrder),
            },
            // Who guesses the number of an order of his has it cancelled.
            Request::Cancel { activity, .. } if activity.0 == LIVE => {
                Verdict::OrWaits(vec![Status::NoOrder, Status::Unconfirmed])
            }
            Request::Cancel { .. } => Verdict::Reply(Status::NoOrder),
            _ => Verdict::Reply(Status::NotRequired),
        }
    }

    fn judge_buy(&mut self, user: u64, activity: u32, is_sku: bool, quantity: u16) -> Verdict {
        let limit = if activity == SOLD_OUT { 1 } else { PER_USER_LIMIT };
        let status = match activity {
            SOLD_OUT if user == OWNER => Status::Already,
            CLOSED => Status::Ended,
            LIVE | SOLD_OUT | UPCOMING if !is_sku => Status::UnknownSku,
            LIVE | SOLD_OUT | UPCOMING if quantity > limit => Status::OverLimit,
            UPCOMING => Status::NotStarted,
            SOLD_OUT => Status::SoldOut,
            LIVE => Status::Queued,
            _ => Status::UnknownActivity,
        };
        let mut statuses = Vec::new();
        if self.waiting >= usize::from(IN_FLIGHT_MAX) {
            statuses.push(Status::TooManyInFlight);
        }
        if activity == LIVE {
            // Whether he has bought before is for the stock to know.
            statuses.extend([Status::Already, Status::Unconfirmed]);
            if status == Status::Queued {
                statuses.push(Status::Busy);
                self.waiting += 1;
                return Verdict::OrWaits(statuses);
            }
        }
        statuses.push(status);
        Verdict::OneOf(statuses)
    }
}

//! What each frame of a client earned, and whether what was said to it is that.

use bytes::BytesMut;
use rushgate::gateway::Ending;
use rushgate::protocol::frame::REPLY_BYTES_MAX;
use rushgate::protocol::{Frame, Head, Opcode, Reply, Request, Status, decode, encode, tlv};

use super::gateway::Bench;
use super::judge::{Judge, Verdict};

/// The longest here are ACTIVITY with one SKU, and ERROR with its message.
pub(crate) const LONGEST_REPLY_BYTES: usize = 200;

/// A frame of the gateway's, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) opcode: Opcode,
    pub(crate) id: u32,
    pub(crate) status: Status,
    pub(crate) hint_ms: u32,
    /// A push that names its user.
    pub(crate) names_user: bool,
    pub(crate) reply: Reply,
}

impl Said {
    /// Whole frames, each of which a client understands, and which say it in no more bytes than it takes.
    pub(crate) fn all(mut bytes: &[u8]) -> Vec<Self> {
        let mut all = Vec::new();
        while !bytes.is_empty() {
            let (frame, taken) = decode(bytes, REPLY_BYTES_MAX).unwrap().expect("whole frames only");
            let Frame { opcode, flags, request_id, status, hint_ms, ext, body } = frame;
            let known = Opcode::from_wire(opcode).expect("an opcode of version 1");
            let reply = Reply::parse(known, status, body).expect("a body of version 1");
            assert_eq!(flags, 0);
            assert!(taken <= LONGEST_REPLY_BYTES, "{taken} bytes of {reply:?}");
            let mut again = BytesMut::new();
            let head = Head { opcode, flags, request_id, status, hint_ms };
            encode(&mut again, head, |out| out.extend_from_slice(ext), |out| reply.write(out));
            assert_eq!(again, bytes[..taken], "{reply:?}");
            all.push(Self {
                opcode: known,
                id: request_id,
                status: Status::from_wire(status).expect("a status of version 1"),
                hint_ms,
                names_user: frame.tlv(tlv::USER).is_some(),
                reply,
            });
            bytes = &bytes[taken..];
        }
        all
    }
}

/// A frame of the client's.
pub(crate) struct Earned<'a> {
    pub(crate) frame: Frame<'a>,
    pub(crate) verdict: Verdict,
    /// On a service connection.
    pub(crate) is_service: bool,
}

/// How a stream ends a connection, and the fault that is told.
type End = Option<(Ending, Option<Status>)>;

impl<'a> Earned<'a> {
    /// Every frame of a stream up to the one that ends it.
    pub(crate) fn by(bench: &Bench, stream: &'a [u8]) -> (Vec<Self>, End) {
        let mut judge = Judge::new(bench);
        let (mut all, mut rest) = (Vec::new(), stream);
        loop {
            let (frame, taken) = match decode(rest, judge.frame_bytes_max()) {
                Ok(None) => return (all, None),
                Err(error) => return (all, Some((Ending::BadFrame, Some(error.status())))),
                Ok(Some(found)) => found,
            };
            rest = &rest[taken..];
            let verdict = judge.judge(&frame);
            if verdict == Verdict::LastFrame {
                return (all, Some((Ending::Client, None)));
            }
            let ending = match verdict {
                Verdict::Closes(Status::UpgradeRequired) => Some(Ending::UpgradeRequired),
                Verdict::Closes(_) => Some(Ending::BadToken),
                _ => None,
            };
            all.push(Self { frame, verdict, is_service: judge.is_service() });
            if let Some(ending) = ending {
                return (all, Some((ending, None)));
            }
        }
    }

    /// Whether this may have been said to it.
    pub(crate) fn fits(&self, said: &Said) -> bool {
        let is_right = match &self.verdict {
            Verdict::Error(status) => said.opcode == Opcode::Error && said.status == *status,
            Verdict::Reply(status) | Verdict::Closes(status) => said.status == *status,
            Verdict::OneOf(statuses) | Verdict::OrWaits(statuses) => statuses.contains(&said.status),
            Verdict::LastFrame => false,
        };
        let is_error = matches!(self.verdict, Verdict::Error(_));
        is_right && said.id == self.frame.request_id && (is_error || said.opcode as u8 == self.frame.opcode)
    }

    /// What was said fits, and says the right thing about the right thing.
    pub(crate) fn check(&self, said: Option<&Said>) {
        let Self { frame, verdict, .. } = self;
        let Some(said) = said else {
            assert!(
                matches!(verdict, Verdict::OrWaits(_)),
                "no answer to {frame:?}, which earns {verdict:?}"
            );
            return;
        };
        assert!(self.fits(said), "{said:?} to {frame:?}, which earns {verdict:?}");
        let needs_hint = matches!(said.status, Status::NotStarted | Status::Busy | Status::TooManyInFlight);
        assert!(said.status == Status::Unconfirmed || needs_hint == (said.hint_ms > 0), "{said:?}");
        let request =
            Opcode::from_wire(frame.opcode).and_then(|opcode| Request::parse(opcode, frame.body).ok());
        match (&said.reply, request) {
            (Reply::Pong { client_time, .. }, Some(Request::Ping { client_time: sent })) => {
                assert_eq!(*client_time, sent);
            }
            (Reply::Order(order), Some(Request::Buy { activity, .. } | Request::Result { activity })) => {
                assert_eq!(order.sku.activity, activity);
                assert!(order.quantity > 0);
            }
            (Reply::Activity { info, skus }, Some(Request::Activity { activity })) => {
                assert_eq!((info.activity, skus.len()), (activity, 1));
            }
            _ => {}
        }
    }
}

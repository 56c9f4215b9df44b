//! What is asked, as bytes: requests by kind, and the frames that open a connection.

use bytes::BytesMut;
use clap::ValueEnum;
use rushgate::protocol::{
    ActivityId, ClientVersion, Head, Request, SkuId, Status, UserId, encode, put_tlv, tlv,
};

/// Request id of HELLO in the frames that open a connection.
pub(crate) const HELLO_ID: u32 = 1;
/// Request id of AUTH there.
pub(crate) const AUTH_ID: u32 = 2;
/// Request id of the request behind them, if there is one.
pub(crate) const FIRST_ID: u32 = 3;

/// Kinds of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Work {
    /// BUY one unit
    Buy,
    /// RESULT
    Result,
    /// ACTIVITY
    Activity,
    /// PING, which needs no user
    Ping,
}

impl Work {
    /// The name on the command line and in reports.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Buy => "buy",
            Self::Result => "result",
            Self::Activity => "activity",
            Self::Ping => "ping",
        }
    }
}

/// One kind of request about one article, ready to be encoded many times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    request: Request<'static>,
}

impl Asked {
    pub(crate) const fn new(work: Work, activity: ActivityId, sku: SkuId) -> Self {
        let request = match work {
            Work::Buy => Request::Buy { activity, sku, quantity: 1 },
            Work::Result => Request::Result { activity },
            Work::Activity => Request::Activity { activity },
            Work::Ping => Request::Ping { client_time: 0 },
        };
        Self { request }
    }

    /// Whether service connections name a user with it.
    pub(crate) const fn names_user(&self) -> bool {
        !matches!(self.request, Request::Ping { .. })
    }

    /// Appends the request; `user` is named on service connections only.
    pub(crate) fn append(&self, out: &mut BytesMut, request_id: u32, user: Option<UserId>) {
        let opcode = self.request.opcode();
        let user = user.filter(|_| self.names_user());
        let name_user = |ext: &mut BytesMut| {
            if let Some(user) = user {
                put_tlv(ext, tlv::USER, &user.0.to_be_bytes());
            }
        };
        encode(out, Head::request(opcode, request_id), name_user, |body| self.request.write(body));
    }
}

/// HELLO and AUTH, and behind them the first request, for one write.
pub(crate) fn opening(token: &str, first: Option<&Asked>) -> BytesMut {
    let mut out = BytesMut::with_capacity(512);
    let version = ClientVersion { platform: 5, app: [1, 0, 0] };
    append(&mut out, HELLO_ID, &Request::Hello { version, device: "" });
    append(&mut out, AUTH_ID, &Request::Auth { token: token.as_bytes() });
    if let Some(first) = first {
        first.append(&mut out, FIRST_ID, None);
    }
    out
}

/// Appends any request of the connection itself.
pub(crate) fn append(out: &mut BytesMut, request_id: u32, request: &Request<'_>) {
    encode(out, Head::request(request.opcode(), request_id), |_| {}, |body| request.write(body));
}

/// A status as people read it.
pub(crate) fn status_name(code: u16) -> String {
    Status::from_wire(code).map_or_else(|| format!("{code:#06x}"), |status| status.name().to_owned())
}

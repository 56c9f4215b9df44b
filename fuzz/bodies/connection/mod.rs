//! A whole connection without its socket: what a client sends, whole and in pieces, to a real gateway.
//!
//! Every frame earns what the judge says, in order, and nothing else is said; replies decode and are small; every BUY
//! that waits is answered; and the pieces in which the bytes come make no difference.

mod earned;
pub(crate) mod gateway;
mod judge;
mod script;

use bytes::BytesMut;
use rushgate::gateway::{Conversation, Ending};
use rushgate::protocol::{ActivityId, Frame, Opcode, Reply, Request, Status};

use self::earned::{Earned, LONGEST_REPLY_BYTES, Said};
use self::gateway::{Bench, IN_FLIGHT_MAX, LIVE, wait_for};
use self::judge::Verdict;
use self::script::Script;

/// What was said to one frame of the client's.
#[derive(Debug)]
struct Exchange {
    id: u32,
    opcode: Option<Opcode>,
    /// Depends on what was bought before, so it may differ from one run to the next.
    is_about_stock: bool,
    said: Option<Said>,
}

#[derive(Debug)]
struct Transcript {
    exchanges: Vec<Exchange>,
    ending: Option<Ending>,
    fault: Option<Status>,
    /// The outcomes of the BUYs that waited.
    outcomes: Vec<Status>,
}

impl Transcript {
    fn statuses(&self) -> impl Iterator<Item = Status> {
        let said = self.exchanges.iter().filter_map(|exchange| exchange.said.as_ref());
        said.map(|said| said.status).chain(self.fault).chain(self.outcomes.iter().copied())
    }
}

/// Feeds what the bytes mean to two conversations, once whole and once in pieces. Every status that was said.
pub(crate) fn run(bench: &Bench, data: &[u8]) -> Vec<Status> {
    let script = Script::read(data, bench);
    let whole = converse(bench, &script.stream, &[]);
    let pieces = converse(bench, &script.stream, &script.cuts);
    compare(&whole, &pieces);
    whole.statuses().chain(pieces.statuses()).collect()
}

fn converse(bench: &Bench, stream: &[u8], cuts: &[usize]) -> Transcript {
    let mut conversation = bench.conversation();
    let mut out = BytesMut::new();
    let (mut at, mut ending) = (0, None);
    for &end in cuts.iter().chain([&stream.len()]) {
        let before = out.len();
        ending = conversation.feed(&stream[at..end], &mut out);
        // Whatever came, an answer is not longer than there were frames to answer.
        let frames = stream[..end].len() / 24 + 1;
        assert!(out.len() <= frames * LONGEST_REPLY_BYTES, "{} bytes to {end} bytes", out.len());
        assert!(out.len() >= before);
        assert!(
            conversation.in_flight() <= u32::from(IN_FLIGHT_MAX),
            "{} in flight",
            conversation.in_flight()
        );
        at = end;
        if ending.is_some() {
            break;
        }
    }
    let (earned, expected) = Earned::by(bench, &stream[..at]);
    let mut said = Said::all(&out);
    let fault = matches!(expected, Some((Ending::BadFrame, _))).then(|| {
        let last = said.pop().expect("a fault of the stream is told");
        assert_eq!((last.opcode, last.id), (Opcode::Error, 0));
        last.status
    });
    assert_eq!((ending, fault), expected.map_or((None, None), |(ending, fault)| (Some(ending), fault)));
    let exchanges = exchanges(&earned, &said);
    let is_service = earned.iter().any(|earned| earned.is_service);
    let outcomes = hear_the_stock(&mut conversation, &exchanges, is_service);
    Transcript { exchanges, ending, fault, outcomes }
}

/// Gives each frame its answer, in order. A BUY may have none yet; where ids are used twice it shows only from the
/// rest which of two was answered.
fn exchanges(earned: &[Earned<'_>], said: &[Said]) -> Vec<Exchange> {
    let rest_fits = rest_fits(earned, said);
    let mut exchanges = Vec::new();
    let mut at = 0;
    for (index, earned) in earned.iter().enumerate() {
        let answer = said.get(at).filter(|said| {
            let may_wait = matches!(earned.verdict, Verdict::OrWaits(_));
            !may_wait || earned.fits(said) && rest_fits[index + 1][at + 1]
        });
        earned.check(answer);
        at += usize::from(answer.is_some());
        exchanges.push(exchange(&earned.frame, answer.cloned()));
    }
    assert_eq!(said.get(at), None, "said without being asked");
    exchanges
}

/// `[i][j]`: whether the frames from the i-th on may have earned the answers from the j-th on.
fn rest_fits(earned: &[Earned<'_>], said: &[Said]) -> Vec<Vec<bool>> {
    let mut fits = vec![vec![false; said.len() + 1]; earned.len() + 1];
    fits[earned.len()][said.len()] = true;
    for (i, earned) in earned.iter().enumerate().rev() {
        let may_wait = matches!(earned.verdict, Verdict::OrWaits(_));
        for j in (0..=said.len()).rev() {
            let is_answered = said.get(j).is_some_and(|said| earned.fits(said)) && fits[i + 1][j + 1];
            fits[i][j] = is_answered || may_wait && fits[i + 1][j];
        }
    }
    fits
}

fn exchange(frame: &Frame<'_>, said: Option<Said>) -> Exchange {
    let opcode = Opcode::from_wire(frame.opcode);
    let activity = match opcode.map(|opcode| Request::parse(opcode, frame.body)) {
        Some(Ok(
            Request::Buy { activity, .. }
            | Request::Result { activity }
            | Request::Cancel { activity, .. }
            | Request::Activity { activity },
        )) => Some(activity),
        _ => None,
    };
    let is_about_stock = activity == Some(ActivityId(LIVE));
    Exchange { id: frame.request_id, opcode, is_about_stock, said }
}

/// Every BUY that waits is answered once, and what else comes are pushes. How they were answered.
fn hear_the_stock(conversation: &mut Conversation, exchanges: &[Exchange], is_service: bool) -> Vec<Status> {
    let waiting: Vec<u32> =
        exchanges.iter().filter(|exchange| exchange.said.is_none()).map(|exchange| exchange.id).collect();
    let mut mail = BytesMut::new();
    wait_for("every BUY is answered", || conversation.in_flight() == 0);
    conversation.take_mail(&mut mail);
    let mut outcomes = Vec::new();
    for said in Said::all(&mail) {
        if said.id == 0 {
            assert_eq!((said.opcode, said.status), (Opcode::ResultPush, Status::Ok), "{said:?}");
            assert_eq!(said.names_user, is_service, "{said:?}");
            continue;
        }
        outcomes.push(said.status);
        assert!(waiting.contains(&said.id), "{said:?} to none of {waiting:?}");
        let possible: &[Status] = match said.opcode {
            Opcode::Buy => &[Status::Queued, Status::Already, Status::Unconfirmed, Status::Busy],
            Opcode::Cancel => &[Status::Ok, Status::NotCancellable, Status::Unconfirmed],
            other => panic!("{other:?} waits"),
        };
        assert!(possible.contains(&said.status), "{said:?}");
    }
    assert_eq!(outcomes.len(), waiting.len(), "answers to {waiting:?}");
    outcomes
}

/// The same bytes, the same answers, as far as they do not depend on what was bought meanwhile or on the clock.
fn compare(whole: &Transcript, pieces: &Transcript) {
    assert_eq!((whole.ending, whole.fault), (pieces.ending, pieces.fault));
    assert_eq!(whole.exchanges.len(), pieces.exchanges.len());
    let live_buys = whole
        .exchanges
        .iter()
        .filter(|exchange| exchange.is_about_stock && exchange.opcode == Some(Opcode::Buy));
    // Then any BUY may have been one too many, or not.
    let cap_was_met = live_buys.count() >= usize::from(IN_FLIGHT_MAX);
    for (one, other) in whole.exchanges.iter().zip(&pieces.exchanges) {
        assert_eq!((one.id, one.opcode), (other.id, other.opcode));
        if one.is_about_stock || cap_was_met && one.opcode == Some(Opcode::Buy) {
            continue;
        }
        assert_eq!(one.said.as_ref().map(timeless), other.said.as_ref().map(timeless));
    }
}

/// Without what the clock, the connection's number and the jitter make of it.
fn timeless(said: &Said) -> Said {
    let mut said = said.clone();
    said.hint_ms = u32::from(said.hint_ms > 0);
    match &mut said.reply {
        Reply::Hello { server_time_ms, connection_id, .. } => (*server_time_ms, *connection_id) = (0, 0),
        Reply::Pong { server_time_ms, .. } | Reply::OpensAt { server_time_ms, .. } => *server_time_ms = 0,
        Reply::Activity { info, .. } => info.server_time_ms = 0,
        _ => {}
    }
    said
}

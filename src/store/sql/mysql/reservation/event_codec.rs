//! How an event lies in its row: its kind, its users, then position, counters and marks as a stored reply has them.
//! No I/O.

use super::super::failure::Failure;
use crate::protocol::UserId;
use crate::stock::calls::{Change, Done, Event, ItemAnswer, Mark, Reply};
use crate::store::sql::reply_codec;

const MARKED: u8 = 1;
const MOVED: u8 = 2;
const LOADED: u8 = 3;

pub(super) fn encode(event: &Event) -> Vec<u8> {
    let (kind, marks): (u8, &[(UserId, Mark)]) = match &event.change {
        Change::Marked(marks) => (MARKED, marks),
        Change::Moved => (MOVED, &[]),
        Change::Loaded => (LOADED, &[]),
    };
    let mut out = vec![kind];
    // An event has no more marks than a call has items.
    out.extend(u32::try_from(marks.len()).unwrap_or(u32::MAX).to_be_bytes());
    for (user, _) in marks {
        out.extend(user.0.to_be_bytes());
    }
    out.extend(reply_codec::encode(&Reply::Done(Done {
        generation: event.generation,
        seq: event.seq,
        counters: event.counters.clone(),
        answers: marks.iter().map(|(_, mark)| ItemAnswer::Already(*mark)).collect(),
    })));
    out
}

pub(super) fn decode(bytes: &[u8]) -> Result<Event, Failure> {
    let torn = || Failure::Corrupt("a stored event ends too early".to_owned());
    let (kind, rest) = bytes.split_first().ok_or_else(torn)?;
    let (count, mut rest) = rest.split_first_chunk::<4>().ok_or_else(torn)?;
    let mut users = Vec::new();
    for _ in 0..u32::from_be_bytes(*count) {
        let (user, later) = rest.split_first_chunk::<8>().ok_or_else(torn)?;
        users.push(UserId(u64::from_be_bytes(*user)));
        rest = later;
    }
    let reply =
        reply_codec::decode(rest).map_err(|error| Failure::Corrupt(format!("in an event: {error}")))?;
    let Reply::Done(done) = reply else {
        return Err(Failure::Corrupt(format!("a stored event holds {reply:?}")));
    };
    let marks: Vec<Mark> = done
        .answers
        .iter()
        .filter_map(|answer| if let ItemAnswer::Already(mark) = answer { Some(*mark) } else { None })
        .collect();
    if marks.len() != users.len() || marks.len() != done.answers.len() {
        return Err(Failure::Corrupt(format!(
            "a stored event has {} marks of {} users",
            marks.len(),
            users.len()
        )));
    }
    let change = match *kind {
        MARKED => Change::Marked(users.into_iter().zip(marks).collect()),
        MOVED => Change::Moved,
        LOADED => Change::Loaded,
        other => return Err(Failure::Corrupt(format!("a stored event is of the unknown kind {other}"))),
    };
    Ok(Event { generation: done.generation, seq: done.seq, change, counters: done.counters })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use proptest::prelude::*;

    use super::*;
    use crate::protocol::{ActivityId, OrderNumber, OrderState, SkuId, SkuKey};
    use crate::stock::calls::{Gen, SkuCounters};

    fn events() -> Vec<Event> {
        let sku = SkuKey { activity: ActivityId(7), sku: SkuId(1) };
        let mark = |order| Mark {
            order: OrderNumber(order),
            sku,
            quantity: 2,
            attempt: 1,
            state: OrderState::PendingPayment,
            pay_by_ms: 9,
        };
        let counters = vec![SkuCounters { sku, free: 5, out: Vec::new(), brought_in: Vec::new() }];
        let marked = Change::Marked(vec![(UserId(1), mark(1)), (UserId(u64::MAX), mark(u64::MAX))]);
        [marked, Change::Marked(Vec::new()), Change::Moved, Change::Loaded]
            .map(|change| Event { generation: Gen(3), seq: 4, change, counters: counters.clone() })
            .to_vec()
    }

    #[test]
    fn every_event_comes_back_and_no_cut_of_it_is_taken_for_one() {
        for event in events() {
            let bytes = encode(&event);
            assert_eq!(decode(&bytes).unwrap(), event);
            assert!((0..bytes.len()).all(|cut| decode(&bytes[..cut]).is_err()));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes);
        }
    }
}

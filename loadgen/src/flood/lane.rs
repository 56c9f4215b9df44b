//! One thread's share of a flood: an epoll loop over its connections.
//!
//! One clock reading, one read and at most one write per wake and connection; nothing is allocated once the
//! buffers have grown. It ends when its time or its count is over and everything is answered, a bounded time
//! after that, or when no connection is left.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token};
use rushgate::protocol::UserId;

use super::book::Book;
use super::conn::{Conn, Lost};
use super::pace::Pace;
use crate::output::Failure;
use crate::work::Asked;

const READ_BYTES: usize = 64 * 1024;
const EVENTS_MAX: usize = 1024;
/// How long the last answers are waited for.
const DRAIN_NS: u64 = 2_000_000_000;
/// The poll's timeout counts milliseconds: what is due sooner is waited for awake.
const POLL_STEP_NS: u64 = 1_000_000;
/// Without anything to send the loop still looks at the clock so often.
const POLL_MAX: Duration = Duration::from_millis(20);

/// Users of service connections, in turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Users {
    pub(super) first: u64,
    pub(super) count: u64,
    pub(super) next: u64,
}

impl Users {
    const fn take(&mut self) -> UserId {
        let user = UserId(self.first.saturating_add(self.next));
        self.next = self.next.saturating_add(1);
        if self.next >= self.count {
            self.next = 0;
        }
        user
    }
}

/// What a thread brings home.
#[derive(Debug)]
pub(super) struct LaneEnd {
    pub(super) book: Book,
    /// From the end of the warm-up to the end of sending, or to the last answer if that came later.
    pub(super) measured_ns: u64,
    /// Connections that still stood at the end.
    pub(super) connections_left: usize,
}

#[derive(Debug)]
pub(super) struct Lane {
    conns: Vec<Conn>,
    asked: Asked,
    users: Option<Users>,
    pace: Pace,
    requests_max: u64,
    book: Book,
    /// Places for requests that are free, longest first: (connection, place).
    free: VecDeque<(usize, u16)>,
    /// Connections with something to write.
    dirty: Vec<usize>,
    in_flight: usize,
    connections_left: usize,
    started_at: Instant,
    /// Since when nothing more is sent.
    stopped_at_ns: Option<u64>,
}

impl Lane {
    pub(super) fn new(
        conns: Vec<Conn>,
        asked: Asked,
        users: Option<Users>,
        pace: Pace,
        requests_max: Option<u64>,
    ) -> Result<Self, Failure> {
        Ok(Self {
            connections_left: conns.len(),
            conns,
            asked,
            users,
            pace,
            requests_max: requests_max.unwrap_or(u64::MAX),
            book: Book::new()?,
            free: VecDeque::new(),
            dirty: Vec::new(),
            in_flight: 0,
            started_at: Instant::now(),
            // A thread without a share of the requests has nothing to do.
            stopped_at_ns: (requests_max == Some(0)).then_some(0),
        })
    }

    /// Runs to the end; `Err` only when the system gives no epoll.
    pub(super) fn run(mut self, started_at: Instant) -> io::Result<LaneEnd> {
        self.started_at = started_at;
        let mut poll = Poll::new()?;
        let mut events = Events::with_capacity(EVENTS_MAX);
        let mut buffer = vec![0; READ_BYTES];
        for (index, conn) in self.conns.iter_mut().enumerate() {
            let interest = Interest::READABLE.add(Interest::WRITABLE);
            poll.registry().register(&mut conn.stream, Token(index), interest)?;
        }
        self.free_all();
        std::thread::sleep(started_at.saturating_duration_since(Instant::now()));
        loop {
            let now_ns = self.now_ns();
            self.dispatch(now_ns);
            if self.is_over(now_ns) {
                break;
            }
            let timeout = self.timeout(now_ns);
            match poll.poll(&mut events, Some(timeout)) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            if events.is_empty() && timeout.is_zero() {
                // Awake for the next planned time; whoever shares this core goes first.
                std::thread::yield_now();
            }
            for event in &events {
                let Token(index) = event.token();
                let is_closing = event.is_read_closed() || event.is_error();
                self.wake(index, event.is_readable() || is_closing, is_closing, &mut buffer);
            }
        }
        let now_ns = self.now_ns();
        for conn in &mut self.conns {
            conn.give_up(now_ns, &self.pace, &mut self.book);
            if conn.is_leaving && !conn.is_lost {
                self.connections_left = self.connections_left.saturating_sub(1);
                self.book.lost.add("drained by the gateway".to_owned(), 1);
            }
        }
        let ended_ns = self.stopped_at_ns.unwrap_or(now_ns).min(self.pace.stop_ns);
        let measured_ns = ended_ns.max(self.book.last_answer_ns).saturating_sub(self.pace.measure_from_ns);
        Ok(LaneEnd { book: self.book, measured_ns, connections_left: self.connections_left })
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.started_at.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Every place of every connection; one of each first, so that requests spread over the connections.
    fn free_all(&mut self) {
        let depth = self.conns.first().map_or(0, Conn::depth);
        for slot in 0..depth {
            self.free.extend((0..self.conns.len()).map(|index| (index, slot)));
        }
    }

    /// Sends what is due and finds a free place, then writes each connection's bytes in one go.
    fn dispatch(&mut self, now_ns: u64) {
        self.pace.leave_warmup(now_ns);
        while self.stopped_at_ns.is_none() {
            let Some(planned_ns) = self.pace.due(now_ns) else { break };
            let Some((index, slot)) = self.free.pop_front() else { break };
            let Some(conn) = self.conns.get_mut(index).filter(|conn| conn.takes_requests()) else { continue };
            let user = self.users.as_mut().map(Users::take);
            conn.send(slot, user, &self.asked, planned_ns, now_ns);
            self.in_flight = self.in_flight.saturating_add(1);
            if !conn.is_dirty {
                conn.is_dirty = true;
                self.dirty.push(index);
            }
            self.pace.advance();
            if self.pace.is_measured(planned_ns) {
                self.book.sent = self.book.sent.saturating_add(1);
                self.stopped_at_ns = (self.book.sent >= self.requests_max).then_some(now_ns);
            }
        }
        while let Some(index) = self.dirty.pop() {
            let Some(conn) = self.conns.get_mut(index) else { continue };
            conn.is_dirty = false;
            if !conn.is_lost
                && let Err(lost) = conn.flush()
            {
                self.lose(index, &lost, now_ns);
            }
        }
    }

    /// Handles what a connection has to say, then sends on the places that became free.
    fn wake(&mut self, index: usize, is_readable: bool, is_closing: bool, buffer: &mut [u8]) {
        let Some(conn) = self.conns.get_mut(index).filter(|conn| !conn.is_lost) else { return };
        if !conn.out.is_empty() && !conn.is_dirty {
            conn.is_dirty = true;
            self.dirty.push(index);
        }
        if !is_readable {
            let now_ns = self.now_ns();
            self.dispatch(now_ns);
            return;
        }
        loop {
            let Some(conn) = self.conns.get_mut(index) else { return };
            let (now_ns, result) = match conn.read(buffer) {
                Ok(None) => return,
                Ok(Some(count)) => {
                    let now_ns = u64::try_from(self.started_at.elapsed().as_nanos()).unwrap_or(u64::MAX);
                    let in_flight = conn.in_flight;
                    let (free, bytes) = (&mut self.free, buffer.get(..count).unwrap_or_default());
                    let received = conn.receive(bytes, now_ns, &self.pace, &mut self.book, |slot| {
                        free.push_back((index, slot));
                    });
                    let answered = in_flight.saturating_sub(conn.in_flight);
                    self.in_flight = self.in_flight.saturating_sub(answered);
                    (now_ns, received.map(|()| count))
                }
                Err(lost) => (self.now_ns(), Err(lost)),
            };
            let is_lost = result.is_err();
            if let Err(lost) = &result {
                self.lose(index, lost, now_ns);
            }
            self.dispatch(now_ns);
            // A short read emptied the socket: what comes later wakes again. An end that is already there does not.
            let is_emptied = result.is_ok_and(|count| count < buffer.len());
            if is_lost || (is_emptied && !is_closing) {
                return;
            }
        }
    }

    fn lose(&mut self, index: usize, lost: &Lost, now_ns: u64) {
        let Some(conn) = self.conns.get_mut(index).filter(|conn| !conn.is_lost) else { return };
        conn.is_lost = true;
        self.in_flight = self.in_flight.saturating_sub(conn.in_flight);
        conn.give_up(now_ns, &self.pace, &mut self.book);
        self.connections_left = self.connections_left.saturating_sub(1);
        self.book.lost.add(lost.to_string(), 1);
    }

    fn is_over(&mut self, now_ns: u64) -> bool {
        let takes_requests = self.conns.iter().any(Conn::takes_requests);
        if self.stopped_at_ns.is_none() && (now_ns >= self.pace.stop_ns || !takes_requests) {
            self.stopped_at_ns = Some(now_ns);
            self.book.never_sent(self.pace, now_ns);
        }
        let Some(stopped_at_ns) = self.stopped_at_ns else { return false };
        self.in_flight == 0 || now_ns >= stopped_at_ns.saturating_add(DRAIN_NS)
    }

    /// How long the loop may sleep for events.
    fn timeout(&self, now_ns: u64) -> Duration {
        let next_ns = match self.pace.next_ns() {
            // Nothing can be sent before an answer comes.
            _ if self.stopped_at_ns.is_some() || self.free.is_empty() => return POLL_MAX,
            None => self.pace.stop_ns,
            Some(next_ns) => next_ns.min(self.pace.stop_ns),
        };
        let left_ns = next_ns.saturating_sub(now_ns);
        let whole_steps_ns = left_ns.saturating_sub(left_ns % POLL_STEP_NS).saturating_sub(POLL_STEP_NS);
        Duration::from_nanos(whole_steps_ns).min(POLL_MAX)
    }
}

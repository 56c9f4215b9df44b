//! One thread's share of a flood: an epoll loop over its connections.
//!
//! One clock reading, one read and at most one write per wake and connection; nothing is allocated once the
//! buffers have grown. In the closed loop a connection asks again on the places whose answers it has just read. In the
//! open loop what is due goes to the connection whose turn it is, and what is due later to the next: spreading what has
//! come due while the thread was at work would cost a write for each, and the more it lags the longer. It ends when its
//! time or its count is over and everything is answered, a bounded time after that, or when no connection is left.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token};

use super::answers::{Answers, Lost};
use super::book::Book;
use super::conn::{Conn, Desk, ReadBuffer, Standing};
use super::pace::Pace;
use super::requests::Requests;
use crate::output::Failure;

const EVENTS_MAX: usize = 1024;
/// How long the last answers are waited for.
const DRAIN_NS: u64 = 2_000_000_000;
/// The poll's timeout counts milliseconds: what is due sooner is waited for awake.
const POLL_STEP_NS: u64 = 1_000_000;
/// After an answer the next is waited for awake so long: it is the server that would pay for waking this thread.
const AWAKE_NS: u64 = 100_000;
/// Without anything to send the loop still looks at the clock so often.
const POLL_MAX: Duration = Duration::from_millis(20);

/// What a thread brings home.
#[derive(Debug)]
pub(super) struct LaneEnd {
    pub(super) book: Book,
    /// From the end of the warm-up to the end of sending, or to the last answer if that came later.
    pub(super) measured_ns: u64,
    /// How much of that there was nothing to do.
    pub(super) idle_ns: u64,
    /// Connections that still stood at the end.
    pub(super) connections_left: usize,
}

#[derive(Debug)]
pub(super) struct Lane {
    conns: Vec<Conn>,
    requests: Requests,
    desk: Desk,
    requests_max: u64,
    /// Connections with a free place, longest waiting first; only kept in the open loop.
    ready: VecDeque<usize>,
    /// Connections with something to write.
    dirty: Vec<usize>,
    connections_left: usize,
    started_at: Instant,
    /// When something came last.
    last_event_ns: u64,
    /// How long nothing came, after the warm-up.
    idle_ns: u64,
    /// Since when nothing more is sent.
    stopped_at_ns: Option<u64>,
}

impl Lane {
    pub(super) fn new(
        conns: Vec<Conn>,
        requests: Requests,
        answers: Answers,
        pace: Pace,
        requests_max: Option<u64>,
    ) -> Result<Self, Failure> {
        Ok(Self {
            connections_left: conns.len(),
            conns,
            requests,
            desk: Desk { answers, pace, book: Book::new()? },
            requests_max: requests_max.unwrap_or(u64::MAX),
            ready: VecDeque::new(),
            dirty: Vec::new(),
            started_at: Instant::now(),
            last_event_ns: 0,
            idle_ns: 0,
            // A thread without a share of the requests has nothing to do.
            stopped_at_ns: (requests_max == Some(0)).then_some(0),
        })
    }

    /// Runs to the end; `Err` only when the system gives no epoll.
    pub(super) fn run(mut self, started_at: Instant) -> io::Result<LaneEnd> {
        self.started_at = started_at;
        let mut poll = Poll::new()?;
        let mut events = Events::with_capacity(EVENTS_MAX);
        let mut buffer = ReadBuffer::new();
        for (index, conn) in self.conns.iter_mut().enumerate() {
            let interest = Interest::READABLE.add(Interest::WRITABLE);
            poll.registry().register(&mut conn.stream, Token(index), interest)?;
        }
        std::thread::sleep(started_at.saturating_duration_since(Instant::now()));
        (0..self.conns.len()).for_each(|index| self.ask(index, now_ns(started_at)));
        loop {
            let now_ns = now_ns(started_at);
            self.dispatch(now_ns);
            if self.is_over(now_ns) {
                break;
            }
            self.wait(&mut poll, &mut events)?;
            for event in &events {
                let Token(index) = event.token();
                let is_closing = event.is_read_closed() || event.is_error();
                self.wake(index, event.is_readable() || is_closing, is_closing, &mut buffer);
            }
        }
        Ok(self.end(now_ns(started_at)))
    }

    /// Waits for events, awake as long as something is to come soon; whoever shares this core goes first.
    fn wait(&mut self, poll: &mut Poll, events: &mut Events) -> io::Result<()> {
        let waiting_from_ns = now_ns(self.started_at);
        let timeout = self.timeout(waiting_from_ns);
        match poll.poll(events, Some(timeout)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        let is_busy = timeout.is_zero() && !events.is_empty();
        if is_busy {
            self.last_event_ns = waiting_from_ns;
            return Ok(());
        }
        if events.is_empty() && timeout.is_zero() {
            std::thread::yield_now();
        }
        let now_ns = now_ns(self.started_at);
        if !events.is_empty() {
            self.last_event_ns = now_ns;
        }
        if waiting_from_ns >= self.desk.pace.measure_from_ns {
            self.idle_ns = self.idle_ns.saturating_add(now_ns.saturating_sub(waiting_from_ns));
        }
        Ok(())
    }

    fn end(mut self, now_ns: u64) -> LaneEnd {
        let Desk { pace, book, .. } = &mut self.desk;
        for conn in &mut self.conns {
            conn.places.give_up(now_ns, pace, book);
            if conn.standing == Standing::Leaving {
                self.connections_left = self.connections_left.saturating_sub(1);
                book.lost.add("drained by the gateway".to_owned(), 1);
            }
        }
        let ended_ns = self.stopped_at_ns.unwrap_or(now_ns).min(pace.stop_ns);
        let measured_ns = ended_ns.max(book.last_answer_ns).saturating_sub(pace.measure_from_ns);
        LaneEnd {
            book: self.desk.book,
            measured_ns,
            idle_ns: self.idle_ns,
            connections_left: self.connections_left,
        }
    }

    /// A connection has free places: in the closed loop it asks on all of them at once, in the open loop it waits for
    /// what is due.
    fn ask(&mut self, index: usize, now_ns: u64) {
        if !self.desk.pace.is_open_loop() {
            while let Some(planned_ns) = self.due(now_ns) {
                if self.send(index, usize::MAX, planned_ns, now_ns) == 0 {
                    break;
                }
            }
            return;
        }
        let conn = self.conns.get_mut(index).filter(|conn| !conn.is_ready && conn.places.has_free());
        if let Some(conn) = conn {
            conn.is_ready = true;
            self.ready.push_back(index);
        }
    }

    /// Sends what is due on the connection whose turn it is, as far as its places reach, and on the next; then writes each connection's bytes in one go.
    fn dispatch(&mut self, now_ns: u64) {
        self.desk.pace.leave_warmup(now_ns);
        while self.due(now_ns).is_some()
            && let Some(index) = self.ready.pop_front()
        {
            while let Some(planned_ns) = self.due(now_ns)
                && self.send(index, 1, planned_ns, now_ns) > 0
            {
                self.desk.pace.advance();
            }
            if let Some(conn) = self.conns.get_mut(index) {
                conn.is_ready = conn.takes_requests() && conn.places.has_free();
                self.ready.extend(conn.is_ready.then_some(index));
            }
        }
        while let Some(index) = self.dirty.pop() {
            let Some(conn) = self.conns.get_mut(index) else { continue };
            conn.is_dirty = false;
            if !conn.is_lost()
                && let Err(lost) = conn.flush()
            {
                self.lose(index, &lost, now_ns);
            }
        }
    }

    fn due(&self, now_ns: u64) -> Option<u64> {
        self.desk.pace.due(now_ns).filter(|_| self.stopped_at_ns.is_none())
    }

    /// Sends at most so many requests on a connection; how many.
    fn send(&mut self, index: usize, most: usize, planned_ns: u64, now_ns: u64) -> usize {
        let Some(conn) = self.conns.get_mut(index).filter(|conn| conn.takes_requests()) else { return 0 };
        let book = &mut self.desk.book;
        let is_measured = self.desk.pace.is_measured(planned_ns);
        let left = usize::try_from(self.requests_max.saturating_sub(book.sent)).unwrap_or(usize::MAX);
        let most = if is_measured { most.min(left) } else { most };
        let count = conn.send(most, planned_ns, now_ns, &mut self.requests);
        let written = u64::try_from(count).unwrap_or(u64::MAX);
        book.written = book.written.saturating_add(written);
        if is_measured {
            book.sent = book.sent.saturating_add(written);
            self.stopped_at_ns = (book.sent >= self.requests_max).then_some(now_ns);
        }
        if count > 0 && !conn.is_dirty {
            conn.is_dirty = true;
            self.dirty.push(index);
        }
        count
    }

    /// Handles what a connection has to say, then sends on the places that became free.
    fn wake(&mut self, index: usize, is_readable: bool, is_closing: bool, buffer: &mut ReadBuffer) {
        let Some(conn) = self.conns.get_mut(index).filter(|conn| !conn.is_lost()) else { return };
        if conn.has_unwritten() && !conn.is_dirty {
            conn.is_dirty = true;
            self.dirty.push(index);
        }
        if !is_readable {
            self.dispatch(now_ns(self.started_at));
            return;
        }
        loop {
            let Some(conn) = self.conns.get_mut(index) else { return };
            let read = conn.read(buffer);
            if matches!(read, Ok(None)) {
                return;
            }
            let now_ns = now_ns(self.started_at);
            let received = read.and_then(|is_empty| {
                conn.receive(buffer, now_ns, &mut self.desk)?;
                Ok(is_empty)
            });
            match &received {
                Ok(_) => self.ask(index, now_ns),
                Err(lost) => self.lose(index, lost, now_ns),
            }
            self.dispatch(now_ns);
            // A short read emptied the socket: what comes later wakes again. An end that is already there does not.
            let is_emptied = matches!(received, Ok(Some(true)));
            if received.is_err() || (is_emptied && !is_closing) {
                return;
            }
        }
    }

    fn lose(&mut self, index: usize, lost: &Lost, now_ns: u64) {
        let Some(conn) = self.conns.get_mut(index).filter(|conn| !conn.is_lost()) else { return };
        conn.standing = Standing::Lost;
        let Desk { pace, book, .. } = &mut self.desk;
        conn.places.give_up(now_ns, pace, book);
        self.connections_left = self.connections_left.saturating_sub(1);
        book.lost.add(lost.to_string(), 1);
    }

    fn is_over(&mut self, now_ns: u64) -> bool {
        let takes_requests = self.conns.iter().any(Conn::takes_requests);
        let Desk { pace, book, .. } = &mut self.desk;
        if self.stopped_at_ns.is_none() && (now_ns >= pace.stop_ns || !takes_requests) {
            self.stopped_at_ns = Some(now_ns);
            book.never_sent(*pace, now_ns);
        }
        let Some(stopped_at_ns) = self.stopped_at_ns else { return false };
        let is_answered = self.conns.iter().all(|conn| conn.places.in_flight() == 0);
        is_answered || now_ns >= stopped_at_ns.saturating_add(DRAIN_NS)
    }

    /// How long the loop may sleep for events.
    fn timeout(&self, now_ns: u64) -> Duration {
        if now_ns.saturating_sub(self.last_event_ns) < AWAKE_NS {
            return Duration::ZERO;
        }
        let pace = &self.desk.pace;
        let next_ns = match pace.next_ns() {
            // Nothing can be sent before an answer comes.
            _ if self.stopped_at_ns.is_some() || self.ready.is_empty() => u64::MAX,
            None => pace.stop_ns,
            Some(next_ns) => next_ns.min(pace.stop_ns),
        };
        let left_ns = next_ns.saturating_sub(now_ns);
        let whole_steps_ns = left_ns.saturating_sub(left_ns % POLL_STEP_NS).saturating_sub(POLL_STEP_NS);
        Duration::from_nanos(whole_steps_ns).min(POLL_MAX)
    }
}

fn now_ns(started_at: Instant) -> u64 {
    u64::try_from(started_at.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

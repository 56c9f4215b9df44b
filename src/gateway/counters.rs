//! What happened, counted: every reply by status, every rung of the funnel, what came of those who passed it, every end
//! of a connection, every token refused.
//!
//! Each thread that serves connections counts on a sheet of its own, which nobody else writes and which shares no
//! cache line with another; reading adds the sheets up. Counting is one load and one store: it never fails, never
//! waits, and costs no bus traffic. A reader may see two counters of one event an instant apart.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crossbeam::utils::CachePadded;

use crate::admission::identity::IdentityError;
use crate::protocol::Status;

macro_rules! counted {
    ($(#[doc = $title:literal])+ $name:ident { $($(#[doc = $doc:literal])+ $variant:ident = $text:literal,)+ }) => {
        $(#[doc = $title])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl $name {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The label in metrics.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        }
    };
}

counted! {
    /// The rungs of the funnel, cheapest first; each counts the BUYs it turned away.
    Rung {
        /// The frame, its handshake state or its body.
        Frame = "frame",
        /// In-flight cap, expired token, drain.
        Connection = "connection",
        /// The connection's rate.
        RateConnection = "rate_connection",
        /// The rate of all together.
        RateGlobal = "rate_global",
        /// The address's rate.
        RateIp = "rate_ip",
        /// The user's rate.
        RateUser = "rate_user",
        /// The user holds an order, or may hold one.
        Duplicate = "duplicate",
        /// The entry is closed.
        Switches = "switches",
        /// No such activity or SKU, over its limit, outside its window.
        Activity = "activity",
        /// The activity's rate.
        RateActivity = "rate_activity",
        /// User, address or device are blocked.
        Risk = "risk",
        /// They are slowed, and not due again yet.
        RiskSlowed = "risk_slowed",
        /// Not for this user, by the activity's rule or list.
        Eligibility = "eligibility",
        /// Nothing left, by the board.
        Stock = "stock",
        /// The user has as many unpaid orders as may be open.
        OpenUnpaidUser = "open_unpaid_user",
        /// His device has.
        OpenUnpaidDevice = "open_unpaid_device",
        /// The store is known not to answer.
        Breaker = "breaker",
        /// The shard's queue is full.
        Queue = "queue",
        /// Not turned away: went to the stock task.
        Passed = "passed",
    }
}

impl Rung {
    /// One of the limits that stand before everything that is looked up.
    pub(super) const fn is_rate(self) -> bool {
        matches!(self, Self::RateConnection | Self::RateGlobal | Self::RateIp | Self::RateUser)
    }
}

counted! {
    /// What came of the BUYs that passed the funnel. Each that passed is counted here once, sooner or later.
    PassedEnding {
        /// It has the units.
        Queued = "queued",
        /// The user holds another order.
        Already = "already",
        /// His order was closed, and he may not buy again.
        NotAgain = "not_again",
        /// Nothing was left when it was his turn.
        SoldOut = "sold_out",
        /// Fewer were left than asked for.
        Insufficient = "insufficient",
        /// The entry was closed, or the window ended, while he waited.
        Ended = "ended",
        /// He waited too long, or there was no room.
        Busy = "busy",
        /// He has asked the store too often, on all gateways together.
        RateAttempts = "rate_attempts",
        /// The store has not told in time; it may come to an order all the same.
        Unconfirmed = "unconfirmed",
    }
}

counted! {
    /// Why connections ended, and what befell them.
    Ending {
        /// The client closed, or said GOAWAY.
        Client = "client",
        /// The stream could not be read on (length, version, CRC, TLVs).
        BadFrame = "bad_frame",
        /// The token was refused.
        BadToken = "bad_token",
        /// The client program is too old, or of a platform that is not served.
        UpgradeRequired = "upgrade_required",
        /// HELLO and AUTH did not come in time.
        HandshakeTimeout = "handshake_timeout",
        /// A frame did not become complete in time.
        FrameTimeout = "frame_timeout",
        /// Nothing came for too long.
        Idle = "idle",
        /// The reader took no byte for too long, or too many replies waited for it.
        SlowReader = "slow_reader",
        /// The gateway drained.
        Drained = "drained",
        /// The network said so.
        Broken = "broken",
        /// Turned away at accept: too many connections.
        Refused = "refused",
        /// On the balancers' port, from somewhere that is not trusted there.
        UntrustedProxy = "untrusted_proxy",
        /// On the balancers' port, without a PROXY header or with one that cannot be read.
        BadProxyHeader = "bad_proxy_header",
        /// The TLS handshake failed: no TLS 1.3, a certificate that the client does not take, or no TLS at all.
        TlsFailed = "tls_failed",
        /// Turned away before its TLS handshake: as many were under way as there may be.
        TlsRefused = "tls_refused",
        /// Accepting failed (descriptors used up); tried again.
        AcceptFailed = "accept_failed",
    }
}

counted! {
    /// What else is counted.
    Event {
        /// A connection was accepted.
        Accepted = "accepted",
        /// A `RESULT_PUSH` frame was handed to a connection.
        Push = "push",
        /// A call to the store was answered.
        CallAnswered = "call_answered",
        /// A call to the store got no reply in time and was repeated.
        CallRepeated = "call_repeated",
        /// QUEUED was said to a unit of the reserve in the database.
        SoldFromReserve = "sold_from_reserve",
        /// A RESULT was looked up in the database.
        LookedUp = "looked_up",
        /// Marks were handed in for a recovery, in time.
        HandedIn = "handed_in",
        /// A promise that a recovery has lost was offered to the store again.
        OfferedAgain = "offered_again",
        /// A promise that the store did not take back ended in a FAILED order.
        PromiseFailed = "promise_failed",
        /// A change of a switch was obeyed.
        SwitchObeyed = "switch_obeyed",
        /// Something in the store that is no switch here was ignored.
        SwitchIgnored = "switch_ignored",
        /// A switch that the store had lost was put back.
        SwitchRestored = "switch_restored",
        /// A change of the risk lists was put in force.
        RiskChanged = "risk_changed",
        /// The risk lists were read from their beginning.
        RiskReadAll = "risk_read_all",
        /// Something in the store's risk lists that is no entry here was ignored.
        RiskIgnored = "risk_ignored",
        /// An entry of the risk lists that the store had lost was put back.
        RiskRestored = "risk_restored",
        /// A HELLO, or an app's AUTH, without such a device as is asked for.
        DeviceRefused = "device_refused",
        /// A user on a device was counted.
        DeviceCounted = "device_counted",
        /// A user on a device was not counted: too many waited for the store.
        DeviceForgotten = "device_forgotten",
        /// A user or device was put into the risk lists.
        Flagged = "flagged",
        /// One was not: too many waited for the store.
        FlagForgotten = "flag_forgotten",
        /// An allow-list was read as a whole.
        ListRead = "list_read",
        /// An allow-list that the store had lost was put back.
        ListRestored = "list_restored",
        /// An AUTH was over the rate of its address.
        AuthRateLimited = "auth_rate_limited",
        /// The store was asked for a session.
        SessionLookedUp = "session_looked_up",
        /// The store did not tell of a session in time.
        SessionUnanswered = "session_unanswered",
        /// A TLS handshake with the certificate's signature.
        TlsFull = "tls_full",
        /// A TLS handshake of a client that came again with a ticket.
        TlsResumed = "tls_resumed",
        /// Certificate or ticket keys became others.
        TlsChanged = "tls_changed",
        /// The files of TLS were looked at and could not be used.
        TlsFilesRefused = "tls_files_refused",
        /// The token keys in force became others.
        KeysChanged = "keys_changed",
        /// The file with token keys was looked at and could not be used.
        KeyFileRefused = "key_file_refused",
    }
}

/// Room for six classes of sixteen statuses.
const STATUS_PLACES: usize = 96;
const RUNGS_AT: usize = STATUS_PLACES;
const PASSED_AT: usize = RUNGS_AT + Rung::ALL.len();
const ENDINGS_AT: usize = PASSED_AT + PassedEnding::ALL.len();
const EVENTS_AT: usize = ENDINGS_AT + Ending::ALL.len();
const TOKENS_AT: usize = EVENTS_AT + Event::ALL.len();
const PLACES: usize = TOKENS_AT + IdentityError::ALL.len();

/// Where something is counted on a sheet: no search on the way of a reply.
trait Place {
    fn place(self) -> usize;
}

impl Place for Status {
    fn place(self) -> usize {
        // Its class and its number in the class.
        let code = usize::from(self.code());
        (code >> 12 << 4) | (code & 0xF)
    }
}

impl Place for Rung {
    fn place(self) -> usize {
        RUNGS_AT.saturating_add(self as usize)
    }
}

impl Place for PassedEnding {
    fn place(self) -> usize {
        PASSED_AT.saturating_add(self as usize)
    }
}

impl Place for Ending {
    fn place(self) -> usize {
        ENDINGS_AT.saturating_add(self as usize)
    }
}

impl Place for Event {
    fn place(self) -> usize {
        EVENTS_AT.saturating_add(self as usize)
    }
}

impl Place for IdentityError {
    fn place(self) -> usize {
        TOKENS_AT.saturating_add(self as usize)
    }
}

/// What one thread counts. Written by that thread alone: two writers would lose counts.
#[derive(Debug)]
pub(super) struct Sheet(CachePadded<[AtomicU64; PLACES]>);

impl Sheet {
    /// A BUY ended at this rung.
    pub(super) fn rung(&self, rung: Rung) {
        self.add(rung, 1);
    }

    /// This came of a BUY that passed.
    pub(super) fn passed(&self, ending: PassedEnding) {
        self.add(ending, 1);
    }

    /// A connection ended so.
    pub(super) fn ending(&self, ending: Ending) {
        self.add(ending, 1);
    }

    /// A reply with this status was given.
    pub(super) fn status(&self, status: Status) {
        self.add(status, 1);
    }

    /// A token was refused for this.
    pub(super) fn token_refused(&self, why: IdentityError) {
        self.add(why, 1);
    }

    /// It happened so many times.
    pub(super) fn event(&self, event: Event, times: u64) {
        self.add(event, times);
    }

    fn add(&self, what: impl Place, times: u64) {
        if let Some(counter) = self.0.get(what.place()) {
            counter.store(counter.load(Ordering::Relaxed).wrapping_add(times), Ordering::Relaxed);
        }
    }
}

#[derive(Debug)]
struct Sheets {
    live: Vec<Arc<Sheet>>,
    /// What stood on those that are not written any more.
    retired: [u64; PLACES],
}

/// The counters of one gateway: the sum of all sheets.
#[derive(Debug)]
pub struct Counters {
    sheets: Mutex<Sheets>,
}

impl Default for Counters {
    fn default() -> Self {
        Self { sheets: Mutex::new(Sheets { live: Vec::new(), retired: [0; PLACES] }) }
    }
}

impl Counters {
    /// A sheet for one more thread.
    pub(super) fn sheet(&self) -> Arc<Sheet> {
        let zeros = std::array::from_fn(|_| AtomicU64::new(0));
        let sheet = Arc::new(Sheet(CachePadded::new(zeros)));
        self.sheets().live.push(Arc::clone(&sheet));
        sheet
    }

    /// The thread ends: what stands on its sheet stays counted.
    pub(super) fn retire(&self, sheet: &Arc<Sheet>) {
        let mut sheets = self.sheets();
        let Some(index) = sheets.live.iter().position(|known| Arc::ptr_eq(known, sheet)) else { return };
        let sheet = sheets.live.swap_remove(index);
        for (sum, counter) in sheets.retired.iter_mut().zip(sheet.0.iter()) {
            *sum = sum.wrapping_add(counter.load(Ordering::Relaxed));
        }
    }

    /// How many BUYs ended at this rung.
    pub fn rung_count(&self, rung: Rung) -> u64 {
        self.sum(rung.place())
    }

    /// Of how many BUYs that passed this came.
    pub fn passed_count(&self, ending: PassedEnding) -> u64 {
        self.sum(ending.place())
    }

    /// How many connections ended so.
    pub fn ending_count(&self, ending: Ending) -> u64 {
        self.sum(ending.place())
    }

    /// How often it happened.
    pub fn event_count(&self, event: Event) -> u64 {
        self.sum(event.place())
    }

    /// How many tokens were refused for this.
    pub fn token_refusal_count(&self, why: IdentityError) -> u64 {
        self.sum(why.place())
    }

    /// Replies by status, those that occurred.
    pub fn status_counts(&self) -> impl Iterator<Item = (Status, u64)> {
        let counted = |status: &Status| (*status, self.sum(status.place()));
        Status::ALL.iter().map(counted).filter(|(_, count)| *count > 0)
    }

    fn sum(&self, place: usize) -> u64 {
        let sheets = self.sheets();
        let read =
            |sheet: &Arc<Sheet>| sheet.0.get(place).map_or(0, |counter| counter.load(Ordering::Relaxed));
        let retired = sheets.retired.get(place).copied().unwrap_or_default();
        sheets.live.iter().map(read).fold(retired, u64::wrapping_add)
    }

    fn sheets(&self) -> MutexGuard<'_, Sheets> {
        self.sheets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn everything_has_a_place_of_its_own() {
        let mut places: Vec<usize> = Status::ALL.iter().map(|status| status.place()).collect();
        places.extend(Rung::ALL.iter().map(|rung| rung.place()));
        places.extend(PassedEnding::ALL.iter().map(|ending| ending.place()));
        places.extend(Ending::ALL.iter().map(|ending| ending.place()));
        places.extend(Event::ALL.iter().map(|event| event.place()));
        places.extend(IdentityError::ALL.iter().map(|why| why.place()));
        assert!(places.iter().all(|place| *place < PLACES));
        assert_eq!(places.iter().collect::<BTreeSet<_>>().len(), places.len());
    }

    #[test]
    fn the_sheets_add_up() {
        let counters = Counters::default();
        let (one, other) = (counters.sheet(), counters.sheet());
        one.status(Status::Unconfirmed);
        other.status(Status::Unconfirmed);
        other.rung(Rung::Stock);
        one.event(Event::Push, 5);
        other.ending(Ending::Client);
        counters.retire(&one);
        assert_eq!(counters.status_counts().collect::<Vec<_>>(), [(Status::Unconfirmed, 2)]);
        assert_eq!((counters.rung_count(Rung::Stock), counters.rung_count(Rung::Passed)), (1, 0));
        assert_eq!((counters.event_count(Event::Push), counters.ending_count(Ending::Client)), (5, 1));
    }
}

//! What a gateway lends of its shares and borrows of others', tick by tick. Pure: the store's answers are arguments.
//!
//! Borrowing: a rate whose share refused somebody wants tokens, as many as were used of late and some more; what stays
//! unused is given back. Lending: of each rate that another gateway wants, tokens are taken out of this gateway's own
//! bucket as long as half of its burst stays, unless it refused somebody itself. So a gateway that uses nine tenths of
//! its share is refused nothing, and lends the last tenth.

use std::collections::HashMap;

use super::gateways::Gateways;
use super::slice::TOKENS_MAX;
use super::{RateKey, Slice};
use crate::admission::limits::Rate;

/// Between two exchanges while anything is wanted, by anybody; while nothing is; and when something has come to be wanted
/// that this gateway may have tokens of.
const BUSY_MS: u64 = 100;
const IDLE_MS: u64 = 250;
const EAGER_MS: u64 = 10;
/// Tokens that were not refreshed for so long are void: three ticks.
const GOOD_NS: u64 = 300_000_000;
/// Of a rate: what a slice may hold, and what a pool may.
const SLICE_MS: u64 = 150;
const POOL_MS: u64 = 200;
/// Ticks without use after which a rate is not borrowed for any more.
const QUIET_TICKS: u8 = 5;

/// The rates of this gateway that are shared, as the exchange sees them.
pub trait SharedRates {
    /// Every slice that may want tokens or have some.
    fn visit(&self, visit: &mut dyn FnMut(RateKey, &Slice));

    /// The rate of all gateways together; [`Rate::OFF`] for one that has no limit, or is not known here.
    fn rate(&self, key: RateKey) -> Rate;

    /// Takes up to so many tokens out of this gateway's bucket, as long as half of the burst stays; how many.
    fn lend(&self, now_ns: u64, key: RateKey, most: u32) -> u32;

    /// Nobody wants any of this rate now.
    fn release(&self, key: RateKey);
}

/// What is given and wanted of one rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Which.
    pub key: RateKey,
    /// Tokens for others.
    pub give: u32,
    /// Tokens of others'.
    pub want: u32,
    /// As many may wait for whoever wants them.
    pub pool_max: u32,
}

/// One call to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offers {
    /// Greater than that of the one before.
    pub number: u64,
    /// Each rate once.
    pub offers: Vec<Offer>,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExchangeReply {
    /// Gateways that live, this one among them.
    pub gateways: u32,
    /// Tokens, in the order of the offers.
    pub granted: Vec<u32>,
    /// What any gateway wants, and how much of it waits in the pool.
    pub wanted: Vec<(RateKey, u32)>,
}

/// Tokens moved since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traded {
    /// Taken out of this gateway's buckets for others.
    pub lent: u64,
    /// Granted to this gateway, what it gave back unused not taken off.
    pub borrowed: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Exchange {
    number: u64,
    gateways: Gateways,
    books: HashMap<RateKey, Book>,
    /// By others or by this one, as of the last answer.
    wanted: Vec<(RateKey, u32)>,
    /// Something is among them that was not.
    is_eager: bool,
    traded: Traded,
}

/// What is known of a rate that this gateway borrows for.
#[derive(Clone, Copy, Debug, Default)]
struct Book {
    /// After the last answer.
    held: u32,
    /// How many it should hold after the next one.
    target: u32,
    quiet_ticks: u8,
    /// The call that it was looked at for.
    number: u64,
    /// Somebody was refused since the last tick.
    is_short: bool,
}

impl Book {
    fn tick(&mut self, is_short: bool, used: u32, slice_max: u32) {
        self.is_short = is_short;
        let more = |part: u32| part.saturating_add(1);
        self.target = if is_short {
            self.target.max(used.saturating_mul(2)).saturating_add(more(slice_max / 4))
        } else {
            used.saturating_add(more(used / 4))
        };
        self.target = self.target.min(slice_max);
        let is_quiet = !is_short && used == 0;
        self.quiet_ticks = if is_quiet { self.quiet_ticks.saturating_add(1) } else { 0 };
        if self.is_done() {
            self.target = 0;
        }
    }

    const fn is_done(self) -> bool {
        self.quiet_ticks >= QUIET_TICKS
    }
}

impl Exchange {
    /// Knows of no other gateway.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many gateways share the rates, as far as it counts.
    pub fn gateways(&self) -> u32 {
        self.gateways.in_force()
    }

    /// Tokens moved so far.
    pub const fn traded(&self) -> Traded {
        self.traded
    }

    /// In how many milliseconds the next exchange is due.
    pub fn due_in_ms(&self) -> u64 {
        if self.is_eager {
            EAGER_MS
        } else if self.books.is_empty() && self.wanted.is_empty() {
            IDLE_MS
        } else {
            BUSY_MS
        }
    }

    /// The next call. What it gives is taken out of slices and buckets already.
    pub fn next(&mut self, now_ns: u64, rates: &impl SharedRates) -> Offers {
        self.number = self.number.saturating_add(1);
        let mut offers = Vec::new();
        if self.gateways() > 1 {
            self.borrow(now_ns, rates, &mut offers);
            self.lend(now_ns, rates, &mut offers);
        } else {
            self.books.drain().for_each(|(key, _)| rates.release(key));
        }
        Offers { number: self.number, offers }
    }

    fn borrow(&mut self, now_ns: u64, rates: &impl SharedRates, offers: &mut Vec<Offer>) {
        let (number, mut done) = (self.number, Vec::new());
        rates.visit(&mut |key, slice| {
            let is_short = slice.was_short();
            if !is_short && !self.books.contains_key(&key) {
                return;
            }
            let book = self.books.entry(key).or_default();
            // Two threads that were refused at once may have claimed two slices for one address: the first counts.
            if std::mem::replace(&mut book.number, number) == number {
                return;
            }
            let (rate, left) = (rates.rate(key), slice.left(now_ns));
            book.tick(is_short, book.held.saturating_sub(left), slice_max(rate));
            let give = slice.take_up_to(left.saturating_sub(book.target), now_ns);
            if book.is_done() {
                done.push(key);
            }
            book.held = left.saturating_sub(give);
            let want = book.target.saturating_sub(left);
            if give > 0 || want > 0 {
                offers.push(Offer { key, give, want, pool_max: pool_max(rate) });
            }
        });
        for key in done {
            self.books.remove(&key);
            rates.release(key);
        }
        // Of a rate that is not there any more, as when its activity was archived: nobody would ever be done with it.
        self.books.retain(|key, book| {
            let is_there = book.number == number;
            if !is_there {
                rates.release(*key);
            }
            is_there
        });
    }

    fn lend(&mut self, now_ns: u64, rates: &impl SharedRates, offers: &mut Vec<Offer>) {
        let lenders = self.gateways().saturating_sub(1).max(1);
        for (key, pool) in &self.wanted {
            if self.books.get(key).is_some_and(|book| book.is_short) {
                continue;
            }
            let pool_max = pool_max(rates.rate(*key));
            // The others see the same room.
            let give = rates.lend(now_ns, *key, pool_max.saturating_sub(*pool).div_ceil(lenders));
            if give == 0 {
                continue;
            }
            self.traded.lent = self.traded.lent.saturating_add(give.into());
            match offers.iter_mut().find(|offer| offer.key == *key) {
                Some(offer) => offer.give = offer.give.saturating_add(give),
                None => offers.push(Offer { key: *key, give, want: 0, pool_max }),
            }
        }
    }

    /// The store has answered a call.
    pub fn answered(&mut self, now_ns: u64, asked: &Offers, reply: ExchangeReply, rates: &impl SharedRates) {
        self.gateways.heard(now_ns, reply.gateways);
        let mut granted: HashMap<RateKey, u32> =
            asked.offers.iter().map(|offer| offer.key).zip(reply.granted).collect();
        let until_ns = now_ns.saturating_add(GOOD_NS);
        rates.visit(&mut |key, slice| {
            let Some(book) = self.books.get_mut(&key) else { return };
            let tokens = granted.remove(&key).unwrap_or_default();
            slice.put(now_ns, tokens, until_ns);
            book.held = book.held.saturating_add(tokens);
            self.traded.borrowed = self.traded.borrowed.saturating_add(tokens.into());
        });
        let is_known =
            |key: &RateKey| self.books.contains_key(key) || self.wanted.iter().any(|(known, _)| known == key);
        self.is_eager = self.gateways() > 1 && !reply.wanted.iter().all(|(key, _)| is_known(key));
        self.wanted = reply.wanted;
    }

    /// It has not. What was given is lost, what was borrowed expires, and nothing is lent until it answers.
    pub fn failed(&mut self) {
        self.gateways.silence();
        self.wanted.clear();
        self.is_eager = false;
    }
}

/// What a rate comes to in that time, at least two; nothing where it is off.
fn part(rate: Rate, ms: u64) -> u32 {
    if rate.rate_per_s == 0 {
        return 0;
    }
    let tokens = u64::from(rate.rate_per_s).saturating_mul(ms) / 1_000;
    u32::try_from(tokens).unwrap_or(u32::MAX).clamp(2, TOKENS_MAX)
}

fn slice_max(rate: Rate) -> u32 {
    part(rate, SLICE_MS)
}

fn pool_max(rate: Rate) -> u32 {
    part(rate, POOL_MS)
}

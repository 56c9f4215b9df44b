//! Who buys what, and how: everything about a rehearsed sale that is decided before it starts.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use super::life::Life;
use crate::client::ClientTls;
use crate::protocol::{ActivityId, SkuId, UserId};

/// Descriptors a process needs besides its connections: standard streams, database, runtime, listener.
const DESCRIPTORS_SPARE: u64 = 64;
/// Users who listen elsewhere at a time; more wait for their turn to buy.
pub(super) const LISTENING_USERS_MAX: usize = 100;
/// 198.18.0.0/15, set aside for benchmarks: no real client comes from there.
const BENCHMARK_NET: u32 = 0xC612_0000;
const BENCHMARK_ADDRS: u32 = 1 << 17;

/// How users reach the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Each user on a connection of its own.
    App,
    /// A back end's connections, shared by all users.
    Service,
}

impl Mode {
    /// As in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::App => "app",
            Self::Service => "service",
        }
    }
}

/// How many units users want: quantities with weights. Written `1:90,2:10`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quantities(Vec<(u16, u32)>);

impl Quantities {
    /// Everybody wants one unit.
    pub fn ones() -> Self {
        Self(vec![(1, 1)])
    }

    /// Whether everybody wants one unit.
    pub fn are_ones(&self) -> bool {
        self.0.iter().all(|(quantity, weight)| *quantity == 1 || *weight == 0)
    }

    fn pick(&self, random: &mut fastrand::Rng) -> u16 {
        let sum = self.0.iter().fold(0_u32, |sum, (_, weight)| sum.saturating_add(*weight));
        let mut at = random.u32(..sum.max(1));
        for (quantity, weight) in &self.0 {
            if at < *weight {
                return *quantity;
            }
            at = at.saturating_sub(*weight);
        }
        1
    }
}

impl FromStr for Quantities {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = |part: &str| {
            let (quantity, weight) = part.trim().split_once(':').unwrap_or((part.trim(), "1"));
            let quantity: u16 = quantity.parse().ok().filter(|quantity| *quantity > 0)?;
            Some((quantity, weight.parse().ok().filter(|weight| (1..=1_000_000).contains(weight))?))
        };
        let list: Option<Vec<_>> = text.split(',').map(parse).collect();
        list.map(Self).ok_or_else(|| {
            format!("`{text}` is no list of quantity:weight; write it like 1:90,2:10 (quantities 1 to 65535)")
        })
    }
}

impl fmt::Display for Quantities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (quantity, weight)) in self.0.iter().enumerate() {
            write!(f, "{}{quantity}:{weight}", if index == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

/// A sale to rehearse.
#[derive(Clone, Debug)]
pub struct SalePlan {
    /// The gateway, or several that share a store.
    pub addrs: Vec<SocketAddr>,
    /// TLS is spoken with all of them.
    pub tls: Option<ClientTls>,
    /// How many users buy.
    pub users: u32,
    /// The first user's id; the others follow.
    pub first_user: u64,
    /// In which activity.
    pub activity: ActivityId,
    /// Which article.
    pub sku: SkuId,
    /// Connections open at once.
    pub connections: usize,
    /// One connection per user, or shared ones.
    pub mode: Mode,
    /// Users at work at once on each service connection; the gateway's own cap holds besides.
    pub in_flight: usize,
    /// Units wanted.
    pub quantities: Quantities,
    /// Share of users (0 to 1) who buy again after their answer.
    pub retry_share: f64,
    /// Share of users (0 to 1) who send BUY twice at once.
    pub double_share: f64,
    /// Share of users (0 to 1) who hold one more connection to each of `listen_addrs`, which only listens.
    pub listen_share: f64,
    /// The gateways that listening users connect to, each directly: at least two.
    pub listen_addrs: Vec<SocketAddr>,
    /// Decides which users do what; the same seed, the same choice.
    pub seed: u64,
    /// How long a user goes on trying.
    pub patience: Duration,
    /// How long a winner waits for the push before asking.
    pub push_wait: Duration,
    /// How long the audit waits for writers to settle what was sold.
    pub settle_patience: Duration,
    /// How many of those who went away empty-handed are asked by RESULT afterwards.
    pub loser_sample: usize,
    /// Descriptors that each connection costs this process: 2 when the gateway runs in it too.
    pub descriptors_per_connection: u64,
    /// What winners do afterwards; `None`: nothing.
    pub life: Option<Life>,
}

/// Why a plan cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A value is out of range.
    #[error("{0}")]
    Value(String),
    /// The process may not open so many sockets.
    #[error(
        "{connections} connections need {needed} file descriptors, this process may have {limit}: \
         at most {would_fit} connections fit; use fewer connections{}, or raise `ulimit -n`",
        if *.is_app { ", or service mode, which shares them" } else { "" }
    )]
    Descriptors {
        /// As planned.
        connections: usize,
        /// For them.
        needed: u64,
        /// The hard limit.
        limit: u64,
        /// Connections within the limit.
        would_fit: u64,
        /// Whether service mode would help.
        is_app: bool,
    },
}

/// What one user of the plan does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) user: UserId,
    pub(super) client_addr: IpAddr,
    pub(super) quantity: u16,
    pub(super) is_doubled: bool,
    pub(super) is_retried: bool,
    pub(super) is_listening: bool,
}

impl SalePlan {
    /// One unit each, everybody once, service mode off; to be adjusted.
    pub fn new(addrs: Vec<SocketAddr>, users: u32, activity: ActivityId, sku: SkuId) -> Self {
        Self {
            addrs,
            tls: None,
            users,
            first_user: 1,
            activity,
            sku,
            connections: 200,
            mode: Mode::App,
            in_flight: 64,
            quantities: Quantities::ones(),
            retry_share: 0.1,
            double_share: 0.05,
            listen_share: 0.0,
            listen_addrs: Vec::new(),
            seed: 1,
            patience: Duration::from_secs(60),
            push_wait: Duration::from_secs(2),
            settle_patience: Duration::from_secs(60),
            loser_sample: 1000,
            descriptors_per_connection: 1,
            life: None,
        }
    }

    /// Refuses what cannot be done, and raises the soft descriptor limit as far as needed.
    pub fn prepare(&self) -> Result<(), PlanError> {
        let value = |text: String| Err(PlanError::Value(text));
        if self.addrs.is_empty() {
            return value("no gateway address was given".to_owned());
        }
        if self.users == 0 || self.connections == 0 || self.in_flight == 0 {
            return value("users, connections and requests in flight must each be at least 1".to_owned());
        }
        if self.first_user == 0 || self.first_user.saturating_add(u64::from(self.users)) > UserId::MAX {
            return value(format!("user ids from {} on leave the range 1 to 2^63-1", self.first_user));
        }
        let shares = [
            ("retry share", self.retry_share),
            ("double share", self.double_share),
            ("listen share", self.listen_share),
        ];
        for (name, share) in shares {
            if !(0.0..=1.0).contains(&share) {
                return value(format!("{name} {share} is not between 0 and 1"));
            }
        }
        let mut gateways = self.listen_addrs.clone();
        gateways.sort_unstable();
        gateways.dedup();
        if self.listen_share > 0.0 && (gateways.len() < 2 || gateways.len() != self.listen_addrs.len()) {
            return value(format!(
                "users who listen elsewhere need the addresses of at least two gateways, each once, not {:?}",
                self.listen_addrs
            ));
        }
        let limit = rlimit::increase_nofile_limit(u64::MAX).unwrap_or(u64::MAX);
        self.check_descriptors(limit)
    }

    fn check_descriptors(&self, limit: u64) -> Result<(), PlanError> {
        let each = self.descriptors_per_connection.max(1);
        let open_at_once = u64::try_from(self.open_at_once()).unwrap_or(u64::MAX);
        let listening = if self.listen_share > 0.0 {
            LISTENING_USERS_MAX.saturating_mul(self.listen_addrs.len())
        } else {
            0
        };
        let spare = DESCRIPTORS_SPARE.saturating_add(u64::try_from(listening).unwrap_or(u64::MAX));
        let needed = open_at_once.saturating_mul(each).saturating_add(spare);
        if needed <= limit {
            return Ok(());
        }
        let would_fit = limit.saturating_sub(spare).checked_div(each).unwrap_or(0);
        let is_app = self.mode == Mode::App;
        Err(PlanError::Descriptors { connections: self.open_at_once(), needed, limit, would_fit, is_app })
    }

    /// Connections open at once: no more than there are users.
    pub fn open_at_once(&self) -> usize {
        self.connections.min(usize::try_from(self.users).unwrap_or(usize::MAX))
    }

    /// The part of the `index`-th user (from 0): a function of seed and index alone.
    pub(super) fn part(&self, index: u32) -> Part {
        let mut random =
            fastrand::Rng::with_seed(self.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ u64::from(index));
        // Neighbouring seeds start alike; the first draws are thrown away.
        random.u64(..);
        random.u64(..);
        let addr = BENCHMARK_NET | (index % BENCHMARK_ADDRS);
        Part {
            user: UserId(self.first_user.saturating_add(u64::from(index))),
            client_addr: IpAddr::V4(Ipv4Addr::from_bits(addr)),
            quantity: self.quantities.pick(&mut random),
            is_doubled: random.f64() < self.double_share,
            is_retried: random.f64() < self.retry_share,
            is_listening: random.f64() < self.listen_share,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::cast_precision_loss,
        clippy::arithmetic_side_effects,
        reason = "tests"
    )]
    use super::*;

    fn plan(users: u32) -> SalePlan {
        SalePlan::new(vec!["127.0.0.1:7700".parse().unwrap()], users, ActivityId(1), SkuId(1))
    }

    #[test]
    fn quantities_are_read_and_picked_by_weight() {
        let quantities: Quantities = "1:90, 3:10".parse().unwrap();
        assert_eq!(quantities.to_string(), "1:90,3:10");
        assert!(!quantities.are_ones() && Quantities::ones().are_ones());
        let plan = SalePlan { quantities, ..plan(10_000) };
        let threes = (0..10_000).filter(|index| plan.part(*index).quantity == 3).count();
        assert!((800..1200).contains(&threes), "{threes}");
        let doubled = (0..10_000).filter(|index| plan.part(*index).is_doubled).count();
        assert!((350..650).contains(&doubled), "{doubled}");
        for bad in ["", "0:1", "1:0", "x", "1:2:3", "70000:1", "1,,2"] {
            assert!(bad.parse::<Quantities>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_same_seed_makes_the_same_parts() {
        let (plan, other) = (plan(100), SalePlan { seed: 2, ..plan(100) });
        assert!((0..100).all(|index| plan.part(index) == plan.part(index)));
        assert!((0..100).any(|index| plan.part(index) != other.part(index)));
        assert_eq!(plan.part(3).user, UserId(4));
        assert_eq!(plan.part(131_071).client_addr.to_string(), "198.19.255.255");
    }

    #[test]
    fn who_listens_needs_two_gateways() {
        let listening = |addrs: &[&str]| SalePlan {
            listen_share: 0.5,
            listen_addrs: addrs.iter().map(|addr| addr.parse().unwrap()).collect(),
            ..plan(1_000)
        };
        let two = listening(&["127.0.0.1:1", "127.0.0.1:2"]);
        assert_eq!(two.prepare(), Ok(()));
        assert!((400..600).contains(&(0..1_000).filter(|index| two.part(*index).is_listening).count()));
        for addrs in [&[] as &[&str], &["127.0.0.1:1"], &["127.0.0.1:1", "127.0.0.1:1"]] {
            let error = listening(addrs).prepare().unwrap_err();
            assert!(error.to_string().contains("at least two gateways, each once"), "{error}");
        }
    }

    #[test]
    fn a_plan_that_does_not_fit_says_how_much_would() {
        let plan = SalePlan { connections: 30_000, descriptors_per_connection: 2, ..plan(25_000) };
        let error = plan.check_descriptors(20_000).unwrap_err();
        assert_eq!(
            error.to_string(),
            "25000 connections need 50064 file descriptors, this process may have 20000: at most 9968 \
             connections fit; use fewer connections, or service mode, which shares them, or raise `ulimit -n`"
        );
        assert_eq!(SalePlan { connections: 9_968, ..plan }.check_descriptors(20_000), Ok(()));
    }
}

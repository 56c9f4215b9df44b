//! Names of keys. Everything of a shard carries its hash tag, so that one function touches it atomically and a
//! cluster keeps it on one node.

use crate::protocol::{ActivityId, UserId};
use crate::stock::calls::ShardId;
use crate::store::sessions::SessionKey;

/// The hash slots of the tags `{00}` to `{15}` (CRC16 of the tag; fixed by Redis Cluster's specification).
pub(super) const SLOTS: [u16; 16] =
    [13254, 9191, 4996, 933, 13122, 9059, 4864, 801, 13006, 8943, 247, 4310, 8373, 12436, 115, 4178];

/// The consumer group over the feeds.
pub(super) const GROUP: &str = "settle";

#[derive(Clone, Debug)]
pub(super) struct Keys {
    prefix: String,
}

impl Keys {
    pub(super) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    fn of(&self, shard: ShardId, rest: &str) -> String {
        format!("{}:{{{:02}}}:{rest}", self.prefix, shard.number())
    }

    pub(super) fn meta(&self, shard: ShardId) -> String {
        self.of(shard, "meta")
    }

    pub(super) fn feed(&self, shard: ShardId) -> String {
        self.of(shard, "feed")
    }

    pub(super) fn calls(&self, shard: ShardId) -> String {
        self.of(shard, "calls")
    }

    pub(super) fn stock(&self, shard: ShardId, activity: ActivityId) -> String {
        self.of(shard, &format!("{activity}:stock"))
    }

    pub(super) fn buyers(&self, shard: ShardId, activity: ActivityId) -> String {
        self.of(shard, &format!("{activity}:buyers"))
    }

    /// What the users of a shard have asked for in a window of this length. The length is in the name, so that gateways
    /// that differ in it do not end each other's windows.
    pub(super) fn attempts(&self, shard: ShardId, window_ms: u128) -> String {
        self.of(shard, &format!("attempts:{window_ms}"))
    }

    /// The installation's switches, in the slot of shard 0.
    pub(super) fn switches(&self) -> String {
        self.of(ShardId::ALL[0], "switches")
    }

    /// The changes of switches, beside them.
    pub(super) fn switch_log(&self) -> String {
        self.of(ShardId::ALL[0], "switches:log")
    }

    /// The installation's risk lists, in the slot of shard 0.
    pub(super) fn risk(&self) -> String {
        self.of(ShardId::ALL[0], "risk")
    }

    /// Their changes, beside them.
    pub(super) fn risk_log(&self) -> String {
        self.of(ShardId::ALL[0], "risk:log")
    }

    /// When the time of their entries passes.
    pub(super) fn risk_until(&self) -> String {
        self.of(ShardId::ALL[0], "risk:until")
    }

    /// Users seen on a device, whatever it calls itself: what follows the tag chooses no slot.
    pub(super) fn users_of_device(&self, shard: ShardId, device: &str) -> String {
        self.of(shard, &format!("seen:device:{device}"))
    }

    /// Devices that a user was seen on.
    pub(super) fn devices_of_user(&self, shard: ShardId, user: UserId) -> String {
        self.of(shard, &format!("seen:user:{user}"))
    }

    /// How each allow-list stands, in the slot of shard 0.
    pub(super) fn allow_lists(&self) -> String {
        self.of(ShardId::ALL[0], "allow")
    }

    /// The changes of allow-lists, beside that.
    pub(super) fn allow_log(&self) -> String {
        self.of(ShardId::ALL[0], "allow:log")
    }

    /// An activity's allow-list, beside that.
    pub(super) fn allowed(&self, activity: ActivityId) -> String {
        self.of(ShardId::ALL[0], &format!("{activity}:allowed"))
    }

    /// The gateways that live, in the slot of shard 0.
    pub(super) fn gateways(&self) -> String {
        self.of(ShardId::ALL[0], "gateways")
    }

    /// The number of each one's last exchange of rates, beside them.
    pub(super) fn gateway_calls(&self) -> String {
        self.of(ShardId::ALL[0], "gateways:calls")
    }

    /// The rates that gateways want more of, beside them.
    pub(super) fn wanted_rates(&self) -> String {
        self.of(ShardId::ALL[0], "rates:wanted")
    }

    /// What lies in their pools, beside them.
    pub(super) fn rate_pools(&self) -> String {
        self.of(ShardId::ALL[0], "rates:pools")
    }

    /// The session of a token.
    pub(super) fn session(&self, key: &SessionKey) -> String {
        self.of(shard_of_session(key), &format!("session:{key}"))
    }

    /// Where a recovery lays content before it is switched in; `attempt` is another for every attempt.
    pub(super) fn staged(&self, shard: ShardId, attempt: &str, activity: ActivityId, what: &str) -> String {
        self.of(shard, &format!("staged:{attempt}:{activity}:{what}"))
    }
}

/// Whose slot a session lies in: the first hex digit of its name says it.
pub(super) fn shard_of_session(key: &SessionKey) -> ShardId {
    let [first, ..] = key.0;
    ShardId::ALL.get(usize::from(first >> 4)).copied().unwrap_or(ShardId::ALL[0])
}

pub(super) fn slot(shard: ShardId) -> u16 {
    SLOTS.get(shard.index()).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, reason = "tests")]

    use super::*;

    fn crc16(bytes: &[u8]) -> u16 {
        bytes.iter().fold(0, |mut crc, byte| {
            crc ^= u16::from(*byte) << 8;
            for _ in 0..8 {
                crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            }
            crc
        })
    }

    #[test]
    fn the_slots_are_those_of_the_tags() {
        for shard in ShardId::all() {
            assert_eq!(slot(shard), crc16(format!("{:02}", shard.number()).as_bytes()) % 16384);
        }
    }

    #[test]
    fn keys_look_like_the_protocol_says() {
        let (keys, shard) = (Keys::new("seckill"), ShardId::ALL[7]);
        assert_eq!(keys.meta(shard), "seckill:{07}:meta");
        assert_eq!(keys.stock(shard, ActivityId(12)), "seckill:{07}:12:stock");
        assert_eq!(
            (keys.switches(), keys.switch_log()),
            ("seckill:{00}:switches".to_owned(), "seckill:{00}:switches:log".to_owned())
        );
        let mut digest = [0; 32];
        (digest[0], digest[31]) = (0xB7, 1);
        let zeros = "0".repeat(60);
        assert_eq!(keys.session(&SessionKey(digest)), format!("seckill:{{11}}:session:b7{zeros}01"));
        assert_eq!(keys.allowed(ActivityId(12)), "seckill:{00}:12:allowed");
        assert_eq!(keys.attempts(shard, 10_000), "seckill:{07}:attempts:10000");
        assert_eq!(
            keys.staged(shard, "3-ab", ActivityId(12), "buyers"),
            "seckill:{07}:staged:3-ab:12:buyers"
        );
    }
}

//! Shared rates in Redis: tokens are moved and never made, whoever calls twice, late, or writes by hand.

use std::time::{Duration, Instant};

use fastrand::Rng;
use rushgate::stock::calls::ProcessNumber;
use rushgate::store::StoreError;
use rushgate::store::redis::{RedisOptions, RedisShards};
use rushgate::store::slices::{RateExchange, SliceCall, SliceReply, SliceStore};
use rushgate_servers::RespValue;

use crate::redis_installation::redis;

const KEYS: [&str; 4] = ["gateways", "gateways:calls", "rates:wanted", "rates:pools"];

struct Place {
    prefix: String,
    store: RedisShards,
}

impl Place {
    async fn new() -> Self {
        let server = redis().await;
        let prefix = server.fresh_prefix();
        let options = RedisOptions::single(server.address());
        let store = RedisShards::open(RedisOptions { prefix: prefix.clone(), ..options }).await.unwrap();
        Self { prefix, store }
    }

    fn key(&self, rest: &str) -> String {
        format!("{}:{{00}}:{rest}", self.prefix)
    }

    async fn redis(&self, command: &str, key: &str, more: &[&str]) -> RespValue {
        let key = self.key(key);
        redis().await.call(&[&[command, key.as_str()], more].concat()).await.unwrap()
    }

    async fn tried(
        &self,
        gateway: u32,
        number: u64,
        rates: &[RateExchange],
    ) -> Result<SliceReply, StoreError> {
        let call = SliceCall { gateway: ProcessNumber(gateway), number, rates: rates.to_vec() };
        Ok(self.store.exchange_slices(&call).await?.unwrap())
    }

    async fn call(&self, gateway: u32, number: u64, rates: &[RateExchange]) -> SliceReply {
        self.tried(gateway, number, rates).await.unwrap()
    }
}

fn rate(name: &str, give: u32, want: u32) -> RateExchange {
    RateExchange { name: name.to_owned(), give, want, pool_max: 100 }
}

#[tokio::test]
async fn what_one_gives_another_gets_and_no_more() {
    let place = Place::new().await;
    assert_eq!(place.call(1, 1, &[]).await, SliceReply { gateways: 1, ..SliceReply::default() });
    // Nobody wants it: what is given is dropped.
    let reply = place.call(1, 2, &[rate("g", 50, 0)]).await;
    assert_eq!((reply.granted, reply.wanted), (vec![0], vec![]));
    let reply = place.call(2, 1, &[rate("g", 0, 30), rate("a:7", 0, 5)]).await;
    assert_eq!((reply.gateways, reply.granted), (2, vec![0, 0]));
    assert_eq!(reply.wanted.len(), 2);
    let reply = place.call(1, 3, &[rate("g", 40, 0), rate("a:7", 3, 0)]).await;
    assert_eq!(reply.granted, [0, 0]);
    assert!(reply.wanted.contains(&("g".to_owned(), 40)) && reply.wanted.contains(&("a:7".to_owned(), 3)));
    assert_eq!(place.call(2, 2, &[rate("g", 0, 30), rate("a:7", 0, 5)]).await.granted, [30, 3]);
    assert_eq!(place.call(3, 1, &[rate("g", 0, 30)]).await.granted, [10]);
    assert_eq!(place.call(3, 2, &[rate("g", 0, 30)]).await.granted, [0]);
    // A pool holds as much as it may; its taker may give in the same call.
    assert_eq!(place.call(1, 4, &[rate("g", 1_000, 0)]).await.granted, [0]);
    assert_eq!(place.call(1, 5, &[rate("g", 1_000, 60)]).await.granted, [60]);
    assert_eq!(place.call(2, 3, &[rate("g", 0, u32::MAX)]).await.granted, [40]);
}

#[tokio::test]
async fn a_call_that_comes_twice_or_late_moves_nothing() {
    let place = Place::new().await;
    place.call(2, 1, &[rate("g", 0, 10)]).await;
    place.call(1, 7, &[rate("g", 20, 0)]).await;
    for number in [7, 6, 1] {
        let again = place.call(1, number, &[rate("g", 20, 15)]).await;
        assert_eq!(again, SliceReply { gateways: 2, ..SliceReply::default() }, "call {number}");
    }
    assert_eq!(place.call(2, 2, &[rate("g", 0, 90)]).await.granted, [20]);
}

#[tokio::test]
async fn a_gateway_counts_while_it_is_heard_of_and_one_that_leaves_at_once_does_not() {
    let place = Place::new().await;
    place.call(1, 1, &[]).await;
    place.call(2, 1, &[]).await;
    assert_eq!(place.call(3, 1, &[]).await.gateways, 3);
    place.store.leave_slices(ProcessNumber(2)).await.unwrap();
    assert_eq!(place.call(3, 2, &[]).await.gateways, 2);
    let (began, mut number) = (Instant::now(), 2);
    while place.call(3, number, &[]).await.gateways > 1 {
        number += 1;
        assert!(began.elapsed() < Duration::from_secs(20), "gateway 1 is never forgotten");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(began.elapsed() > Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!(place.redis("HLEN", "gateways:calls", &[]).await, RespValue::Integer(1));
    // As by a clock that was an hour fast.
    place.redis("ZADD", "gateways", &["99999999999999", "4"]).await;
    assert_eq!(place.call(3, number + 1, &[]).await.gateways, 1);
}

#[tokio::test]
async fn a_rate_that_nobody_asks_for_any_more_has_no_pool_and_all_of_it_expires() {
    let place = Place::new().await;
    place.call(1, 1, &[rate("g", 0, 1)]).await;
    place.call(2, 1, &[rate("g", 90, 0)]).await;
    for key in KEYS {
        let RespValue::Integer(ttl_ms) = place.redis("PTTL", key, &[]).await else { panic!("{key}") };
        assert!((1..=10_000).contains(&ttl_ms), "{key}: {ttl_ms}");
    }
    let (began, mut number) = (Instant::now(), 2);
    while !place.call(2, number, &[]).await.wanted.is_empty() {
        number += 1;
        assert!(began.elapsed() < Duration::from_secs(20), "it is wanted for ever");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(place.call(1, 2, &[rate("g", 0, 90)]).await.granted, [0], "no old tokens");
}

#[tokio::test]
async fn the_list_of_what_is_wanted_is_bounded() {
    let place = Place::new().await;
    for (gateway, from) in [(1, 0), (2, 600)] {
        let rates: Vec<_> = (from..from + 600).map(|nth| rate(&format!("i:{nth}"), 0, 1)).collect();
        assert_eq!(place.call(gateway, 1, &rates).await.wanted.len(), 256);
    }
    assert_eq!(place.redis("ZCARD", "rates:wanted", &[]).await, RespValue::Integer(1_024));
    assert_eq!(place.redis("HLEN", "rates:pools", &[]).await, RespValue::Integer(1_024 + 1));
}

#[tokio::test]
async fn two_installations_share_nothing() {
    let (one, other) = (Place::new().await, Place::new().await);
    one.call(1, 1, &[rate("g", 0, 1)]).await;
    one.call(2, 1, &[rate("g", 9, 0)]).await;
    let reply = other.call(2, 1, &[rate("g", 0, 9)]).await;
    assert_eq!((reply.gateways, reply.granted), (1, vec![0]));
}

#[tokio::test]
async fn what_somebodys_hand_wrote_is_worth_a_pool_at_most_and_a_key_of_another_type_is_named() {
    let place = Place::new().await;
    place.call(1, 1, &[rate("g", 0, 1), rate("a:7", 0, 1)]).await;
    place.redis("HSET", "rates:pools", &["g", "-5", "a:7", "many"]).await;
    assert_eq!(place.call(1, 2, &[rate("g", 0, 9), rate("a:7", 0, 9)]).await.granted, [0, 0]);
    place.redis("HSET", "rates:pools", &["g", "1e300"]).await;
    assert_eq!(place.call(1, 3, &[rate("g", 0, 900)]).await.granted, [100], "no more than the pool may hold");
    for key in KEYS {
        let place = Place::new().await;
        place.redis("SET", key, &["somebody's"]).await;
        let error = place.tried(1, 1, &[rate("g", 0, 1)]).await.unwrap_err();
        let named = matches!(&error, StoreError::Corrupt(said) if said.contains(&place.key(key)));
        assert!(named, "{error}");
        for other in KEYS.into_iter().filter(|other| *other != key) {
            assert_eq!(place.redis("EXISTS", other, &[]).await, RespValue::Integer(0), "nothing was changed");
        }
    }
}

#[tokio::test]
async fn whatever_is_called_no_more_is_granted_than_was_given() {
    let place = Place::new().await;
    let mut random = Rng::with_seed(7);
    let (mut given, mut granted, mut numbers) = ([0_u64; 3], [0_u64; 3], [0_u64; 4]);
    for _ in 0..600 {
        let gateway = random.usize(0..4);
        let is_copy = random.u8(0..10) == 0;
        numbers[gateway] += u64::from(!is_copy);
        let rates: Vec<_> =
            (0..3).map(|nth| rate(&format!("a:{nth}"), random.u32(0..40), random.u32(0..40))).collect();
        let reply = place.call(gateway as u32 + 1, numbers[gateway], &rates).await;
        for nth in 0..reply.granted.len() {
            given[nth] += u64::from(rates[nth].give);
            granted[nth] += u64::from(reply.granted[nth]);
        }
    }
    for (given, granted) in given.into_iter().zip(granted) {
        assert!(granted <= given && granted > given / 2, "{granted} of {given}");
    }
}

//! A gateway on a real store in a folder of its own, whose one article is sold out to one user.
//!
//! Its rates are on and refuse nobody but who comes from one address; others are on its risk lists. After the setup the caller's runtime stands
//! still, so that nothing runs in this process but the worker's sweep, a connection's task when a client speaks to
//! it, and what the measurement does itself.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::BytesMut;
use rushgate::admin::activities::{Activities, NewActivity, NewSku};
use rushgate::admission::identity::{
    IdentityKind, IdentitySettings, MintKey, MintSettings, Minter, Verifier, VerifyKey,
};
use rushgate::admission::limits::{IpOverride, Limits, LimitsSettings, OpenUnpaidMax, Rate};
use rushgate::admission::risk::Effect;
use rushgate::gateway::{Conversation, Gateway, Settings};
use rushgate::protocol::{Opcode, Request, Status, UserId};
use rushgate::store::catalog::Eligibility;
use rushgate::store::risk::{NewEntry, RiskStore};
use rushgate::store::sql::{OpenOptions, SqliteStore, Synchronous};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::requests::{HOME, SALE, SKU, WINNER, answers, buy, hello, put_app};
use super::work::Work;

const SECRET: &[u8] = b"a secret of a measurement, 32 bytes and more";
/// How long the gateway may believe what it knows: longer than any measurement.
const VIEW_LAG_MS: u64 = 24 * 3_600_000;
const HOUR_MS: u64 = 3_600_000;
/// Of each kind on the risk lists.
const LISTED: u64 = 1_000;

/// See the module.
#[derive(Debug)]
pub struct Scene {
    gateway: Gateway,
    minter: Minter,
    /// Driven in the setup only.
    runtime: Runtime,
    _dir: TempDir,
}

impl Scene {
    /// With one worker.
    pub fn open() -> Self {
        let dir = TempDir::new().expect("a folder for the measurement");
        let secret = dir.path().join("secret");
        std::fs::write(&secret, SECRET).expect("a secret in the folder");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let minter = Minter::new(&MintSettings {
            key: MintKey::SecretFile(secret.clone()),
            audience: "rushgate".to_owned(),
            issuer: None,
        });
        let minter = minter.expect("a minter of tokens");
        let verifier = Verifier::new(&IdentitySettings::new(VerifyKey::SecretFile(secret), "rushgate"));
        let verifier = verifier.expect("a verifier of tokens");
        let data_dir = dir.path().join("data");
        let gateway = runtime.block_on(async {
            Activities::new(&data_dir).create(&activity()).await.expect("an activity");
            let mut options = OpenOptions::new(&data_dir);
            options.synchronous = Synchronous::Off;
            let store = SqliteStore::open(&options).await.expect("a store in the folder");
            store.risk_add(&others()).await.expect("lists in the store");
            let limits = Limits::new(&limits());
            Gateway::start(settings(), limits, verifier, Arc::new(store))
                .await
                .expect("a gateway on the store")
        });
        let scene = Self { gateway, minter, runtime, _dir: dir };
        scene.runtime.block_on(scene.sell_out());
        scene
    }

    /// Where it listens.
    pub const fn addr(&self) -> SocketAddr {
        self.gateway.local_addr()
    }

    /// A conversation that is logged in for this work.
    pub fn conversation(&self, work: Work) -> Conversation {
        self.log_in((!work.is_service()).then(|| work.user()), work.address())
    }

    /// The bytes that log in for this work: HELLO, then AUTH.
    pub fn greeting(&self, work: Work) -> [Vec<u8>; 2] {
        self.greet((!work.is_service()).then(|| work.user()))
    }

    fn log_in(&self, user: Option<u64>, address: [u8; 4]) -> Conversation {
        let mut conversation = self.gateway.conversation(IpAddr::from(address));
        let mut replies = BytesMut::new();
        for bytes in self.greet(user) {
            let ending = conversation.feed(&bytes, &mut replies);
            assert_eq!(ending, None, "the login ended");
        }
        let expected = [Opcode::Hello, Opcode::Auth].map(|opcode| (Some(opcode), Some(Status::Ok)));
        assert_eq!(answers(&replies), expected, "the login was refused");
        conversation
    }

    /// Of a user, or of a back end.
    fn greet(&self, user: Option<u64>) -> [Vec<u8>; 2] {
        let kind = user.and_then(UserId::new).map_or(IdentityKind::Service, IdentityKind::App);
        let token = self.minter.mint(kind, now_ms() / 1000, Duration::from_secs(24 * 3600)).expect("a token");
        [(1, hello()), (2, Request::Auth { token: token.as_bytes() })].map(|(id, request)| {
            let mut bytes = BytesMut::new();
            put_app(&mut bytes, id, &request);
            bytes.to_vec()
        })
    }

    async fn sell_out(&self) {
        let mut winner = self.log_in(Some(WINNER), HOME);
        let mut replies = BytesMut::new();
        ask_to_buy(&mut winner, &mut replies);
        while winner.in_flight() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        winner.take_mail(&mut replies);
        let sold = (Some(Opcode::Buy), Some(Status::Queued));
        assert!(answers(&replies).contains(&sold), "the only unit was not sold: {:?}", answers(&replies));
        // Who comes too early waits for the store, and is told the same.
        let mut loser = self.log_in(Some(WINNER.saturating_add(1)), HOME);
        let told = [(Some(Opcode::Buy), Some(Status::SoldOut))];
        loop {
            let mut replies = BytesMut::new();
            ask_to_buy(&mut loser, &mut replies);
            if answers(&replies) == told {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        while loser.in_flight() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

fn ask_to_buy(conversation: &mut Conversation, replies: &mut BytesMut) {
    let mut bytes = BytesMut::new();
    put_app(&mut bytes, 3, &buy());
    let ending = conversation.feed(&bytes, replies);
    assert_eq!(ending, None, "a BUY ended the connection");
}

fn settings() -> Settings {
    let mut settings = Settings {
        listen: SocketAddr::from((HOME, 0)),
        worker_threads: 1,
        keepalive: Duration::from_millis(HOUR_MS),
        ..Settings::default()
    };
    settings.stock.view_lag_ms_max = VIEW_LAG_MS;
    settings
}

/// Every rung is asked, and refuses only who is meant.
fn limits() -> LimitsSettings {
    let never = Rate { rate_per_s: 1_000_000_000, burst: 1_000_000_000 };
    let crowded = IpOverride {
        cidr: "127.9.0.0/16".parse().expect("a block of addresses"),
        rate: Rate { rate_per_s: 1, burst: 1 },
    };
    LimitsSettings {
        global: never,
        per_ip: never,
        per_user: never,
        result_per_user: never,
        per_connection: never,
        per_activity: never,
        auth_per_ip: never,
        open_unpaid: OpenUnpaidMax::default(),
        per_ip_overrides: vec![crowded],
        keys_max: 2_000_000,
    }
}

/// On the risk lists, so that they are looked at: users, devices and addresses that nobody here has.
fn others() -> Vec<NewEntry> {
    let entry = |subject: String| NewEntry {
        subject,
        effect: Effect::Block.name().to_owned(),
        until_ms: 0,
        who: "a measurement".to_owned(),
        why: "somebody has to be listed".to_owned(),
    };
    let listed = (0..LISTED).flat_map(|nth| {
        let user = UserId::MAX.saturating_sub(nth);
        [format!("user:{user}"), format!("device:of {user}"), format!("ip:2001:db8::{nth:x}")]
    });
    listed.map(entry).collect()
}

fn activity() -> NewActivity {
    NewActivity {
        id: u64::from(SALE.0),
        name: "a sale".to_owned(),
        entry_open: true,
        opens_at_ms: now_ms().saturating_sub(HOUR_MS),
        closes_at_ms: now_ms().saturating_add(24 * HOUR_MS),
        per_user_limit: 1,
        buy_again_max: 0,
        pay_within_ms: 24 * HOUR_MS,
        eligibility: Eligibility::default(),
        skus: vec![NewSku {
            id: u64::from(SKU.0),
            name: "an article".to_owned(),
            price_minor: 999,
            stock: 1,
        }],
    }
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

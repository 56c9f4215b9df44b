//! A real gateway on a SQLite store, with one sale of each kind, for conversations without sockets.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::BytesMut;
use rushgate::admin::activities::{Activities, NewActivity, NewSku};
use rushgate::admission::clients::{AppVersion, Platform};
use rushgate::admission::identity::{
    IdentityKind, IdentitySettings, MintKey, MintSettings, Minter, Verifier, VerifyKey,
};
use rushgate::admission::limits::{Limits, LimitsSettings};
use rushgate::gateway::{Conversation, Gateway, Settings};
use rushgate::protocol::{ActivityId, ClientVersion, Head, Request, SkuId, Status, UserId, decode, encode};
use rushgate::store::catalog::Eligibility;
use rushgate::store::sql::{OpenOptions, SqliteStore, Synchronous};
use tokio::runtime::Runtime;

/// Open, with more units than will ever be asked for.
pub(crate) const LIVE: u32 = 1001;
/// Open, and its one unit is [`OWNER`]'s.
pub(crate) const SOLD_OUT: u32 = 1002;
/// Opens long after everything here.
pub(crate) const UPCOMING: u32 = 1003;
/// Its entry is closed.
pub(crate) const CLOSED: u32 = 1004;
pub(crate) const SKU: u16 = 3;
pub(crate) const PER_USER_LIMIT: u16 = 5;
/// Who bought the one unit of [`SOLD_OUT`].
pub(crate) const OWNER: u64 = 999_999;
/// BUYs in flight, on connections of both kinds: few, so that the cap is met.
pub(crate) const IN_FLIGHT_MAX: u16 = 4;
/// Of an Android app; scripts begin with a later one.
pub(crate) const MIN_VERSION: [u16; 3] = [1, 0, 0];
/// Far below the replies to a script, so that requests have to wait behind replies.
const OUTBOUND_BYTES_MAX: usize = 512;

const SECRET: &[u8] = b"an example secret, 32 bytes long";
/// Tokens are the same in every run: made then, good for a hundred years.
const MINTED_UNIX_S: u64 = 1_700_000_000;
const CENTURY: Duration = Duration::from_secs(3_155_760_000);
/// Reached only by a gateway that leaves somebody without an answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Whose a token is, or why it is nobody's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bearer {
    App(u64),
    Service,
    Refused(Status),
}

pub(crate) struct Bench {
    pub(crate) gateway: Gateway,
    /// With each, whose it is.
    pub(crate) tokens: Vec<(String, Bearer)>,
    /// Behind the gateway, so that its tasks are told to end first.
    _runtime: Runtime,
}

fn now_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

fn sale(id: u32, stock: u64) -> NewActivity {
    let year_ms = 365 * 86_400_000;
    let (opens_at_ms, closes_at_ms) = match id {
        UPCOMING => (now_ms() + year_ms, now_ms() + 2 * year_ms),
        _ => (now_ms() - 1000, now_ms() + year_ms),
    };
    NewActivity {
        id: u64::from(id),
        name: format!("sale {id}"),
        entry_open: id != CLOSED,
        opens_at_ms,
        closes_at_ms,
        per_user_limit: u64::from(PER_USER_LIMIT).min(stock),
        buy_again_max: 0,
        pay_within_ms: NewActivity::PAY_WITHIN_MS,
        eligibility: Eligibility::default(),
        skus: vec![NewSku { id: u64::from(SKU), name: "article".to_owned(), price_minor: 999, stock }],
    }
}

fn tokens(dir: &Path) -> Vec<(String, Bearer)> {
    let minter = |name: &str, secret: &[u8]| {
        let path = dir.join(name);
        std::fs::write(&path, secret).unwrap();
        let audience = "rushgate".to_owned();
        Minter::new(&MintSettings { key: MintKey::SecretFile(path), audience, issuer: None }).unwrap()
    };
    let (shop, stranger) = (minter("secret", SECRET), minter("other", b"another secret of thirty-two bytes"));
    let app = |user: u64| IdentityKind::App(UserId::new(user).unwrap());
    let good = |kind| shop.mint(kind, MINTED_UNIX_S, CENTURY).unwrap();
    vec![
        (good(app(1)), Bearer::App(1)),
        (good(IdentityKind::Service), Bearer::Service),
        (good(app(2)), Bearer::App(2)),
        (good(app(OWNER)), Bearer::App(OWNER)),
        (stranger.mint(app(1), MINTED_UNIX_S, CENTURY).unwrap(), Bearer::Refused(Status::BadToken)),
        (
            shop.mint(app(1), MINTED_UNIX_S, Duration::from_secs(60)).unwrap(),
            Bearer::Refused(Status::TokenExpired),
        ),
    ]
}

impl Bench {
    /// Starts a gateway whose data is in `dir`, an empty folder.
    pub(crate) fn open(dir: &Path) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let tokens = tokens(dir);
        let data_dir = dir.join("data");
        let mut settings = Settings { listen: SocketAddr::from(([127, 0, 0, 1], 0)), ..Settings::default() };
        settings.in_flight_max = IN_FLIGHT_MAX;
        settings.service_in_flight_max = IN_FLIGHT_MAX;
        settings.outbound_bytes_max = OUTBOUND_BYTES_MAX;
        // Under a fuzzer nobody is in time.
        settings.stock.view_lag_ms_max = 3_600_000;
        settings.stock.patience_ms = 10_000;
        settings.stock.unconfirmed_after_ms = 10_000;
        settings.clients.min_version = vec![(Platform::Android, AppVersion(MIN_VERSION))];
        let limits = Limits::new(&LimitsSettings { keys_max: 1000, ..LimitsSettings::default() });
        let verifier =
            Verifier::new(&IdentitySettings::new(VerifyKey::SecretFile(dir.join("secret")), "rushgate"))
                .unwrap();
        let gateway = runtime.block_on(async {
            let operator = Activities::new(&data_dir);
            for (id, stock) in [(LIVE, 1_000_000), (SOLD_OUT, 1), (UPCOMING, 5), (CLOSED, 5)] {
                operator.create(&sale(id, stock)).await.unwrap();
            }
            let mut options = OpenOptions::new(&data_dir);
            options.synchronous = Synchronous::Off;
            let store = SqliteStore::open(&options).await.unwrap();
            Gateway::start(settings, limits, verifier, Arc::new(store)).await.unwrap()
        });
        let bench = Self { gateway, tokens, _runtime: runtime };
        bench.sell_out();
        bench
    }

    pub(crate) fn conversation(&self) -> Conversation {
        self.gateway.conversation(IpAddr::V4(Ipv4Addr::LOCALHOST))
    }

    pub(crate) fn token(&self, bearer: Bearer) -> &str {
        &self.tokens.iter().find(|(_, whose)| *whose == bearer).unwrap().0
    }

    /// The owner buys the one unit, and others are told so.
    fn sell_out(&self) {
        let mut owner = self.greeted(Bearer::App(OWNER));
        let request = buy_sold_out();
        let mut out = BytesMut::new();
        assert!(owner.feed(&request, &mut out).is_none());
        wait_for("the one unit is sold", || {
            owner.take_mail(&mut out);
            owner.in_flight() == 0
        });
        owner.take_mail(&mut out);
        let (reply, _) = decode(&out, out.len()).unwrap().unwrap();
        assert_eq!(reply.status, Status::Queued.code());
        let mut other = self.greeted(Bearer::App(1));
        wait_for("others are told so from memory", || {
            let mut out = BytesMut::new();
            assert!(other.feed(&request, &mut out).is_none());
            wait_for("an answer", || {
                other.take_mail(&mut out);
                !out.is_empty()
            });
            let (reply, _) = decode(&out, out.len()).unwrap().unwrap();
            reply.status == Status::SoldOut.code()
        });
    }

    fn greeted(&self, bearer: Bearer) -> Conversation {
        let mut conversation = self.conversation();
        let version = ClientVersion { platform: 0, app: [1, 0, 0] };
        let token = self.token(bearer).as_bytes();
        let hello = bytes_of(1, &Request::Hello { version, device: "" });
        let auth = bytes_of(2, &Request::Auth { token });
        let mut out = BytesMut::new();
        assert!(conversation.feed(&[hello, auth].concat(), &mut out).is_none(), "not let in");
        conversation
    }
}

fn buy_sold_out() -> Vec<u8> {
    let (activity, sku) = (ActivityId(SOLD_OUT), SkuId(SKU));
    bytes_of(1, &Request::Buy { activity, sku, quantity: 1 })
}

/// The bytes of a request.
fn bytes_of(request_id: u32, request: &Request<'_>) -> Vec<u8> {
    let mut out = BytesMut::new();
    encode(&mut out, Head::request(request.opcode(), request_id), |_| {}, |out| request.write(out));
    out.to_vec()
}

/// Looks again until it is so.
pub(crate) fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "never came true: {what}");
        std::thread::park_timeout(Duration::from_micros(100));
    }
}

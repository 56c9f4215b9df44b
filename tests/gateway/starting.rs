//! What a start leaves behind that fails half way.

use std::sync::Arc;

use rushgate::admission::identity::{IdentitySettings, Verifier, VerifyKey};
use rushgate::admission::limits::{Limits, LimitsSettings};
use rushgate::gateway::{Gateway, Settings};
use rushgate::store::sql::{OpenOptions, SqliteStore};
use tempfile::TempDir;

use super::gated::Gated;
use super::house::SECRET;
use super::wire::eventually;

#[test]
fn a_start_that_fails_leaves_nothing_running() {
    let dir = TempDir::new().unwrap();
    let secret = dir.path().join("secret");
    std::fs::write(&secret, SECRET).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let store = runtime.block_on(async {
        let store = SqliteStore::open(&OpenOptions::new(dir.path().join("data"))).await.unwrap();
        let (store, gate) = Gated::new(store);
        let store = Arc::new(store);
        // Read when the stock task and others run already.
        gate.tear_switches();
        let settings = Settings { listen: ([127, 0, 0, 1], 0).into(), ..Settings::default() };
        let verifier =
            Verifier::new(&IdentitySettings::new(VerifyKey::SecretFile(secret), "rushgate")).unwrap();
        let limits = Limits::new(&LimitsSettings::default());
        let started = Gateway::start(settings, limits, verifier, Arc::clone(&store)).await;
        assert!(started.unwrap_err().to_string().contains("the test tore the switches"));
        store
    });
    eventually("nobody has the store any more", || Arc::strong_count(&store) == 1);
}

//! Process numbers and heartbeats.

use std::collections::BTreeSet;

use rushgate::stock::calls::{Gen, ProcessNumber};
use rushgate::store::sql::mysql::{MySqlInstallation, ProcessKind};
use rushgate_servers::MariaDb;

use crate::fixture::{Scene, options};

#[tokio::test]
async fn process_numbers_are_never_reused() {
    // Its own server: it is killed.
    let server = MariaDb::start().await.unwrap();
    let database = server.create_database().await.unwrap();
    let mut seen = BTreeSet::new();
    for round in 0..2 {
        let sql = MySqlInstallation::open(options(&database)).await.unwrap();
        let mut registering = tokio::task::JoinSet::new();
        for nth in 0..8 {
            let sql = sql.clone();
            let kind = if nth % 2 == 0 { ProcessKind::Gateway } else { ProcessKind::Writer };
            registering.spawn(async move { sql.register(kind).await.unwrap() });
        }
        for registration in registering.join_all().await {
            assert!((1..1 << 27).contains(&registration.process.0));
            assert!(seen.insert(registration.process), "{registration:?} was given before, round {round}");
            assert_eq!(registration.generation, Gen(0));
            sql.retire(registration.process).await.unwrap();
        }
        server.kill9().await.unwrap();
        server.restart().await.unwrap();
    }
}

#[tokio::test]
async fn only_a_gateway_that_renewed_within_three_seconds_counts_as_live() {
    let scene = Scene::new().await;
    let gateway = scene.sql.register(ProcessKind::Gateway).await.unwrap().process;
    let silent = scene.sql.register(ProcessKind::Gateway).await.unwrap().process;
    let ended = scene.sql.register(ProcessKind::Gateway).await.unwrap().process;
    let writer = scene.sql.register(ProcessKind::Writer).await.unwrap().process;
    assert_eq!(scene.sql.live_gateways().await.unwrap(), [gateway, silent, ended]);
    // By the database's clock, so the past is made there.
    scene.execute("UPDATE processes SET heartbeat_ms = heartbeat_ms - 4000").await;
    scene.sql.retire(ended).await.unwrap();
    for process in [gateway, writer] {
        let renewal = scene.sql.renew(process).await.unwrap().unwrap();
        assert_eq!((renewal.generation, renewal.recovery), (Gen(0), None));
    }
    assert_eq!(scene.sql.live_gateways().await.unwrap(), [gateway]);
    assert_eq!(scene.sql.silent_processes(3_500, None, 9).await.unwrap(), [silent, ended]);
    assert_eq!(scene.sql.silent_processes(3_500, None, 1).await.unwrap(), [silent]);
    assert_eq!(scene.sql.silent_processes(3_500, Some(silent), 9).await.unwrap(), [ended]);
    assert_eq!(scene.sql.renew(ended).await.unwrap(), None, "it was retired");
    assert_eq!(scene.sql.renew(ProcessNumber(1_000_000)).await.unwrap(), None, "nobody knows it");
}

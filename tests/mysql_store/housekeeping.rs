//! What the database need not keep goes, a bounded number of rows at a time; what may still be asked for stays.

use rushgate::protocol::UserId;
use rushgate::stock::calls::{Gen, Mark, ProcessNumber, SHARDS};
use rushgate::store::HandIn;
use rushgate::store::sql::mysql::{MySqlInstallation, ProcessKind};
use rushgate_servers::MariaDb;

use crate::fixture::{Scene, options, reservations};

#[tokio::test]
async fn recoveries_long_past_are_forgotten_in_pieces() {
    let scene = Scene::new().await;
    scene
        .execute(
            "INSERT INTO recoveries SELECT seq, 1, 3, 1, 2 FROM seq_1_to_250; \
             INSERT INTO hand_ins SELECT seq, 1, 1 FROM seq_1_to_250; \
             INSERT INTO hand_in_marks SELECT 249, 1, 7, seq, seq, 1, 1, 1, 1, 0 FROM seq_1_to_12000; \
             UPDATE installation SET gen = 250",
        )
        .await;
    let mut leader = scene.sql.try_lead().await.unwrap().unwrap();
    let gateway = scene.sql.register(ProcessKind::Gateway).await.unwrap().process;
    let generation = leader.raise_generation(&[true; SHARDS]).await.unwrap();
    let marks: Vec<(UserId, Mark)> = reservations(50).iter().map(|one| (one.user, one.mark)).collect();
    assert_eq!(scene.sql.hand_in(gateway, generation, &marks).await.unwrap(), HandIn::InTime);
    let mut pieces = 1;
    while scene.sql.forget_recoveries().await.unwrap() {
        pieces += 1;
    }
    assert_eq!(pieces, 3, "12,000 marks, 5,000 at a time");
    assert_eq!(scene.sql.handed_in(generation, gateway).await.unwrap(), marks);
    assert_eq!(scene.count("SELECT COUNT(*) FROM hand_in_marks").await, 50);
    assert_eq!(scene.count("SELECT COUNT(*) FROM recoveries").await, 100);
    assert_eq!(scene.count("SELECT COUNT(*) FROM hand_ins").await, 100);
    let again = scene.sql.hand_in(ProcessNumber(1), Gen(200), &marks).await.unwrap();
    assert_eq!(again, HandIn::InTime, "what was told once is told ever after");
    // The next recovery needs none of them, but its leader does not wait until they are gone.
    leader.raise_generation(&[true; SHARDS]).await.unwrap();
    assert_eq!(scene.sql.handed_in(generation, gateway).await.unwrap(), marks);
    assert!(!scene.sql.forget_recoveries().await.unwrap());
    assert_eq!(scene.count("SELECT COUNT(*) FROM hand_in_marks").await, 0);
}

#[tokio::test]
async fn rule_17_processes_long_gone_are_forgotten_and_their_numbers_never_given_again() {
    // Its own server: it is killed.
    let server = MariaDb::start().await.unwrap();
    let database = server.create_database().await.unwrap();
    let sql = MySqlInstallation::open(options(&database)).await.unwrap();
    let register = async || sql.register(ProcessKind::Gateway).await.unwrap().process;
    let (gone, lately, newest) = (register().await, register().await, register().await);
    let in_database = |statements: &str| statements.replace("{}", &database.name);
    let age = in_database(
        "UPDATE {}.processes SET heartbeat_ms = heartbeat_ms - 29 * 86400000; \
         UPDATE {}.processes SET heartbeat_ms = heartbeat_ms - 2 * 86400000 WHERE number <> 2; \
         INSERT INTO {}.sql_calls VALUES (1, 0, 1, '', 1), (2, 0, 1, '', 1), (3, 0, 1, '', 1)",
    );
    server.sql(&age).await.unwrap();
    let silent = sql.silent_processes(3_600_000, None, 100).await.unwrap();
    assert_eq!(silent, [gone, lately, newest]);
    sql.forget_processes(&silent).await.unwrap();
    assert_eq!(sql.silent_processes(3_600_000, None, 100).await.unwrap(), [lately, newest]);
    assert_eq!(sql.renew(gone).await.unwrap(), None, "it would have to be started anew");
    let calls = server.sql(&in_database("SELECT process FROM {}.sql_calls")).await.unwrap();
    assert_eq!(calls.split_whitespace().collect::<Vec<_>>(), ["3"]);
    // Even where the server forgets how far it had counted.
    server.sql(&in_database("ALTER TABLE {}.processes AUTO_INCREMENT = 1")).await.unwrap();
    server.kill9().await.unwrap();
    server.restart().await.unwrap();
    let next = loop {
        if let Ok(registration) = sql.register(ProcessKind::Gateway).await {
            break registration.process;
        }
    };
    assert!(next > newest, "{next:?} was given before");
}

//! The embedded store's switches: a serving process and a command beside it.

use rushgate::store::sql::{IfMissing, OpenError, OpenOptions, SqliteStore, SwitchFolder, Synchronous};
use rushgate::store::switches::SwitchStore;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{Connection, SqliteConnection};
use tempfile::TempDir;

use crate::switches::{new, switches_are_kept_and_followed, the_last_changes_are_kept_and_every_switch};

async fn serving(folder: &TempDir) -> SqliteStore {
    let options = OpenOptions { synchronous: Synchronous::Off, ..OpenOptions::new(folder.path()) };
    SqliteStore::open(&options).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn switches_of_a_folder_that_is_served_are_kept_and_followed() {
    let folder = TempDir::new().unwrap();
    let store = serving(&folder).await;
    let command = SwitchFolder::open(folder.path()).await.unwrap();
    switches_are_kept_and_followed(&store, &command).await;
    // They are there after a restart, and go on from there.
    let kept = store.switches().await.unwrap();
    drop(command);
    store.close().await;
    let store = serving(&folder).await;
    assert_eq!(store.switches().await.unwrap(), kept);
    assert!(store.set_switch(&new("entry", "open", "later")).await.unwrap() > kept.version());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_sees_what_the_serving_process_sets_and_works_without_one() {
    let folder = TempDir::new().unwrap();
    let missing = SwitchFolder::open(folder.path()).await;
    assert!(matches!(missing, Err(OpenError::Missing { .. })), "{missing:?}");
    SqliteStore::open_for_operator(folder.path(), IfMissing::Create).await.unwrap().close().await;
    let command = SwitchFolder::open(folder.path()).await.unwrap();
    command.set_switch(&new("entry", "closed", "before anybody serves")).await.unwrap();
    let store = serving(&folder).await;
    assert_eq!(store.switches().await.unwrap().set[0].why, "before anybody serves");
    store.close().await;
    let other = TempDir::new().unwrap();
    let store = serving(&other).await;
    let command = SwitchFolder::open(other.path()).await.unwrap();
    switches_are_kept_and_followed(&command, &store).await;
}

#[tokio::test]
async fn the_last_changes_are_kept_and_every_switch_here() {
    let folder = TempDir::new().unwrap();
    the_last_changes_are_kept_and_every_switch(&serving(&folder).await).await;
}

/// A statement by somebody's hand.
async fn by_hand(folder: &TempDir, sql: &'static str) {
    let options = SqliteConnectOptions::new().filename(folder.path().join("rushgate.db"));
    let mut connection = SqliteConnection::connect_with(&options).await.unwrap();
    sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

#[tokio::test]
async fn what_somebodys_hand_wrote_is_told_by_name_and_stops_nothing() {
    let folder = TempDir::new().unwrap();
    let store = serving(&folder).await;
    let first = store.set_switch(&new("entry", "closed", "mine")).await.unwrap();
    by_hand(
        &folder,
        "INSERT INTO switches VALUES (CAST(x'fffe' AS TEXT), 'x', 1, 1, 'x', 'y'), \
         ('entry/7', CAST(x'ff' AS TEXT), 1, 1, 'x', 'y'), ('entry/8', 'open', -5, 1, 'x', 'y'), \
         ('entry/9', 'open', 9223372036854775807, 1, 'x', 'y'); \
         INSERT INTO switch_changes VALUES (9223372036854775807, 'entry/9', 'open', 1, 'x', 'y'), \
         (-5, 'entry/8', 'open', 1, 'x', 'y'), (9000, CAST(x'ff' AS TEXT), 'open', 1, 'x', 'y');",
    )
    .await;
    let found = store.switches().await.unwrap();
    assert_eq!((found.set.len(), found.version()), (1, first));
    assert_eq!(found.unreadable, ["entry/7", "entry/8", "entry/9", "\u{fffd}\u{fffd}"]);
    let second = store.set_switch(&new("entry/9", "open", "mended")).await.unwrap();
    let third = store.set_switch(&new("entry", "open", "goes on")).await.unwrap();
    assert!(first < second && second < third && third < first + 3_600_000, "{first} {second} {third}");
    let told = store.switch_changes(0, std::time::Duration::ZERO).await.unwrap();
    assert!(told.iter().map(|change| change.version).eq([first, second, third]), "{told:?}");
    assert_eq!(store.switches().await.unwrap().unreadable.len(), 3);
}

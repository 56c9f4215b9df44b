//! The embedded store's switches: a serving process and a command beside it.

use rushgate::store::sql::{IfMissing, OpenError, OpenOptions, SqliteStore, SwitchFolder, Synchronous};
use rushgate::store::switches::SwitchStore;
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

//! The embedded store's risk lists: a serving process and a command beside it.

use rushgate::store::risk::RiskStore;
use rushgate::store::sql::{IfMissing, OpenError, OpenOptions, RiskFolder, SqliteStore, Synchronous};
use tempfile::TempDir;

use crate::risk::{
    a_flag_replaces_what_was_forgotten, all, entries_are_kept_and_followed,
    flags_are_listed_only_over_what_the_gateway_has_seen, forgotten_steps_are_an_overrun,
    many_entries_are_steps_and_pages, new, what_has_passed_is_forgotten,
};

async fn serving(folder: &TempDir) -> SqliteStore {
    let options = OpenOptions { synchronous: Synchronous::Off, ..OpenOptions::new(folder.path()) };
    SqliteStore::open(&options).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn risk_lists_of_a_folder_that_is_served_are_kept_and_followed() {
    let folder = TempDir::new().unwrap();
    let store = serving(&folder).await;
    let command = RiskFolder::open(folder.path()).await.unwrap();
    entries_are_kept_and_followed(&store, &command).await;
    // They are there after a restart, and go on from there.
    let (kept, version) = (all(&store).await, store.risk_version().await.unwrap());
    drop(command);
    store.close().await;
    let store = serving(&folder).await;
    assert_eq!((all(&store).await, store.risk_version().await.unwrap()), (kept, version));
    assert!(store.risk_add(&[new("user:9", "block", 0)]).await.unwrap() > version);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_lists_beside_the_serving_process_and_without_one() {
    let folder = TempDir::new().unwrap();
    let missing = RiskFolder::open(folder.path()).await;
    assert!(matches!(missing, Err(OpenError::Missing { .. })), "{missing:?}");
    SqliteStore::open_for_operator(folder.path(), IfMissing::Create).await.unwrap().close().await;
    let command = RiskFolder::open(folder.path()).await.unwrap();
    command.risk_add(&[new("user:9", "block", 0)]).await.unwrap();
    let store = serving(&folder).await;
    assert_eq!(all(&store).await.len(), 1);
    store.close().await;
    let other = TempDir::new().unwrap();
    let store = serving(&other).await;
    let command = RiskFolder::open(other.path()).await.unwrap();
    entries_are_kept_and_followed(&command, &store).await;
}

#[tokio::test]
async fn many_entries_are_steps_and_pages_here() {
    let folder = TempDir::new().unwrap();
    many_entries_are_steps_and_pages(&serving(&folder).await).await;
}

#[tokio::test]
async fn forgotten_steps_are_an_overrun_here() {
    let folder = TempDir::new().unwrap();
    forgotten_steps_are_an_overrun(&serving(&folder).await, 104, 500).await;
}

#[tokio::test]
async fn what_has_passed_is_forgotten_here() {
    let folder = TempDir::new().unwrap();
    what_has_passed_is_forgotten(&serving(&folder).await).await;
}

#[tokio::test]
async fn flags_are_listed_only_over_what_the_gateway_has_seen_here() {
    let folder = TempDir::new().unwrap();
    let store = serving(&folder).await;
    let command = RiskFolder::open(folder.path()).await.unwrap();
    flags_are_listed_only_over_what_the_gateway_has_seen(&store, &command).await;
    let folder = TempDir::new().unwrap();
    let store = serving(&folder).await;
    let command = RiskFolder::open(folder.path()).await.unwrap();
    flags_are_listed_only_over_what_the_gateway_has_seen(&command, &store).await;
    let folder = TempDir::new().unwrap();
    a_flag_replaces_what_was_forgotten(&serving(&folder).await).await;
}

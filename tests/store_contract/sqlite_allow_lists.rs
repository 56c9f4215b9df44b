//! The embedded store's allow-lists: a serving process and a command beside it.

use rushgate::protocol::ActivityId;
use rushgate::store::allow_lists::{AllowListEditor, AllowListStore};
use rushgate::store::sql::{AllowListFolder, OpenError, OpenOptions, SqliteStore, Synchronous};
use tempfile::TempDir;

use crate::allow_lists::{lists_are_sets_whose_version_rises, state, users};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_of_a_folder_that_is_served_are_sets_whose_version_rises() {
    let folder = TempDir::new().unwrap();
    let missing = AllowListFolder::open(folder.path()).await;
    assert!(matches!(missing, Err(OpenError::Missing { .. })), "{missing:?}");
    let options = OpenOptions { synchronous: Synchronous::Off, ..OpenOptions::new(folder.path()) };
    let store = SqliteStore::open(&options).await.unwrap();
    let command = AllowListFolder::open(folder.path()).await.unwrap();
    lists_are_sets_whose_version_rises(&store, &command).await;
    // They are there after a restart, and go on from there.
    let kept = state(&store, ActivityId(7)).await;
    store.close().await;
    let store = SqliteStore::open(&options).await.unwrap();
    assert_eq!(state(&store, ActivityId(7)).await, kept);
    command.change_list(ActivityId(7), &users([1]), true).await.unwrap();
    assert!(state(&store, ActivityId(7)).await.version > kept.version);
    assert!(store.list_changes(0).await.unwrap().is_empty(), "it is read as a whole");
}

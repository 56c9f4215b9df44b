//! The embedded store's counts of devices: in the memory of the process that serves.

use rushgate::store::sql::{OpenOptions, SqliteStore, Synchronous};
use tempfile::TempDir;

use crate::devices::{a_sighting_counts_for_its_window, count, devices_and_users_are_counted};

async fn serving(folder: &TempDir) -> SqliteStore {
    let options = OpenOptions { synchronous: Synchronous::Off, ..OpenOptions::new(folder.path()) };
    SqliteStore::open(&options).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn devices_and_users_are_counted_until_the_process_ends() {
    let folder = TempDir::new().unwrap();
    let store = serving(&folder).await;
    devices_and_users_are_counted(&store, &store).await;
    store.close().await;
    assert_eq!(count(&serving(&folder).await, "phone", 9).await, (1, 1), "nothing of it is kept");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sighting_counts_for_its_window_in_memory() {
    let folder = TempDir::new().unwrap();
    a_sighting_counts_for_its_window(&serving(&folder).await).await;
}

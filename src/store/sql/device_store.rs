//! Devices at the embedded store: counted in memory, by whichever task asks.

use super::sqlite_store::SqliteStore;
use crate::store::StoreError;
use crate::store::devices::{CountBounds, DeviceCounts, DeviceStore, Sighting};

impl DeviceStore for SqliteStore {
    async fn devices_seen(
        &self,
        sightings: &[Sighting],
        bounds: &CountBounds,
    ) -> Result<Vec<DeviceCounts>, StoreError> {
        Ok(self.sightings.seen(sightings, bounds))
    }
}

//! The sightings of the shared store: Redis's, whatever the lease says.

use super::SharedStore;
use crate::store::StoreError;
use crate::store::devices::{CountBounds, DeviceCounts, DeviceStore, Sighting};

impl DeviceStore for SharedStore {
    async fn devices_seen(
        &self,
        sightings: &[Sighting],
        bounds: &CountBounds,
    ) -> Result<Vec<DeviceCounts>, StoreError> {
        self.redis().devices_seen(sightings, bounds).await
    }
}

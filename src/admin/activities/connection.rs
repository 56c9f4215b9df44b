//! The database behind a command: a data folder, or the production store's MySQL or MariaDB. The same operations with
//! the same messages; what differs between the two is said here and nowhere else.
//!
//! Run by an operator's command, in its own process. Nothing here talks to Redis: what is to change there is written
//! as a load, which a writer drives.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::error::{ActivityError, invalid};
use crate::protocol::{ActivityId, SkuId, SkuKey};
use crate::store::catalog::{Activity, ActivityChange, Catalogue};
use crate::store::sql::mysql::{
    ArchiveStep, MySqlInstallation, MySqlOptions, MySqlRefused, MySqlStore, Preheat,
};
use crate::store::sql::{IfMissing, NewLoad, OperatorConnection, SkuFigures, SqliteStore};

/// Where the activities are.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// The embedded store's data folder.
    Folder(PathBuf),
    /// The production store's database.
    Server(MySqlOptions),
}

/// Open for one command.
#[derive(Debug)]
pub(super) enum Connection {
    Folder(OperatorConnection),
    Server(MySqlInstallation),
}

impl Place {
    /// `if_missing` is about the data folder; a server's database is never made here.
    pub(super) async fn connect(&self, if_missing: IfMissing) -> Result<Connection, ActivityError> {
        Ok(match self {
            Self::Folder(folder) => {
                Connection::Folder(SqliteStore::open_for_operator(folder, if_missing).await?)
            }
            Self::Server(options) => Connection::Server(MySqlInstallation::open(options.clone()).await?),
        })
    }
}

impl Connection {
    /// Writes an activity; the loads that this wrote. The production store's stock is loaded by its preheat instead.
    pub(super) async fn create(
        &mut self,
        activity: &Activity,
        pay_within_ms: u64,
        held: &[(SkuId, u32)],
    ) -> Result<Vec<String>, ActivityError> {
        match self {
            Self::Folder(folder) => Ok(folder.create(activity, pay_within_ms).await?),
            Self::Server(server) => {
                server.create_holding(activity, pay_within_ms, held).await?;
                // One transaction in the database, which nobody has to be there for.
                if !held.is_empty() {
                    MySqlStore::new(server.clone()).drive_loads().await?;
                }
                Ok(Vec::new())
            }
        }
    }

    /// Loads an activity's first stock: the ids of the loads.
    pub(super) async fn preheat(&mut self, id: ActivityId) -> Result<Vec<String>, ActivityError> {
        let Self::Server(server) = self else {
            return Err(invalid(format!(
                "activity {id} is in the embedded store, which loads stock when an activity is created; there is \
                 nothing to preheat"
            )));
        };
        match server.preheat(id).await? {
            Preheat::Loaded | Preheat::WasLoaded => {}
            Preheat::NoActivity => return Err(MySqlRefused::NoActivity(id).into()),
            Preheat::AfterOpening => {
                return Err(invalid(format!(
                    "activity {id} has opened, and stock is never preheated after that; add it: rushgate activity \
                     stock add {id} SKU UNITS"
                )));
            }
        }
        let activities = server.activities().await?;
        let activity = activities.into_iter().find(|activity| activity.id == id);
        let skus = activity.ok_or(MySqlRefused::NoActivity(id))?.skus;
        Ok(skus.iter().map(|sku| format!("{}/preheat", SkuKey { activity: id, sku: sku.id })).collect())
    }

    /// Begins an activity's end, which writers bring to its archive.
    pub(super) async fn end(&mut self, id: ActivityId) -> Result<(), ActivityError> {
        let Self::Server(server) = self else {
            return Err(invalid(format!(
                "activity {id} is in the embedded store, which archives nothing; close its entry, and nothing is sold"
            )));
        };
        match server.end_activity(id).await? {
            ArchiveStep::NoActivity => Err(MySqlRefused::NoActivity(id).into()),
            ArchiveStep::Done | ArchiveStep::WasDone | ArchiveStep::TooEarly | ArchiveStep::Waits(_) => {
                Ok(())
            }
        }
    }

    /// Every activity that is not archived.
    pub(super) async fn activities(&mut self) -> Result<Vec<Activity>, ActivityError> {
        match self {
            Self::Folder(folder) => Ok(folder.activities().await?),
            Self::Server(server) => Ok(server.activities().await?),
        }
    }

    /// Opens or closes an activity's entry.
    pub(super) async fn set_entry(&mut self, id: ActivityId, open: bool) -> Result<(), ActivityError> {
        match self {
            Self::Folder(folder) => Ok(folder.set_entry(id, open).await?),
            Self::Server(server) => Ok(server.set_entry(id, open).await?),
        }
    }

    /// Changes what may be changed during a sale too; what is `None` stays.
    pub(super) async fn change_activity(
        &mut self,
        id: ActivityId,
        change: ActivityChange<'_>,
    ) -> Result<(), ActivityError> {
        match self {
            Self::Folder(folder) => Ok(folder.change_activity(id, change).await?),
            Self::Server(server) => Ok(server.change_activity(id, change).await?),
        }
    }

    /// Writes an addition or removal; its id.
    pub(super) async fn write_load(&mut self, sku: SkuKey, load: NewLoad) -> Result<String, ActivityError> {
        match self {
            Self::Folder(folder) => Ok(folder.write_load(sku, load).await?),
            Self::Server(server) => Ok(server.write_load(sku, load).await?),
        }
    }

    /// Moves free units of the reserve to what Redis sells; the load for that, and how many they are.
    pub(super) async fn hand_over(
        &mut self,
        sku: SkuKey,
        units: u32,
    ) -> Result<(String, u32), ActivityError> {
        match self {
            Self::Folder(_) => Err(invalid(format!(
                "SKU {sku} is in the embedded store, which holds nothing back; add units: rushgate activity stock add"
            ))),
            Self::Server(server) => Ok(MySqlStore::new(server.clone()).hand_over(sku, units).await?),
        }
    }

    /// Waits for a load to be applied; the units really added or removed, `None` while it is pending.
    pub(super) async fn settle(
        &mut self,
        load: &str,
        patience: Duration,
    ) -> Result<Option<u32>, ActivityError> {
        match self {
            Self::Folder(folder) => Ok(folder.settle(load, patience).await?),
            Self::Server(server) => Ok(server.settled_load(load, Some(patience)).await?),
        }
    }

    /// An activity with what each SKU adds up to, at one instant.
    pub(super) async fn figures(
        &mut self,
        id: ActivityId,
    ) -> Result<(Activity, BTreeMap<SkuId, SkuFigures>), ActivityError> {
        match self {
            Self::Folder(folder) => Ok(folder.figures(id).await?),
            Self::Server(server) => Ok(server.figures(id).await?),
        }
    }

    /// A command that ends without it loses nothing.
    pub(super) async fn close(self) {
        match self {
            Self::Folder(folder) => folder.close().await,
            Self::Server(server) => server.close().await,
        }
    }
}

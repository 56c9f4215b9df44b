//! The operations on activities where the command line says that these are, and how their failures end a command.

use super::Failure;
use super::data_args::Common;
use super::production::mysql_options;
use crate::admin::activities::{Activities, ActivityError};
use crate::config::{KeyFiles, StoreKind};

/// Where the activities are, and whether to print for a machine.
pub(super) fn activities(common: Common) -> Result<(Activities, bool), Failure> {
    if let Some(data_dir) = common.data_dir {
        return Ok((Activities::new(data_dir), common.json));
    }
    let config = common.config.load(KeyFiles::Unopened)?;
    let activities = match config.store.kind {
        StoreKind::Sqlite => Activities::new(config.store.data_dir),
        StoreKind::Redis => Activities::on_server(mysql_options(&config)?, config.writer.preheat_ahead),
    };
    Ok((activities, common.json))
}

/// How a command ends whose operation was not done.
pub(super) fn failure(error: ActivityError) -> Failure {
    match error {
        ActivityError::Open(error) => Failure::cannot_start(error.to_string()),
        ActivityError::OpenServer(error) => Failure::cannot_start(error.to_string()),
        ActivityError::Invalid(_) | ActivityError::Store(_) => Failure::bad_result(error.to_string()),
    }
}

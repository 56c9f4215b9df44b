//! The risk lists that a command works on: where they are, how an entry is printed, how a failure ends the command.

use super::Failure;
use super::data_args::Common;
use super::production::redis_options;
use super::times::time_text;
use crate::admin::risk::{EntryView, RiskPlace};
use crate::config::{Config, KeyFiles, StoreKind};
use crate::store::redis::RedisShards;
use crate::store::sql::RiskFolder;

/// How a command ends that the lists refused.
pub(super) fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::bad_result(error.to_string())
}

/// Where the lists are.
pub(super) async fn place(common: Common) -> Result<RiskPlace, Failure> {
    let Some(folder) = common.data_dir else {
        return place_of(&common.config.load(KeyFiles::Unopened)?).await;
    };
    open_folder(&folder).await
}

/// A server that is down is not waited for: whoever wants somebody turned away has to know.
pub(super) async fn place_of(config: &Config) -> Result<RiskPlace, Failure> {
    if config.store.kind == StoreKind::Redis {
        let redis = RedisShards::open(redis_options(config)?).await;
        return redis.map(RiskPlace::Redis).map_err(|error| Failure::cannot_start(error.to_string()));
    }
    open_folder(&config.store.data_dir).await
}

pub(super) async fn open_folder(folder: &std::path::Path) -> Result<RiskPlace, Failure> {
    let folder = RiskFolder::open(folder).await;
    folder.map(RiskPlace::Folder).map_err(|error| Failure::cannot_start(error.to_string()))
}

/// An entry for people.
pub(super) fn line(view: &EntryView) -> String {
    let EntryView { subject, effect, until_ms, at_ms, who, why, ignored } = view;
    let until =
        if *until_ms == 0 { "for good".to_owned() } else { format!("until {}", time_text(*until_ms)) };
    let mut line = format!("{subject:<28}  {effect:<5}  {until:<26}  {}  {who}: {why}", time_text(*at_ms));
    if let Some(ignored) = ignored {
        line = format!("{line}  (not obeyed: {ignored})");
    }
    line
}

//! `rushgate activity allow …`: who is on the allow-list of an activity.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Read as _;
use std::path::Path;

use super::Failure;
use super::activity_place::failure;
use super::allow_args::{AllowArgs, AllowCommand, ImportArgs, Users};
use super::data_args::{Common, One};
use super::output::print_or_json;
use super::production::{mysql_options, redis_options};
use crate::admin::activities::{Activities, ActivityView};
use crate::admin::allow_lists::{AllowListPlace, ListChanged, change, clear, import, users_of};
use crate::config::{KeyFiles, StoreKind};
use crate::protocol::ActivityId;
use crate::store::StoreError;
use crate::store::allow_lists::AllowListStore;
use crate::store::redis::RedisShards;
use crate::store::sql::AllowListFolder;

/// Ten million users.
const FILE_BYTES_MAX: u64 = 210 * 1024 * 1024;

/// Runs the command.
pub(super) async fn run(args: AllowArgs) -> Result<(), Failure> {
    match args.command {
        AllowCommand::Add(users) => change_some(users, true).await,
        AllowCommand::Remove(users) => change_some(users, false).await,
        AllowCommand::Import(ImportArgs { id, file, common }) => {
            let text = read(&file)?;
            let named = users_of(&text)
                .map_err(|problem| Failure::bad_result(format!("{}: {problem}", file.display())))?;
            let (place, activity, json) = place(id, common).await?;
            let done = import(&place, ActivityId(activity.id), &named).await.map_err(failed)?;
            print_or_json(json, &done, |done| changed_text(done, true, &activity))
        }
        AllowCommand::Clear(One { id, common }) => {
            let (place, activity, json) = place(id, common).await?;
            let done = clear(&place, ActivityId(activity.id)).await.map_err(failed)?;
            print_or_json(json, &done, |done| changed_text(done, false, &activity))
        }
        AllowCommand::List(One { id, common }) => {
            let (place, activity, json) = place(id, common).await?;
            let listed = place.listed(ActivityId(activity.id)).await.map_err(failed)?;
            let users: BTreeSet<u64> = listed.users.iter().map(|user| user.0).collect();
            let list = serde_json::json!({ "id": activity.id, "users": users, "others": listed.others });
            print_or_json(json, &list, |_| users.iter().map(u64::to_string).collect::<Vec<_>>().join("\n"))
        }
    }
}

async fn change_some(Users { id, named, common }: Users, is_in: bool) -> Result<(), Failure> {
    let (place, activity, json) = place(id, common).await?;
    let done = change(&place, ActivityId(activity.id), &named, is_in).await.map_err(failed)?;
    print_or_json(json, &done, |done| changed_text(done, is_in, &activity))
}

fn changed_text(done: &ListChanged, is_in: bool, activity: &ActivityView) -> String {
    let ListChanged { id, named, changed, users } = done;
    let verb = if is_in { "added" } else { "removed" };
    let mut text = format!("activity {id}: {changed} of {named} users {verb}; {users} are on its list");
    if !activity.allow_list {
        let _ = write!(text, "\nit does not ask for the list: rushgate activity set {id} --allow-list on");
    }
    text
}

/// Where the lists are, and an activity that there is.
async fn place(id: u64, common: Common) -> Result<(AllowListPlace, ActivityView, bool), Failure> {
    let json = common.json;
    let cannot = |error: &dyn std::fmt::Display| Failure::cannot_start(error.to_string());
    let folder = if let Some(data_dir) = common.data_dir {
        data_dir
    } else {
        let config = common.config.load(KeyFiles::Unopened)?;
        if config.store.kind == StoreKind::Redis {
            let activities = Activities::on_server(mysql_options(&config)?, config.writer.preheat_ahead);
            let activity = find(&activities, id).await?;
            let redis = RedisShards::open(redis_options(&config)?).await;
            return Ok((AllowListPlace::Redis(redis.map_err(|error| cannot(&error))?), activity, json));
        }
        config.store.data_dir
    };
    let activity = find(&Activities::new(&folder), id).await?;
    let folder = AllowListFolder::open(&folder).await.map_err(|error| cannot(&error))?;
    Ok((AllowListPlace::Folder(folder), activity, json))
}

async fn find(activities: &Activities, id: u64) -> Result<ActivityView, Failure> {
    let found = activities.list().await.map_err(failure)?;
    let found = found.into_iter().find(|activity| u64::from(activity.id) == id);
    found.ok_or_else(|| Failure::bad_result(format!("there is no activity {id}")))
}

fn read(file: &Path) -> Result<String, Failure> {
    let cannot = |problem: String| Failure::bad_result(format!("{}: {problem}", file.display()));
    let opened: Box<dyn std::io::Read> = if file == Path::new("-") {
        Box::new(std::io::stdin())
    } else {
        Box::new(std::fs::File::open(file).map_err(|error| cannot(error.to_string()))?)
    };
    let mut text = String::new();
    let read = opened.take(FILE_BYTES_MAX.saturating_add(1)).read_to_string(&mut text);
    match read {
        Err(error) => Err(cannot(error.to_string())),
        Ok(bytes) if u64::try_from(bytes).is_ok_and(|bytes| bytes > FILE_BYTES_MAX) => {
            Err(cannot(format!("longer than {FILE_BYTES_MAX} bytes; split it")))
        }
        Ok(_) => Ok(text),
    }
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn failed(error: StoreError) -> Failure {
    Failure::bad_result(error.to_string())
}

//! `rushgate takeover`: sells activities from the database because Redis and its data are gone, and gives them back.
//!
//! Exit code 0: done, or a dry run found nothing in the way; 1: it was refused, or not confirmed; 2: it could not tell
//! how things stand. Whatever the code, running it again goes on where it ended.

use std::io::{self, BufRead, IsTerminal, Write};
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget};

use super::Failure;
use super::data_args::Common;
use super::log::start_logging;
use super::output::{print, print_json};
use super::production::{mysql_options, redis_options};
use super::startup::runtime;
use super::takeover_report::{Found, Way, done_json, done_text, outlook_json, outlook_text};
use crate::config::{Config, KeyFiles, StoreKind};
use crate::protocol::ActivityId;
use crate::stock::calls::{Gen, ShardId};
use crate::store::redis::RedisShards;
use crate::store::shared::takeover::{self, TakeoverStage};
use crate::store::sql::mysql::{ActivityState, MySqlInstallation, Takeover};
use crate::store::{StoreError, crash_point};

/// How long gateways are given to tell what they know; their heartbeats bring the question twice a second.
const LOOK_PATIENCE: Duration = Duration::from_secs(3);
/// How long Redis is given to say that it is there.
const REDIS_PATIENCE: Duration = Duration::from_secs(5);
/// How long shards are given to be rebuilt, once an activity was given back.
const REBUILD_PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(100);

/// Arguments of `takeover`.
#[derive(Debug, Args)]
pub(super) struct TakeoverArgs {
    #[command(flatten)]
    asked: Asked,
    #[command(flatten)]
    common: Common,
}

/// What is to be done.
#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is one flag of the command line")]
struct Asked {
    /// One activity
    #[arg(long, value_name = "ID", required_unless_present = "all", conflicts_with = "all")]
    activity: Option<u32>,
    /// All activities that it can be done to
    #[arg(long)]
    all: bool,
    /// Say what is known, and what would be done; change nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask whether it is meant
    #[arg(long)]
    yes: bool,
    /// Even though Redis answers and serves
    #[arg(long)]
    force: bool,
    /// The way back: Redis sells what is left, and knows the orders
    #[arg(long)]
    back: bool,
}

/// Runs the command.
pub(super) fn run(args: TakeoverArgs) -> Result<(), Failure> {
    start_logging("error");
    crash_point::arm_from_environment().map_err(|error| Failure::cannot_start(error.to_string()))?;
    runtime()?.block_on(takeover(args))
}

fn cannot_tell(error: impl std::fmt::Display) -> Failure {
    Failure::cannot_start(format!("{error}; how the activities stand cannot be told: run it again"))
}

async fn takeover(args: TakeoverArgs) -> Result<(), Failure> {
    let TakeoverArgs { asked: args, common } = args;
    let config = common.config.load(KeyFiles::Unopened)?;
    if common.data_dir.is_some() || config.store.kind != StoreKind::Redis {
        return Err(Failure::cannot_start(
            "the embedded store has no Redis that could be gone; store.kind = \"redis\" has one",
        ));
    }
    let sql = MySqlInstallation::open(mysql_options(&config)?).await;
    let sql = sql.map_err(|error| Failure::cannot_start(error.to_string()))?;
    let way = if args.back { Way::Back } else { Way::There };
    let ids = activities(&sql, &args, way).await.map_err(cannot_tell)?;
    let redis = connect(&config).await?;
    let found = find(&sql, &ids, redis.as_ref(), way).await.map_err(cannot_tell)?;
    let can_do = found.activities.iter().any(|(_, one)| one.refused.is_none() && one.is_taken == args.back);
    if !common.json {
        print(&outlook_text(way, &found));
    } else if args.dry_run || !can_do {
        print_json(&outlook_json(&found))?;
    }
    if found.activities.iter().any(|(_, one)| one.refused.is_some()) {
        return Err(Failure::bad_result("nothing was done"));
    }
    if args.dry_run || !can_do {
        return Ok(());
    }
    may_go_on(&args, way, &found)?;
    let spinner = Spinner::shown(common.json);
    let watch = |stage| spinner.at(stage);
    let done = match way {
        Way::There => takeover::take_over(&sql, &ids, &watch).await,
        Way::Back => takeover::give_back(&sql, &ids, &watch).await,
    };
    let done = done.map_err(cannot_tell)?;
    if let (Way::Back, Some(redis)) = (way, &redis) {
        spinner.say("shards of Redis are rebuilt");
        let is_open = wait_for_shards(&sql, redis).await.map_err(cannot_tell)?;
        if !is_open {
            return Err(Failure::cannot_start(format!(
                "given back, but the shards of Redis were not rebuilt within {REBUILD_PATIENCE:?}: is a gateway or a \
                 writer running? Nothing is sold of it until they are"
            )));
        }
    }
    spinner.clear();
    if common.json {
        print_json(&done_json(&done))?;
    } else {
        print(&done_text(way, &done));
    }
    sql.close().await;
    let is_refused = done.iter().any(|(_, one)| matches!(one, Takeover::Refused(_)));
    if is_refused { Err(Failure::bad_result("")) } else { Ok(()) }
}

/// Those asked for; with --all those that there is something to do to.
async fn activities(sql: &MySqlInstallation, args: &Asked, way: Way) -> Result<Vec<ActivityId>, StoreError> {
    if let Some(id) = args.activity {
        return Ok(vec![ActivityId(id)]);
    }
    let taken = sql.taken_over().await?;
    if way == Way::Back {
        return Ok(taken);
    }
    let states = sql.activity_states().await?;
    let is_asked =
        |(id, state): &(ActivityId, ActivityState)| *state == ActivityState::Loaded && !taken.contains(id);
    Ok(states.into_iter().filter(is_asked).map(|(id, _)| id).collect())
}

/// `None`: it does not answer, which is what a takeover is for.
async fn connect(config: &Config) -> Result<Option<RedisShards>, Failure> {
    let opening = RedisShards::open(redis_options(config)?);
    Ok(tokio::time::timeout(REDIS_PATIENCE, opening).await.ok().and_then(Result::ok))
}

async fn find(
    sql: &MySqlInstallation,
    ids: &[ActivityId],
    redis: Option<&RedisShards>,
    way: Way,
) -> Result<Found, StoreError> {
    let generation = sql.generation().await?;
    let redis_serves = match redis {
        Some(redis) => are_open(redis, generation).await,
        None => false,
    };
    let looked = match way {
        Way::There => takeover::look(sql, LOOK_PATIENCE).await?,
        Way::Back => takeover::Looked::default(),
    };
    let mut activities = Vec::with_capacity(ids.len());
    for id in ids {
        let outlook = match way {
            Way::There => sql.takeover_outlook(*id, looked.look).await?,
            Way::Back => sql.give_back_outlook(*id).await?,
        };
        activities.push((*id, outlook));
    }
    Ok(Found { activities, looked, redis_answers: redis.is_some(), redis_serves })
}

async fn are_open(redis: &RedisShards, generation: Gen) -> bool {
    for shard in ShardId::ALL {
        match tokio::time::timeout(REDIS_PATIENCE, redis.shard_state(shard)).await {
            Ok(Ok(state)) if state.is_open && state.generation >= generation => {}
            _ => return false,
        }
    }
    true
}

async fn wait_for_shards(sql: &MySqlInstallation, redis: &RedisShards) -> Result<bool, StoreError> {
    let (began, below) = (Instant::now(), sql.rebuild_below().await?);
    while began.elapsed() < REBUILD_PATIENCE {
        if are_open(redis, below).await {
            return Ok(true);
        }
        tokio::time::sleep(POLL).await;
    }
    Ok(false)
}

fn may_go_on(args: &Asked, way: Way, found: &Found) -> Result<(), Failure> {
    match way {
        Way::There if found.redis_serves && !args.force => {
            return Err(Failure::bad_result(
                "Redis answers, and all its shards serve: nothing is gone. While it is away now and then, the reserve \
                 can be sold (switch stock.mode). Nothing was done; --force does it all the same",
            ));
        }
        Way::Back if !found.redis_answers => {
            return Err(Failure::bad_result("Redis does not answer: nobody would sell it. Nothing was done"));
        }
        _ => {}
    }
    if args.yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        return Err(Failure::bad_result(
            "nobody is there to be asked whether it is meant: --yes. Nothing was done",
        ));
    }
    let _ = write!(io::stderr(), "type yes to go on: ");
    let mut answer = String::new();
    let _ = io::stdin().lock().read_line(&mut answer);
    if answer.trim() == "yes" { Ok(()) } else { Err(Failure::bad_result("nothing was done")) }
}

/// On standard error; hidden by itself where that is no terminal.
struct Spinner(ProgressBar);

impl Spinner {
    fn shown(is_for_a_machine: bool) -> Self {
        let target =
            if is_for_a_machine { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(None, target);
        bar.enable_steady_tick(POLL);
        Self(bar)
    }

    fn say(&self, what: &str) {
        self.0.set_message(what.to_owned());
    }

    fn at(&self, stage: TakeoverStage) {
        match stage {
            TakeoverStage::Leading => self.say("another process leads a recovery; waiting for it"),
            TakeoverStage::HandingIn => self.say("gateways hand in what they know"),
            TakeoverStage::Turning(id) => self.0.set_message(format!("activity {id}")),
        }
    }

    fn clear(&self) {
        self.0.finish_and_clear();
    }
}

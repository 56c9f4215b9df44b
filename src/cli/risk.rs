//! `rushgate risk …`: whom gateways block and slow down, and why somebody was turned away.

use std::time::Instant;

use serde_json::json;

use super::output::print_or_json;
pub(super) use super::risk_args::RiskArgs;
use super::risk_args::{AddArgs, ImportArgs, Kind, ListArgs, RemoveArgs, RiskCommand, Terms};
use super::risk_import::{Defaults, entries, read};
use super::risk_lists::{failed, line, place};
use super::startup::runtime;
use super::{Failure, log, risk_explain};
use crate::admin::risk::{EntryView, Reason, RiskDone, RiskError, now_ms, until_ms};
use crate::admission::risk::{Effect, Subject, SubjectError, SubjectKind};
use crate::store::risk::{RiskStore, STEP_ENTRIES};

/// Entries that are at once on their way into the store, as it takes them.
const AT_ONCE: usize = 20 * STEP_ENTRIES;

/// Runs the command.
pub(super) fn run(args: RiskArgs) -> Result<(), Failure> {
    log::start_logging("warn");
    runtime()?.block_on(dispatch(args.command))
}

async fn dispatch(command: RiskCommand) -> Result<(), Failure> {
    match command {
        RiskCommand::List(args) => list(args).await,
        RiskCommand::Add(args) => add(args).await,
        RiskCommand::Remove(args) => remove(args).await,
        RiskCommand::Import(args) => import(args).await,
        RiskCommand::Explain(args) => risk_explain::explain(args).await,
    }
}

impl Kind {
    const fn kind(self) -> SubjectKind {
        match self {
            Self::User => SubjectKind::User,
            Self::Ip => SubjectKind::Ip,
            Self::Device => SubjectKind::Device,
        }
    }
}

async fn list(args: ListArgs) -> Result<(), Failure> {
    let json = args.common.json;
    let place = place(args.common).await?;
    let kind = args.kind.map(|kind| format!("{}:", kind.kind().name())).unwrap_or_default();
    let limit = if args.limit == 0 { usize::MAX } else { args.limit };
    let (mut views, mut cursor, now_ms) = (Vec::new(), None, now_ms());
    while views.len() <= limit {
        let page = place.risk_page(cursor.as_deref()).await.map_err(failed)?;
        let found = page.found.into_iter().map(EntryView::from);
        views.extend(found.filter(|one| one.subject.starts_with(&kind) && !one.has_passed(now_ms)));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    views.sort_by(|one, other| one.subject.cmp(&other.subject));
    // A store may show an entry twice while it grows.
    views.dedup_by(|one, other| one.subject == other.subject);
    let has_more = views.len() > limit || cursor.is_some();
    views.truncate(limit);
    print_or_json(json, &views, |views| {
        let mut text: String = views.iter().map(|view| line(view) + "\n").collect();
        if views.is_empty() {
            text.push_str("nobody is listed\n");
        }
        if has_more {
            text.push_str("… and others; --limit 0 shows all\n");
        }
        text
    })
}

impl Terms {
    fn check(self) -> Result<(Reason, Defaults), RiskError> {
        let effect: Effect = self.effect.parse()?;
        let now_ms = now_ms();
        let until_ms = until_ms(now_ms, self.listed_for)?;
        Ok((Reason::new(self.who, self.why)?, Defaults { effect, until_ms, now_ms }))
    }
}

async fn add(AddArgs { subjects, terms, common }: AddArgs) -> Result<(), Failure> {
    let (reason, defaults) = terms.check().map_err(failed)?;
    let subjects: Result<Vec<Subject>, SubjectError> = subjects.iter().map(|text| text.parse()).collect();
    let subjects = subjects.map_err(RiskError::from).map_err(failed)?;
    let new: Vec<_> =
        subjects.iter().map(|subject| reason.entry(subject, defaults.effect, defaults.until_ms)).collect();
    let json = common.json;
    let version = place(common).await?.risk_add(&new).await.map_err(RiskError::from).map_err(failed)?;
    let done = RiskDone { entries: u64::try_from(new.len()).unwrap_or(u64::MAX), version };
    print_or_json(json, &done, |RiskDone { version, .. }| {
        let lines =
            new.iter().map(|entry| format!("{}: {} (version {version})\n", entry.subject, entry.effect));
        lines.collect()
    })
}

async fn remove(RemoveArgs { subjects, common }: RemoveArgs) -> Result<(), Failure> {
    let parsed: Result<Vec<Subject>, SubjectError> = subjects.iter().map(|text| text.parse()).collect();
    let parsed = parsed.map_err(RiskError::from).map_err(failed)?;
    let subjects: Vec<String> = parsed.iter().map(Subject::to_string).collect();
    let json = common.json;
    let removed =
        place(common).await?.risk_remove(&subjects).await.map_err(RiskError::from).map_err(failed)?;
    print_or_json(json, &RiskDone::from(removed), |RiskDone { entries, version }| {
        format!("{entries} of {} were listed and are not any more (version {version})", subjects.len())
    })
}

/// Nothing is written before all of the file has been read.
async fn import(ImportArgs { file, terms, common }: ImportArgs) -> Result<(), Failure> {
    let (reason, defaults) = terms.check().map_err(failed)?;
    let text = read(&file)?;
    let listed = entries(&text, &defaults).map_err(failed)?;
    let json = common.json;
    let place = place(common).await?;
    let (began, mut version) = (Instant::now(), place.risk_version().await.map_err(failed)?);
    let mut done = 0_usize;
    for some in listed.chunks(AT_ONCE) {
        let new: Vec<_> = some
            .iter()
            .map(|(subject, effect, until_ms)| reason.entry(subject, *effect, *until_ms))
            .collect();
        version = place.risk_add(&new).await.map_err(|error| {
            failed(format!(
                "{done} of {} entries are listed, others may or may not be: {error}; import the file once more, \
                 which changes nothing about those that are",
                listed.len()
            ))
        })?;
        done = done.saturating_add(new.len());
    }
    let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    print_or_json(json, &json!({ "entries": done, "version": version, "took_ms": took_ms }), |_| {
        format!("{done} entries listed in {took_ms} ms (version {version})")
    })
}

//! Flags on their way into the risk lists.
//!
//! Connections and tasks hand one over without waiting; one task on the caller's runtime looks what stands in the store's
//! list already and adds what is missing, unless somebody else has changed what stands there in between. While the store is away they wait, as many as the queue holds; further ones are
//! forgotten and counted: whoever earned one goes on to earn it. Everything here is in force on all gateways, this one
//! included, once its risk lists follow: see `risk`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::Core;
use super::counters::{Event, Sheet};
use super::trouble::Trouble;
use crate::admission::flag::{Flag, Listed};
use crate::admission::risk::Subject;
use crate::stock::calls::ProcessNumber;
use crate::store::StoreError;
use crate::store::risk::{Entry, FLAGGED_BY, NewEntry, NewFlag, RiskStore};
use crate::store::watched;

/// The task, for people.
const WHAT: &str = "writing flags";
/// Flags that wait for the store.
const WAITING_MAX: usize = 4096;
/// Listed at a time.
const BATCH_MAX: usize = 256;
/// After a failure.
const BACK_OFF: Duration = Duration::from_millis(100);

/// Where they are handed over.
#[derive(Clone, Debug)]
pub(super) struct Flags(mpsc::Sender<Flag>);

/// The task's side.
#[derive(Debug)]
pub(super) struct FlagTask(mpsc::Receiver<Flag>);

/// Both sides.
pub(super) fn new() -> (Flags, FlagTask) {
    let (to_task, waiting) = mpsc::channel(WAITING_MAX);
    (Flags(to_task), FlagTask(waiting))
}

impl Flags {
    /// Hands one over, or forgets it.
    pub(super) fn raise(&self, flag: Flag, sheet: &Sheet) {
        if self.0.try_send(flag).is_err() {
            sheet.event(Event::FlagForgotten, 1);
        }
    }
}

impl FlagTask {
    /// Runs until the gateway stops it.
    pub(super) async fn run<S: RiskStore>(mut self, core: Arc<Core>, store: Arc<S>, process: ProcessNumber) {
        let mut back_off = watched::BackOff::default();
        while watched::caught(WHAT, self.serve(&core, store.as_ref(), process)).await.is_err() {
            back_off.wait(WHAT).await;
        }
    }

    async fn serve<S: RiskStore>(&mut self, core: &Core, store: &S, process: ProcessNumber) {
        let (sheet, who) = (core.counters.sheet(), format!("{FLAGGED_BY}{}", process.0));
        let mut trouble = Trouble::new("flags cannot be written to the risk lists");
        let mut waiting = Vec::with_capacity(BATCH_MAX);
        while self.0.recv_many(&mut waiting, BATCH_MAX).await > 0 {
            let flags = worst_of_each(std::mem::take(&mut waiting));
            loop {
                match list(core, store, &who, &flags).await {
                    Ok(listed) => {
                        trouble.over();
                        sheet.event(Event::Flagged, listed);
                        break;
                    }
                    Err(error) => {
                        trouble.happened(&error);
                        tokio::time::sleep(BACK_OFF).await;
                        // What somebody has to mend is not waited for: those behind may be luckier.
                        if matches!(error, StoreError::Corrupt(_)) {
                            let forgotten = u64::try_from(flags.len()).unwrap_or(u64::MAX);
                            sheet.event(Event::FlagForgotten, forgotten);
                            break;
                        }
                    }
                }
            }
        }
    }
}

fn worst_of_each(flags: Vec<Flag>) -> Vec<Flag> {
    let mut worst: HashMap<Subject, Flag> = HashMap::new();
    for flag in flags {
        let known = worst.get(&flag.subject).map(|known| known.effect);
        if known.is_none_or(|known| flag.effect > known) {
            worst.insert(flag.subject.clone(), flag);
        }
    }
    worst.into_values().collect()
}

/// Lists those that are missing; how many that were.
async fn list<S: RiskStore>(core: &Core, store: &S, who: &str, flags: &[Flag]) -> Result<u64, StoreError> {
    let subjects: Vec<String> = flags.iter().map(|flag| flag.subject.to_string()).collect();
    let found = store.risk_find(&subjects).await?;
    let mut found: HashMap<String, Entry> =
        found.into_iter().map(|entry| (entry.subject.clone(), entry)).collect();
    let now_ms = core.clock.now().sale_ms;
    let mut due = Vec::with_capacity(flags.len());
    for (flag, subject) in flags.iter().zip(subjects) {
        let seen = found.remove(&subject);
        if flag.replaces(now_ms, seen.as_ref().map(listed)) {
            let (effect, until_ms) = (flag.effect.name().to_owned(), flag.until_ms(now_ms));
            let (who, why) = (who.to_owned(), flag.why.to_string());
            due.push(NewFlag { entry: NewEntry { subject, effect, until_ms, who, why }, seen });
        }
    }
    if due.is_empty() {
        return Ok(0);
    }
    let stand = store.risk_flag(&due).await?;
    let mut count = 0_u64;
    for (NewFlag { entry: NewEntry { subject, effect, why, .. }, .. }, stands) in due.iter().zip(stand) {
        // Else whoever has changed it meanwhile knows better, and who earns another flag is looked at anew.
        if stands {
            count = count.saturating_add(1);
            tracing::info!(subject, effect, why, "flagged");
        }
    }
    Ok(count)
}

fn listed(entry: &Entry) -> Listed {
    Listed { effect: entry.effect.parse().ok(), until_ms: entry.until_ms, is_flag: entry.is_flag() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::admission::flag::Why;
    use crate::admission::risk::Effect;
    use crate::protocol::UserId;

    #[test]
    fn of_several_flags_of_one_subject_the_worst_is_listed() {
        let flag = |user, effect| Flag {
            subject: Subject::User(UserId::new(user).unwrap()),
            effect,
            lasts: Duration::from_secs(1),
            why: Why::Requests { per_minute: 1 },
        };
        let mut worst = worst_of_each(vec![
            flag(1, Effect::Slow),
            flag(2, Effect::Slow),
            flag(1, Effect::Block),
            flag(1, Effect::Slow),
        ]);
        worst.sort_unstable_by_key(|flag| flag.effect);
        assert_eq!(worst, [flag(2, Effect::Slow), flag(1, Effect::Block)]);
    }
}

//! Long-running tasks that panic: told as an error under their names, counted, and begun again or their process ended;
//! never silently missing.
//!
//! [`caught`] makes a panic an outcome, [`restarted`] begins a task anew, more and more slowly, and [`vital`] is for a task
//! whose state dies with it and without which its process would only look as if it worked: whoever runs the process
//! waits for [`broken`] and ends it, and others go on from what is stored, as after a crash. Used by whoever spawns a
//! task; runs on that task. Nothing is caught where panics abort the process.

use std::any::Any;
use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::StoreError;

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Whatever ran for so long begins anew without much of a pause.
const HEALTHY_AFTER: Duration = Duration::from_secs(60);

/// Of this process, since it began.
static PANICS: AtomicU64 = AtomicU64::new(0);
static BROKEN: LazyLock<watch::Sender<Option<&'static str>>> = LazyLock::new(|| watch::Sender::new(None));

/// Something panicked; it was told already.
#[derive(Debug)]
pub struct Panicked {
    task: &'static str,
    payload: Box<dyn Any + Send>,
}

impl Panicked {
    fn said(&self) -> &str {
        panic_text(self.payload.as_ref())
    }
}

/// What a panic said.
pub fn panic_text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&'static str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a word")
}

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a fault of this program: {} panicked: {}", self.task, self.said())
    }
}

impl From<Panicked> for StoreError {
    /// What came of it is not known, as of any call that broke off.
    fn from(panicked: Panicked) -> Self {
        Self::Unavailable(panicked.to_string())
    }
}

/// How often anything has panicked in this process, as far as it was noted.
pub fn panics() -> u64 {
    PANICS.load(Ordering::Relaxed)
}

/// Something has panicked, watched or not: to be called by the process's panic hook.
pub fn note_panic() {
    PANICS.fetch_add(1, Ordering::Relaxed);
}

/// Runs it to its end, which may be a panic. `task` is its name for people.
pub async fn caught<F: Future>(task: &'static str, future: F) -> Result<F::Output, Panicked> {
    let mut future = Box::pin(future);
    let polled = poll_fn(move |context| {
        // Nothing of it is looked at after a panic: it is dropped.
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
            Err(payload) => Poll::Ready(Err(payload)),
        }
    });
    polled.await.map_err(|payload| told(task, payload))
}

/// The same of work that waits for nothing, on a thread of its own.
pub fn caught_now<T>(task: &'static str, work: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| told(task, payload))
}

fn told(task: &'static str, payload: Box<dyn Any + Send>) -> Panicked {
    let panicked = Panicked { task, payload };
    tracing::error!(task, panic = panicked.said(), "a task has panicked, by a fault of this program");
    panicked
}

/// A step of a task that asks a store: a panic is an answer that did not come.
pub async fn answered<T>(
    task: &'static str,
    future: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    caught(task, future).await.unwrap_or_else(|panicked| Err(panicked.into()))
}

/// When to begin again.
#[derive(Debug, Default)]
pub struct BackOff {
    last: Option<(Instant, Duration)>,
}

impl BackOff {
    /// It broke off now; how long to wait. Twice as long each time, unless it went well for a minute.
    pub fn broke_off(&mut self, now: Instant) -> Duration {
        let pause = match self.last {
            Some((before, pause)) if now.saturating_duration_since(before) < HEALTHY_AFTER => {
                pause.saturating_mul(2).min(LONGEST_PAUSE)
            }
            _ => FIRST_PAUSE,
        };
        self.last = Some((now.checked_add(pause).unwrap_or(now), pause));
        pause
    }

    /// It broke off: waits until it may begin anew.
    pub async fn wait(&mut self, task: &'static str) {
        let pause = self.broke_off(Instant::now());
        tracing::warn!(task, ?pause, "it is begun anew");
        tokio::time::sleep(pause).await;
    }
}

/// Runs what `begin` makes, and again whenever that panics.
pub async fn restarted<F: Future<Output = ()>>(task: &'static str, mut begin: impl FnMut() -> F) {
    let mut back_off = BackOff::default();
    while caught(task, begin()).await.is_err() {
        back_off.wait(task).await;
    }
}

/// Runs a task whose process is to end when it panics; it ends so itself, too.
pub async fn vital<F: Future>(task: &'static str, future: F) -> F::Output {
    match caught(task, future).await {
        Ok(output) => output,
        Err(panicked) => {
            BROKEN.send_if_modified(|broken| broken.is_none() && broken.replace(task).is_none());
            resume_unwind(panicked.payload)
        }
    }
}

/// Waits until a vital task of this process has panicked; which one.
pub async fn broken() -> &'static str {
    let mut broken = BROKEN.subscribe();
    let found = broken.wait_for(Option::is_some).await.ok().and_then(|task| *task);
    match found {
        Some(task) => task,
        // The sender is never dropped.
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic, clippy::unwrap_used, clippy::arithmetic_side_effects, reason = "tests")]

    use std::cell::Cell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_panics_is_counted_and_begun_anew_until_it_ends_by_itself() {
        let runs = Cell::new(0);
        restarted("a task of a test", || {
            runs.set(runs.get() + 1);
            let run = runs.get();
            async move {
                tokio::task::yield_now().await;
                assert!(run > 3, "run {run}");
            }
        })
        .await;
        assert_eq!(runs.get(), 4);
    }

    #[tokio::test]
    async fn a_step_that_panics_is_an_answer_that_did_not_come() {
        let step: Result<(), _> = answered("a step of a test", async { panic!("no such shard") }).await;
        let error = step.unwrap_err().to_string();
        assert!(error.contains("a step of a test panicked: no such shard"), "{error}");
    }

    #[tokio::test]
    async fn a_vital_task_that_panics_is_told_and_ends_as_a_panic() {
        let ended = tokio::spawn(vital("the heart of a test", async { panic!("{}", "over") })).await;
        assert!(ended.unwrap_err().is_panic());
        assert_eq!(broken().await, "the heart of a test");
    }

    #[test]
    fn pauses_double_up_to_a_bound_and_begin_anew_after_a_healthy_minute() {
        let (mut back_off, mut now) = (BackOff::default(), Instant::now());
        let mut pauses = Vec::new();
        for _ in 0..12 {
            let pause = back_off.broke_off(now);
            pauses.push(pause);
            now += pause + Duration::from_secs(1);
        }
        assert!(pauses.starts_with(&[100, 200, 400].map(Duration::from_millis)), "{pauses:?}");
        assert_eq!(pauses.last(), Some(&LONGEST_PAUSE));
        assert_eq!(back_off.broke_off(now + HEALTHY_AFTER), FIRST_PAUSE);
    }
}

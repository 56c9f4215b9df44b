//! What a writer process tells of itself on its admin port.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::sync::watch;

use super::log::LogCounts;
use super::metric_text::single;
use super::probe::put_keeper;
use super::process_metrics::put_process;
use super::writer_metrics::{put_counts, put_lags, put_payment_lags, put_recording};
use crate::admin::probe::{Probe, SignedNotice};
use crate::orders::{Counters, Notices};
use crate::payment::Answer;
use crate::store::shared::KeeperState;
use crate::store::sql::mysql::MySqlInstallation;

/// The process's probe: it is asked from the start on, before there is a writer.
#[derive(Debug)]
pub(super) struct WriterProbe {
    working: OnceLock<Working>,
    stopping: AtomicBool,
    log: LogCounts,
}

#[derive(Debug)]
struct Working {
    counters: Arc<Counters>,
    keeper: watch::Receiver<KeeperState>,
    notices: Option<Notices<MySqlInstallation>>,
}

impl WriterProbe {
    pub(super) const fn new(log: LogCounts) -> Self {
        Self { working: OnceLock::new(), stopping: AtomicBool::new(false), log }
    }

    /// The writer is there.
    pub(super) fn works(
        &self,
        counters: Arc<Counters>,
        keeper: watch::Receiver<KeeperState>,
        notices: Option<Notices<MySqlInstallation>>,
    ) {
        let _ = self.working.set(Working { counters, keeper, notices });
    }

    /// It takes nothing any more.
    pub(super) fn stops(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }
}

impl Probe for WriterProbe {
    fn not_ready(&self) -> Vec<&'static str> {
        let Some(Working { counters, keeper, .. }) = self.working.get() else { return vec!["starting"] };
        let reasons = [
            (self.stopping.load(Ordering::Relaxed), "stopping"),
            (!counters.redis_answers(), "redis does not answer"),
            (!counters.sql_answers(), "the database does not answer"),
        ];
        let reasons = reasons.into_iter().filter_map(|(is_so, reason)| is_so.then_some(reason));
        let keeper = *keeper.borrow();
        reasons.chain(keeper.not_ready()).collect()
    }

    fn metrics(&self) -> String {
        let mut text = String::new();
        if let Some(Working { counters, keeper, .. }) = self.working.get() {
            put_counts(&mut text, counters);
            put_keeper(&mut text, *keeper.borrow());
            put_lags(&mut text, counters);
            put_payment_lags(&mut text, counters);
            put_recording(&mut text, counters);
            let help = "Units that are certainly too many or too few, over all SKUs";
            single(&mut text, "rushgate_units_off", "gauge", help, counters.units_off());
        }
        put_process(&mut text, Some(&self.log));
        let ready = u64::from(self.not_ready().is_empty());
        single(&mut text, "rushgate_writer_ready", "gauge", "1 while it works", ready);
        text
    }

    async fn payment_notice(&self, notice: SignedNotice) -> Option<Answer> {
        let Some(Working { notices, .. }) = self.working.get() else { return Some(Answer::Unanswered) };
        let (timestamp, signature) = (notice.timestamp.as_deref(), notice.signature.as_deref());
        Some(notices.as_ref()?.take(timestamp, signature, &notice.body).await)
    }
}

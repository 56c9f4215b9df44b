//! Telling a person how far a rehearsal is.

use std::sync::{Mutex, PoisonError};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The parts of a rehearsal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Users buy.
    Buying,
    /// Results are asked on fresh connections.
    AskingResults,
    /// Writers settle what was sold.
    Settling,
    /// Orders are paid or closed, and units sold again.
    Living,
    /// Histories and database are compared.
    Auditing,
}

impl Phase {
    /// A word for people.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Buying => "users buying",
            Self::AskingResults => "results asked",
            Self::Settling => "orders settling",
            Self::Living => "units paid for",
            Self::Auditing => "audit",
        }
    }
}

/// Is told how far a rehearsal is. Called from many tasks, so it must be quick.
pub trait Progress: Send + Sync {
    /// A phase of `total` steps begins.
    fn begin(&self, phase: Phase, total: u64);
    /// One step is done.
    fn step(&self);
    /// The phase is over.
    fn end(&self);
}

/// Says nothing.
#[derive(Clone, Copy, Debug)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&self, _: Phase, _: u64) {}
    fn step(&self) {}
    fn end(&self) {}
}

/// A bar on standard error; hidden by itself where that is no terminal.
#[derive(Debug, Default)]
pub struct TerminalBar(Mutex<Option<ProgressBar>>);

impl TerminalBar {
    fn with_bar(&self, act: impl FnOnce(&mut Option<ProgressBar>)) {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Progress for TerminalBar {
    fn begin(&self, phase: Phase, total: u64) {
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
        let template = "{msg:>14} {bar:40} {human_pos}/{human_len}  {per_sec}  {elapsed}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(phase.label());
        self.with_bar(|slot| *slot = Some(bar));
    }

    fn step(&self) {
        self.with_bar(|slot| {
            if let Some(bar) = slot {
                bar.inc(1);
            }
        });
    }

    fn end(&self) {
        self.with_bar(|slot| {
            if let Some(bar) = slot.take() {
                bar.finish_and_clear();
            }
        });
    }
}

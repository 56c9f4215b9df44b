//! The whole rehearsal: sale, database, audit, report.

use std::sync::Arc;

use super::audit::audit;
use super::books::{Books, BooksError};
use super::living::{close_books, live};
use super::plan::SalePlan;
use super::progress::{Phase, Progress};
use super::report::Report;
use super::sale::{SaleError, Selling};
use super::source::Source;
use super::verdict::Verdict;
use crate::admission::identity::Minter;

/// Why a rehearsal has no result.
#[derive(Debug, thiserror::Error)]
pub enum RehearsalError {
    /// The sale could not start.
    #[error(transparent)]
    Sale(#[from] SaleError),
    /// The database cannot be read; nobody has bought anything.
    #[error(transparent)]
    Books(BooksError),
    /// The database cannot be read any more.
    #[error("the sale is over, but cannot be audited: {0}")]
    Unaudited(BooksError),
}

/// A rehearsal's result.
#[derive(Clone, Debug)]
pub struct Rehearsed {
    /// The figures.
    pub report: Report,
    /// Every violation with a sentence of its own.
    pub verdict: Verdict,
}

/// Runs the planned sale and audits it against the database, once everything is settled there.
pub async fn rehearse(
    plan: SalePlan,
    minter: Arc<Minter>,
    source: &Source,
    progress: Arc<dyn Progress>,
) -> Result<Rehearsed, RehearsalError> {
    // Read once beforehand: a database that cannot be read is better known before the sale.
    source.read(plan.activity, plan.sku).await.map_err(RehearsalError::Books)?;
    let mut selling = Box::pin(Selling::start(plan.clone(), minter, Arc::clone(&progress))).await?;
    let lived = match &plan.life {
        Some(life) => {
            let lived = Box::pin(live(&mut selling, life, source, progress.as_ref())).await;
            Some(lived.map_err(RehearsalError::Unaudited)?)
        }
        None => None,
    };
    let history = Box::pin(selling.finish()).await?;
    let unsettled = source.settled(plan.activity, plan.settle_patience, progress.as_ref()).await;
    progress.begin(Phase::Auditing, 1);
    let books = source.read(plan.activity, plan.sku).await.map_err(RehearsalError::Unaudited)?;
    let unfinished = lived.as_ref().and_then(|(_, open)| open.clone());
    let books = Books { unsettled: unsettled.or(unfinished), ..books };
    let mut verdict = audit(&history, &books);
    let life = lived.map(|(resold, _)| close_books(&books, plan.sku, resold, &mut verdict));
    progress.step();
    progress.end();
    let report = Report { life, ..Report::new(&plan, &history, &verdict) };
    Ok(Rehearsed { report, verdict })
}

//! Follows the catalogue: shows the funnel what is on sale, and has the store apply what operators asked for.
//!
//! One task per gateway, which looks for a newer version again and again. It decides nothing about units: additions and
//! removals of stock are the store's to apply, each once. While the store fails, what was on sale stays on sale, and it is
//! tried again.

use std::sync::Arc;
use std::time::Duration;

use super::Core;
use super::on_sale::{OnSale, Ties};
use super::trouble::Trouble;
use crate::admission::limits::Rates;
use crate::store::StoreError;
use crate::store::catalog::Catalogue;

/// How often the catalogue is looked at for changes.
const CATALOGUE_INTERVAL: Duration = Duration::from_millis(50);

/// Shows the funnel what is on sale, and drives what operators asked for. What fails is tried again, and neither
/// waits for the other: an entry that is closed must not wait for a load that fails.
pub(super) async fn follow<S: Catalogue>(core: Arc<Core>, store: Arc<S>, mut known: u64) {
    let mut trouble = Trouble::new("the catalogue cannot be read, or a load not be applied");
    loop {
        tokio::time::sleep(CATALOGUE_INTERVAL).await;
        match reread_if_newer(&core, store.as_ref(), known).await {
            Ok(version) => {
                trouble.over();
                known = version;
            }
            Err(error) => trouble.happened(&error),
        }
    }
}

/// The version that is known then.
pub(super) async fn reread_if_newer<S: Catalogue>(
    core: &Core,
    store: &S,
    known: u64,
) -> Result<u64, StoreError> {
    let version = store.version().await?;
    if version != known {
        reread(core, store).await?;
    }
    Ok(version)
}

pub(super) async fn on_sale<S: Catalogue>(
    store: &S,
    ties: &Ties<'_>,
    rates: Arc<Rates>,
) -> Result<OnSale, StoreError> {
    let ended = store.ended().await?;
    Ok(OnSale::new(store.activities().await?, ended, ties, rates))
}

async fn reread<S: Catalogue>(core: &Core, store: &S) -> Result<(), StoreError> {
    let rates = Arc::clone(core.funnel.on_sale.load().rates());
    let claims = core.verifier.claim_names();
    let ties = Ties { board: &core.funnel.board, claims, lists: &core.allow_lists };
    let on_sale = on_sale(store, &ties, rates).await?;
    tracing::info!(activities = on_sale.len(), "catalogue read anew");
    core.funnel.show(core.clock.now(), &on_sale);
    // What it applies changes the version again.
    let loads = store.drive_loads().await?;
    if loads > 0 {
        tracing::info!(loads, "additions and removals of stock applied");
    }
    Ok(())
}

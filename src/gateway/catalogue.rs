//! What is on sale, as the catalogue says it, and the tasks that keep the funnel current with it and with the rest that a
//! gateway obeys.
//!
//! Run on the caller's runtime, beside the stock task. What cannot be read is tried again, and what was known last holds.

use std::sync::Arc;
use std::time::Duration;

use super::on_sale::{OnSale, Ties};
use super::tasks::Tasks;
use super::trouble::Trouble;
use super::{Core, allow_list_follower, looks, risk, switches};
use crate::admission::limits::Rates;
use crate::store::catalog::Catalogue;
use crate::store::{GatewayStore, StoreError};

/// How often the catalogue is looked at for changes.
const CATALOGUE_INTERVAL: Duration = Duration::from_millis(50);
/// How often idle limiter keys are forgotten.
const RETAIN_INTERVAL: Duration = Duration::from_secs(10);

/// Reads what may have changed since it was read, and what the funnel obeys besides, and has all of it followed.
pub(super) async fn follow<S: GatewayStore>(
    core: &Arc<Core>,
    store: Arc<S>,
    version: u64,
    tasks: &mut Tasks,
) -> Result<(), StoreError> {
    core.funnel.gate.set_taken(core.funnel.on_sale.load().has_taken());
    // What was archived since it was read is not in the shards any more.
    let version = reread_if_newer(core, store.as_ref(), version).await?;
    switches::read_before_opening(core, store.as_ref()).await?;
    tasks.extend([risk::start(core, &store).await?, allow_list_follower::start(core, &store).await?]);
    let (shared, switches) = (Arc::clone(core), Arc::clone(&store));
    tasks.restart("following the switches", move || {
        switches::follow(Arc::clone(&shared), Arc::clone(&switches))
    });
    let (shared, looked) = (Arc::clone(core), Arc::clone(&store));
    tasks.restart("answering looks", move || looks::answer(Arc::clone(&shared), Arc::clone(&looked)));
    let shared = Arc::clone(core);
    tasks.restart("following the catalogue", move || {
        follow_catalogue(Arc::clone(&shared), Arc::clone(&store), version)
    });
    let shared = Arc::clone(core);
    tasks.restart("forgetting idle limiter keys", move || retain_keys(Arc::clone(&shared)));
    Ok(())
}

/// Shows the funnel what is on sale, and drives what operators asked for. What fails is tried again, and neither
/// waits for the other: an entry that is closed must not wait for a load that fails.
async fn follow_catalogue<S: Catalogue>(core: Arc<Core>, store: Arc<S>, mut known: u64) {
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
async fn reread_if_newer<S: Catalogue>(core: &Core, store: &S, known: u64) -> Result<u64, StoreError> {
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
    let (ended, taken) = (store.ended().await?, store.taken_over().await?);
    Ok(OnSale::new(store.activities().await?, ended, ties, rates).taking_over(&taken))
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

async fn retain_keys(core: Arc<Core>) {
    loop {
        tokio::time::sleep(RETAIN_INTERVAL).await;
        let on_sale = core.funnel.on_sale.load_full();
        let now = core.clock.now();
        core.funnel.limits.retain(on_sale.rates(), now.mono_ns);
        core.funnel.retain_unpaid(now);
    }
}

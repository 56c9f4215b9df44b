//! Corrects what was found, in an order that leaves nothing worse wherever it breaks off.
//!
//! SQL's counts first, so that what is settled again finds its units; then each shard: what it forgot, then its sums; then
//! what writers finish. Each correction looks again whether it is still due. A shard that was corrected by somebody else
//! meanwhile, or is of another generation, is left alone: the next reconciliation sees what is left.

use super::difference::{Difference, Kind, Remedy};
use super::evidence::Evidence;
use super::watch::{Stage, Watch};
use crate::protocol::{ActivityId, SkuId, SkuKey, UserId};
use crate::stock::calls::{Mark, SHARDS, ShardId};
use crate::store::StoreError;
use crate::store::redis::{Guarded, MendAt, Mended, RedisShards};
use crate::store::sql::mysql::{MySqlInstallation, MySqlStore, PlacedOrder};

/// What became of a difference: corrected, or why not; `None`: there is no remedy.
pub(super) type Outcome = Option<Result<(), String>>;

struct Mending<'a> {
    redis: &'a RedisShards,
    sql: &'a MySqlInstallation,
    evidence: &'a Evidence,
    places: [Option<MendAt>; SHARDS],
}

/// The place of a remedy in the order of all.
const fn step(remedy: &Remedy) -> u8 {
    match remedy {
        Remedy::CountStock | Remedy::CountReserve => 0,
        Remedy::RememberLoad(_) => 1,
        Remedy::RaiseOut { .. } => 2,
        Remedy::WriteMark(_) => 3,
        Remedy::AddUnits(_) => 4,
        Remedy::BringIn { .. } => 5,
        Remedy::RestoreOrder => 6,
        Remedy::AppendRecord => 7,
        Remedy::TellState(_) => 8,
        Remedy::OweRelease => 9,
        Remedy::Nothing => 10,
    }
}

/// Corrects all that has a remedy; what became of each, in their order. An error: it broke off; run it again.
pub(super) async fn mend(
    redis: &RedisShards,
    sql: &MySqlInstallation,
    evidence: &Evidence,
    differences: &[Difference],
    watch: &dyn Watch,
) -> Result<Vec<Outcome>, StoreError> {
    let mut places = [None; SHARDS];
    for (place, books) in places.iter_mut().zip(&evidence.shards) {
        *place = Some(MendAt {
            shard: books.shard,
            generation: books.generation,
            mended: books.mended,
            activity: evidence.activity,
        });
    }
    let mut mending = Mending { redis, sql, evidence, places };
    let mut ordered: Vec<_> = differences.iter().enumerate().collect();
    ordered.sort_by_key(|(_, one)| step(&one.remedy));
    let total = u64::try_from(ordered.len()).unwrap_or(u64::MAX);
    let mut outcomes = vec![None; differences.len()];
    for (done, (at, one)) in (0..).zip(ordered) {
        watch.at(Stage::Mending, done, total);
        let outcome = mending.one(one).await?;
        tell(evidence.activity, one, outcome.as_ref());
        if let Some(slot) = outcomes.get_mut(at) {
            *slot = outcome;
        }
    }
    Ok(outcomes)
}

/// A correction is worth a line of the log, whoever reads the report.
fn tell(activity: ActivityId, one: &Difference, outcome: Option<&Result<(), String>>) {
    let (shard, sku) = (one.shard.map(ShardId::number), one.sku.map(|sku| sku.0));
    let (user, order) = (one.user.map(|user| user.0), one.order.map(|order| order.0));
    let became = match outcome {
        Some(Ok(())) => "corrected",
        Some(Err(why)) => why,
        None => "left",
    };
    tracing::info!(
        %activity, shard, sku, user, order, kind = one.kind.name(), units = one.units, became, "a difference"
    );
}

const READ_AGAIN: &str = "its shard has changed since it was read; run it again";

fn done(mended: Mended) -> Result<(), String> {
    match mended {
        Mended::By(_) => Ok(()),
        Mended::ReadAgain => Err(READ_AGAIN.to_owned()),
    }
}

impl Mending<'_> {
    async fn one(&mut self, one: &Difference) -> Result<Outcome, StoreError> {
        let sku = self.key(one.sku.unwrap_or(SkuId(0)));
        if one.remedy == Remedy::CountStock {
            let mended = self.sql.mend_stock(sku).await?;
            return Ok(Some(mended.map(drop).ok_or_else(|| "more is sold than was loaded".to_owned())));
        }
        if one.remedy == Remedy::CountReserve {
            let (_, left) = MySqlStore::new(self.sql.clone()).mend_reserve(sku).await?;
            let more = |left: i64| {
                format!("{left} more are sold than were ever held back; add to the reserve or close orders")
            };
            return Ok(Some(if left == 0 { Ok(()) } else { Err(more(left)) }));
        }
        let Some(shard) = one.shard else { return Ok(None) };
        let Some(at) = self.places.get_mut(shard.index()).and_then(Option::as_mut) else { return Ok(None) };
        Ok(Some(match &one.remedy {
            Remedy::RememberLoad(load) => done(self.redis.mend_load(at, load).await?),
            Remedy::RaiseOut { target, units } => done(self.redis.mend_out(at, sku, *target, *units).await?),
            Remedy::BringIn { source, units } => done(self.redis.mend_in(at, sku, *source, *units).await?),
            Remedy::WriteMark(mark) => {
                let Some(user) = one.user else { return Ok(None) };
                match self.redis.mend_marks(at, &[(user, *mark)]).await? {
                    Mended::By(0) => Err("the user has a live mark by now; run it again".to_owned()),
                    mended => done(mended),
                }
            }
            Remedy::AddUnits(by) => match self.redis.mend_units(at, sku, *by).await? {
                Mended::By(mended) if mended != *by => Err(oversold(by.saturating_sub(mended), sku)),
                mended => done(mended),
            },
            Remedy::AppendRecord => {
                let Some((user, mark)) = self.evidence.mark(one) else { return Ok(None) };
                match self.redis.mend_records(at, &[(user, mark)]).await? {
                    Mended::By(0) => Err("the mark has moved on by now; run it again".to_owned()),
                    mended => done(mended),
                }
            }
            Remedy::TellState(mark) => {
                let Some(user) = one.user else { return Ok(None) };
                match self.redis.settled(shard, at.generation, &[(user, *mark)]).await? {
                    Guarded::Done(()) => Ok(()),
                    Guarded::Gen(_) | Guarded::Recovering => Err(READ_AGAIN.to_owned()),
                }
            }
            Remedy::RestoreOrder | Remedy::OweRelease => {
                let Some((user, mark)) = self.evidence.mark(one) else { return Ok(None) };
                self.in_sql(one, &PlacedOrder { shard, user, mark }).await?
            }
            Remedy::CountStock | Remedy::CountReserve | Remedy::Nothing => return Ok(None),
        }))
    }

    async fn in_sql(&self, one: &Difference, order: &PlacedOrder) -> Result<Result<(), String>, StoreError> {
        let is_done = if one.remedy == Remedy::RestoreOrder {
            self.sql.restore_order(self.evidence.sql.generation, order).await?
        } else {
            self.sql.owe_release(order).await?
        };
        Ok(is_done.then_some(()).ok_or_else(|| {
            let why = match one.kind {
                Kind::MarkWithoutOrder => {
                    "the number or the user has another order by now, or no unit is left"
                }
                _ => "the order is not over by now",
            };
            format!("{why}; run it again")
        }))
    }

    const fn key(&self, sku: SkuId) -> SkuKey {
        SkuKey { activity: self.evidence.activity, sku }
    }
}

fn oversold(missing: i64, sku: SkuKey) -> String {
    let missing = missing.unsigned_abs();
    format!(
        "{missing} of them are sold again, so that SKU {} is oversold by {missing}: rushgate activity stock add {} {} \
         {missing}, then run it again",
        sku.sku, sku.activity, sku.sku
    )
}

impl Evidence {
    /// The mark that a difference is about.
    fn mark(&self, one: &Difference) -> Option<(UserId, Mark)> {
        let user = one.user?;
        let mark = self.shards.get(one.shard?.index())?.marks.get(&user)?;
        let mark = *mark;
        (Some(mark.order) == one.order).then_some((user, mark))
    }
}

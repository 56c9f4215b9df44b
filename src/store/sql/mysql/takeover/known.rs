//! What a takeover, or a way back, would come to, as far as it is known before it. Changes nothing.

use std::collections::BTreeMap;

use sqlx::MySqlConnection;

use super::super::MySqlInstallation;
use super::super::catalog::ActivityState;
use super::super::failure::{Failure, retried};
use super::super::reservation::reserve::read_reserves;
use super::orders::{self, DATABASE, REDIS};
use super::take::{PATIENCE, Told, judge, stock_of};
use super::{TakenSku, TakeoverRefused, records};
use crate::protocol::{ActivityId, SkuId};
use crate::store::StoreError;

/// How an activity stands that may be taken over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outlook {
    /// Whether it is taken over already.
    pub is_taken: bool,
    /// Why it would be refused.
    pub refused: Option<TakeoverRefused>,
    /// What it would come to; of one that is taken over, what that came to.
    pub skus: Vec<TakenSku>,
}

impl MySqlInstallation {
    /// What taking an activity over would come to, with what gateways have told in answer to a look.
    pub async fn takeover_outlook(&self, activity: ActivityId, look: u64) -> Result<Outlook, StoreError> {
        retried!(PATIENCE; self.read_outlook(activity, look))
    }

    /// What giving it back would come to.
    pub async fn give_back_outlook(&self, activity: ActivityId) -> Result<Outlook, StoreError> {
        retried!(PATIENCE; self.read_back_outlook(activity))
    }

    /// Activities that are sold from the shards in this database, by ascending id.
    pub async fn taken_over(&self) -> Result<Vec<ActivityId>, StoreError> {
        retried!(self.options.call_timeout; self.read_taken_over())
    }

    async fn read_taken_over(&self) -> Result<Vec<ActivityId>, Failure> {
        let ids: Vec<u32> = sqlx::query_scalar("SELECT id FROM activities WHERE taken_over = 1 ORDER BY id")
            .fetch_all(&self.pool)
            .await?;
        Ok(ids.into_iter().map(ActivityId).collect())
    }

    async fn read_outlook(&self, activity: ActivityId, look: u64) -> Result<Outlook, Failure> {
        let mut transaction = self.repeatable_read().await?;
        let connection = &mut *transaction;
        let refused = |refused| Outlook { is_taken: false, refused: Some(refused), skus: Vec::new() };
        let outlook = match state(connection, activity).await? {
            None => refused(TakeoverRefused::NoActivity(activity)),
            Some((_, true)) => {
                Outlook { is_taken: true, refused: None, skus: records::last(connection, activity).await? }
            }
            Some((ActivityState::Created, _)) => refused(TakeoverRefused::NotPreheated(activity)),
            Some((ActivityState::Loaded, _)) => {
                let mut skus = stock_of(connection, activity).await?;
                orders::add_up(connection, activity, REDIS, &mut skus).await?;
                judge(connection, Told::Look(look), activity, 0, &mut skus).await?;
                reserve(connection, activity, &mut skus).await?;
                Outlook { is_taken: false, refused: None, skus: skus.into_values().collect() }
            }
            Some(_) => refused(TakeoverRefused::Ended(activity)),
        };
        transaction.rollback().await?;
        Ok(outlook)
    }

    async fn read_back_outlook(&self, activity: ActivityId) -> Result<Outlook, Failure> {
        let mut transaction = self.repeatable_read().await?;
        let connection = &mut *transaction;
        let refused = |is_taken, refused| Outlook { is_taken, refused: Some(refused), skus: Vec::new() };
        let outlook = match state(connection, activity).await? {
            None => refused(false, TakeoverRefused::NoActivity(activity)),
            Some((_, false)) => refused(false, TakeoverRefused::NotTaken(activity)),
            Some((ActivityState::Loaded, _)) => {
                let mut skus = stock_of(connection, activity).await?;
                orders::add_up(connection, activity, DATABASE, &mut skus).await?;
                reserve(connection, activity, &mut skus).await?;
                for of in skus.values_mut() {
                    of.opened = std::mem::take(&mut of.reserve_free);
                    of.total = of.opened.saturating_add(of.unpaid).saturating_add(of.paid);
                }
                Outlook { is_taken: true, refused: None, skus: skus.into_values().collect() }
            }
            Some(_) => refused(true, TakeoverRefused::Ended(activity)),
        };
        transaction.rollback().await?;
        Ok(outlook)
    }
}

async fn state(
    connection: &mut MySqlConnection,
    activity: ActivityId,
) -> Result<Option<(ActivityState, bool)>, Failure> {
    let found: Option<(u8, bool)> = sqlx::query_as("SELECT state, taken_over FROM activities WHERE id = ?")
        .bind(activity.0)
        .fetch_optional(connection)
        .await?;
    found.map(|(state, is_taken)| Ok((ActivityState::of(state)?, is_taken))).transpose()
}

/// What is free in the shards of this database.
async fn reserve(
    connection: &mut MySqlConnection,
    activity: ActivityId,
    skus: &mut BTreeMap<SkuId, TakenSku>,
) -> Result<(), Failure> {
    let mut figures = BTreeMap::new();
    read_reserves(connection, activity, &mut figures).await?;
    for (sku, figures) in figures {
        if let (Some(of), Some(reserve)) = (skus.get_mut(&sku), figures.reserve) {
            of.reserve_free = reserve.free;
        }
    }
    Ok(())
}

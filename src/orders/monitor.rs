//! How far behind the feeds are, and whether Redis and the database answer: looked at every second, for metrics and
//! readiness.

use std::time::Duration;

use super::chore::{Chore, Next};
use super::context::Context;
use crate::stock::calls::ShardId;
use crate::store::StoreError;

/// One look that takes longer is as good as none.
const LOOK_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Monitor;

impl Chore for Monitor {
    const WHAT: &'static str = "looking at how things stand";
    const INTERVAL: Duration = Duration::from_secs(1);

    async fn step(&mut self, context: &Context) -> Result<Next, StoreError> {
        let (redis, sql) = tokio::join!(
            tokio::time::timeout(LOOK_TIMEOUT, look_at_redis(context)),
            tokio::time::timeout(LOOK_TIMEOUT, context.sql.overdue_lag_ms()),
        );
        context.counters.set_redis_answers(matches!(redis, Ok(Ok(()))));
        context.counters.set_sql_answers(matches!(sql, Ok(Ok(_))));
        redis.unwrap_or_else(|_| Err(StoreError::Unavailable("Redis takes too long".to_owned())))?;
        let overdue =
            sql.unwrap_or_else(|_| Err(StoreError::Unavailable("the database takes too long".to_owned())))?;
        context.counters.set_overdue(overdue);
        Ok(Next::Later)
    }
}

async fn look_at_redis(context: &Context) -> Result<(), StoreError> {
    let now = context.redis.time().await?;
    let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
    for shard in ShardId::ALL {
        let backlog = context.redis.backlog(shard).await?;
        context.counters.set_lag(shard, backlog, now_ms);
    }
    Ok(())
}

//! Sessions in Redis: a hash for each, which the shop's login service writes with Redis's own commands.
//!
//! A session lies in the slot of the shard that the first hex digit of its name says, so that a cluster spreads them over
//! its nodes. They belong to no shard: they can be read while shards are recovered.

use redis::Value;

use super::answers::{list, malformed, number, text};
use super::keys::shard_of_session;
use super::shards::RedisShards;
use crate::store::StoreError;
use crate::store::sessions::{SessionEditor, SessionKey, SessionStore, StoredSession};

const FIELDS: [&str; 4] = ["user", "exp", "scope", "claims"];

impl SessionStore for RedisShards {
    async fn session(&self, key: &SessionKey) -> Result<Option<StoredSession>, StoreError> {
        let what = "looking a session up";
        let (shard, name) = (shard_of_session(key), self.inner.keys.session(key));
        let mut command = redis::cmd("HMGET");
        command.arg(&name).arg(&FIELDS);
        let answers = self.run(&self.work(shard, what, vec![command], vec![name])).await?;
        let fields = answers.into_iter().next().and_then(list).unwrap_or_default();
        let fields = <[Value; 4]>::try_from(fields).map_err(|_| malformed(what, shard, "no four fields"))?;
        if fields.iter().all(|field| *field == Value::Nil) {
            return Ok(None);
        }
        let [user, exp, scope, claims] = fields.map(|field| text(field).unwrap_or_default());
        Ok(Some(StoredSession { user, exp, scope, claims }))
    }
}

impl SessionEditor for RedisShards {
    async fn put_session(
        &self,
        key: &SessionKey,
        session: &StoredSession,
        ends_at_s: u64,
    ) -> Result<(), StoreError> {
        let (shard, name) = (shard_of_session(key), self.inner.keys.session(key));
        let mut set = redis::cmd("HSET");
        set.arg(&name);
        let values = [&session.user, &session.exp, &session.scope, &session.claims];
        for (field, value) in FIELDS.iter().zip(values) {
            set.arg(field).arg(value);
        }
        let mut expire = redis::cmd("EXPIREAT");
        expire.arg(&name).arg(ends_at_s);
        let work = self.work(shard, "keeping a session", vec![set, expire], vec![name]);
        self.run(&work).await?;
        Ok(())
    }

    async fn remove_session(&self, key: &SessionKey) -> Result<bool, StoreError> {
        let what = "removing a session";
        let (shard, name) = (shard_of_session(key), self.inner.keys.session(key));
        let mut command = redis::cmd("DEL");
        command.arg(&name);
        let answers = self.run(&self.work(shard, what, vec![command], vec![name])).await?;
        let removed = answers.into_iter().next().and_then(number);
        Ok(removed.ok_or_else(|| malformed(what, shard, "no number"))? > 0)
    }
}

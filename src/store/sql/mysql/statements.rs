//! Statements of many rows in a few fixed sizes, so that a connection prepares each once.
//!
//! None is prepared for one use: the client would send its execution and its closing in two writes without an answer
//! between, and as it leaves Nagle's algorithm on, the next statement would wait 40 ms for a delayed acknowledgement.

use std::sync::LazyLock;

use sqlx::mysql::MySqlArguments;
use sqlx::mysql::MySqlRow;
use sqlx::query::{Query, QueryAs};
use sqlx::{AssertSqlSafe, FromRow, MySql, MySqlConnection};

/// Rows per statement: powers of two, so that any number of rows takes few statements.
const SIZES: [usize; 12] = [2048, 1024, 512, 256, 128, 64, 32, 16, 8, 4, 2, 1];

/// One statement in its fixed sizes.
pub(super) struct Shapes([(usize, std::sync::Arc<str>); SIZES.len()]);

impl Shapes {
    pub(super) fn new(head: &str, row: &str, tail: &str) -> Self {
        Self::joined(head, row, ",", tail)
    }

    pub(super) fn joined(head: &str, row: &str, between: &str, tail: &str) -> Self {
        Self(SIZES.map(|size| (size, format!("{head}{}{tail}", vec![row; size].join(between)).into())))
    }

    /// The smallest size that holds `left` keys, else the greatest.
    fn holding(&self, left: usize) -> Option<(usize, AssertSqlSafe<std::sync::Arc<str>>)> {
        let holds = self.0.iter().rev().find(|(size, _)| *size >= left);
        let (size, sql) = holds.or_else(|| self.0.first())?;
        Some((*size, AssertSqlSafe(std::sync::Arc::clone(sql))))
    }

    /// The greatest size that `left` rows fill.
    fn filled(&self, left: usize) -> Option<(usize, AssertSqlSafe<std::sync::Arc<str>>)> {
        let (size, sql) = self.0.iter().find(|(size, _)| *size <= left)?;
        // Made of literals of this program and `?`, above.
        Some((*size, AssertSqlSafe(std::sync::Arc::clone(sql))))
    }
}

pub(super) type Writing = Query<'static, MySql, MySqlArguments>;

/// Executes a statement for all of some rows, in their order, as few times as the sizes allow.
pub(super) async fn write<R: Sync>(
    connection: &mut MySqlConnection,
    shapes: &'static LazyLock<Shapes>,
    rows: &[R],
    bind: impl Fn(Writing, &R) -> Writing + Send,
) -> Result<(), sqlx::Error> {
    let mut left = rows;
    while let Some((size, sql)) = shapes.filled(left.len()) {
        let (now, later) = left.split_at_checked(size).unwrap_or((left, &[]));
        let query = now.iter().fold(sqlx::query(sql), &bind);
        query.execute(&mut *connection).await?;
        left = later;
    }
    Ok(())
}

pub(super) type Reading<T> = QueryAs<'static, MySql, T, MySqlArguments>;

/// Reads the rows of some keys. The last key fills a statement up, so a row may come twice.
pub(super) async fn read<K: Copy + Sync, T>(
    connection: &mut MySqlConnection,
    shapes: &'static LazyLock<Shapes>,
    keys: &[K],
    bind: impl Fn(Reading<T>, K) -> Reading<T> + Send,
) -> Result<Vec<T>, sqlx::Error>
where
    T: for<'r> FromRow<'r, MySqlRow> + Send + Unpin,
{
    read_with(connection, shapes, keys, bind, |query| query).await
}

/// The same for a statement that has more to bind after its keys.
pub(super) async fn read_with<K: Copy + Sync, T>(
    connection: &mut MySqlConnection,
    shapes: &'static LazyLock<Shapes>,
    keys: &[K],
    bind: impl Fn(Reading<T>, K) -> Reading<T> + Send,
    bind_rest: impl Fn(Reading<T>) -> Reading<T> + Send,
) -> Result<Vec<T>, sqlx::Error>
where
    T: for<'r> FromRow<'r, MySqlRow> + Send + Unpin,
{
    let mut rows = Vec::new();
    let mut left = keys;
    while let Some(last) = left.last().copied() {
        let Some((size, sql)) = shapes.holding(left.len()) else { break };
        let (now, later) = left.split_at_checked(size).unwrap_or((left, &[]));
        let mut query = now.iter().fold(sqlx::query_as(sql), |query, key| bind(query, *key));
        for _ in now.len()..size {
            query = bind(query, last);
        }
        rows.append(&mut bind_rest(query).fetch_all(&mut *connection).await?);
        left = later;
    }
    Ok(rows)
}

/// Executes a statement for some keys, as `IN (…)`. The last key fills a statement up.
pub(super) async fn execute_among(
    connection: &mut MySqlConnection,
    shapes: &'static LazyLock<Shapes>,
    keys: &[u64],
) -> Result<(), sqlx::Error> {
    execute_among_with(connection, shapes, keys, |query| query).await
}

/// The same for a statement that has more to bind before its keys.
pub(super) async fn execute_among_with(
    connection: &mut MySqlConnection,
    shapes: &'static LazyLock<Shapes>,
    keys: &[u64],
    bind_first: impl Fn(Writing) -> Writing + Send,
) -> Result<(), sqlx::Error> {
    let mut left = keys;
    while let Some(last) = left.last().copied() {
        let Some((size, sql)) = shapes.holding(left.len()) else { break };
        let (now, later) = left.split_at_checked(size).unwrap_or((left, &[]));
        let mut query = now.iter().fold(bind_first(sqlx::query(sql)), |query, key| query.bind(*key));
        for _ in now.len()..size {
            query = query.bind(last);
        }
        query.execute(&mut *connection).await?;
        left = later;
    }
    Ok(())
}

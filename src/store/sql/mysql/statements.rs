//! Statements of many rows in a few fixed sizes, so that a connection prepares each once.

use std::sync::LazyLock;

use sqlx::mysql::MySqlArguments;
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, MySql, MySqlConnection};

/// Rows per statement: powers of two, so that any number of rows takes few statements.
const SIZES: [usize; 12] = [2048, 1024, 512, 256, 128, 64, 32, 16, 8, 4, 2, 1];

/// One INSERT in its fixed sizes.
pub(super) struct Shapes([(usize, std::sync::Arc<str>); SIZES.len()]);

impl Shapes {
    pub(super) fn new(head: &str, row: &str, tail: &str) -> Self {
        Self(SIZES.map(|size| (size, format!("{head}{}{tail}", vec![row; size].join(",")).into())))
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

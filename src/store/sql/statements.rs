//! Statements of a few fixed sizes, so that each is prepared once: many rows are read or written by few of them.
//!
//! Knows no table. Run inside a caller's transaction.

use sqlx::query::{Query, QueryAs};
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{FromRow, Sqlite, SqliteConnection};

/// Rows per statement.
const SIZES: &[usize] = &[256, 64, 16, 4, 1];
/// For a statement of which a transaction writes thousands of rows: few statements whatever their number.
const SIZES_OF_MANY: &[usize] = &[1024, 512, 256, 128, 64, 32, 16, 8, 4, 2, 1];

/// One statement in its fixed sizes, the greatest first.
#[derive(Debug)]
pub(super) struct Shapes(Vec<(usize, String)>);

impl Shapes {
    pub(super) fn new(head: &str, row: &str, tail: &str) -> Self {
        Self::in_sizes(SIZES, head, row, tail)
    }

    pub(super) fn of_many(head: &str, row: &str, tail: &str) -> Self {
        Self::in_sizes(SIZES_OF_MANY, head, row, tail)
    }

    fn in_sizes(sizes: &[usize], head: &str, row: &str, tail: &str) -> Self {
        let shape = |size: &usize| (*size, format!("{head}{}{tail}", vec![row; *size].join(",")));
        Self(sizes.iter().map(shape).collect())
    }

    /// For writing: the greatest size that `left` rows fill.
    fn filled(&self, left: usize) -> (usize, &str) {
        let fits = self.0.iter().find(|(size, _)| *size <= left);
        fits.map_or((0, ""), |(size, sql)| (*size, sql))
    }

    /// For reading: the smallest size that holds `left` keys, else the greatest.
    fn holding(&self, left: usize) -> (usize, &str) {
        let holds = self.0.iter().rev().find(|(size, _)| *size >= left);
        holds.or_else(|| self.0.first()).map_or((0, ""), |(size, sql)| (*size, sql))
    }
}

pub(super) type Reading<T> = QueryAs<'static, Sqlite, T, SqliteArguments>;
pub(super) type Writing = Query<'static, Sqlite, SqliteArguments>;

pub(super) async fn read<K: Copy + Sync, T>(
    connection: &mut SqliteConnection,
    shapes: &'static Shapes,
    keys: &[K],
    bind: impl Fn(Reading<T>, K) -> Reading<T> + Send,
) -> Result<Vec<T>, sqlx::Error>
where
    T: for<'r> FromRow<'r, SqliteRow> + Send + Unpin,
{
    let mut rows = Vec::new();
    let mut left = keys;
    while let Some(last) = left.last().copied() {
        let (size, sql) = shapes.holding(left.len());
        let (now, later) = left.split_at_checked(size).unwrap_or((left, &[]));
        let mut query = sqlx::query_as(sql);
        for key in now {
            query = bind(query, *key);
        }
        // A repeated key gives its row twice, which the maps the rows go into do not mind.
        for _ in now.len()..size {
            query = bind(query, last);
        }
        rows.append(&mut query.fetch_all(&mut *connection).await?);
        left = later;
    }
    Ok(rows)
}

pub(super) async fn write<R: Sync>(
    connection: &mut SqliteConnection,
    shapes: &'static Shapes,
    rows: &[R],
    bind: impl Fn(Writing, &R) -> Writing + Send,
) -> Result<(), sqlx::Error> {
    write_with(connection, shapes, rows, bind, |query| query).await
}

/// `finish` binds what comes once, after the rows.
pub(super) async fn write_with<R: Sync>(
    connection: &mut SqliteConnection,
    shapes: &'static Shapes,
    rows: &[R],
    bind: impl Fn(Writing, &R) -> Writing + Send,
    finish: impl Fn(Writing) -> Writing + Send,
) -> Result<(), sqlx::Error> {
    let mut left = rows;
    while !left.is_empty() {
        let (size, sql) = shapes.filled(left.len());
        let (now, later) = left.split_at_checked(size).unwrap_or((left, &[]));
        let query = now.iter().fold(sqlx::query(sql), &bind);
        finish(query).execute(&mut *connection).await?;
        left = later;
    }
    Ok(())
}

/// A value for a signed column. What is stored is checked to be below 2⁶³ before it gets here; a key that is
/// only looked for and is greater matches no row.
pub(super) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

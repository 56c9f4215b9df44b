-- Sessions, by the SHA-256 of their token: who reads this cannot use what he finds. Fields are texts, as in Redis.
CREATE TABLE sessions (
    token_sha256 BLOB    NOT NULL PRIMARY KEY CHECK (length(token_sha256) = 32),
    user         TEXT    NOT NULL,
    exp          TEXT    NOT NULL,
    scope        TEXT    NOT NULL,
    claims       TEXT    NOT NULL,
    ends_at_s    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX sessions_by_end ON sessions (ends_at_s);

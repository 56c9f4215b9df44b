-- Switches that operators set, and their last changes. A version is greater than every one before it: Unix milliseconds,
-- or the next number where the clock did not move on.

CREATE TABLE switches (
    name    TEXT    NOT NULL PRIMARY KEY,
    value   TEXT    NOT NULL,
    version INTEGER NOT NULL,
    at_ms   INTEGER NOT NULL,
    who     TEXT    NOT NULL,
    why     TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

-- The newest is never deleted: the next version is greater than its.
CREATE TABLE switch_changes (
    version INTEGER NOT NULL PRIMARY KEY,
    name    TEXT    NOT NULL,
    value   TEXT    NOT NULL,
    at_ms   INTEGER NOT NULL,
    who     TEXT    NOT NULL,
    why     TEXT    NOT NULL
) STRICT;

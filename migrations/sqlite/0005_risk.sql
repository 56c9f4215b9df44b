-- Risk lists, and their last changes, one step at a time. A version is greater than every one before it: Unix
-- milliseconds, or the next number where the clock did not move on.

CREATE TABLE risk_entries (
    subject  TEXT    NOT NULL PRIMARY KEY,
    effect   TEXT    NOT NULL,
    -- Unix milliseconds; 0 = for good.
    until_ms INTEGER NOT NULL,
    at_ms    INTEGER NOT NULL,
    who      TEXT    NOT NULL,
    why      TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX risk_entries_passing ON risk_entries (until_ms) WHERE until_ms > 0;

-- The newest is never deleted: the next version is greater than its.
CREATE TABLE risk_changes (
    version  INTEGER NOT NULL,
    nth      INTEGER NOT NULL,
    -- The version of the step before this one.
    before   INTEGER NOT NULL,
    subject  TEXT    NOT NULL,
    -- Empty: it was taken off.
    effect   TEXT    NOT NULL,
    until_ms INTEGER NOT NULL,
    PRIMARY KEY (version, nth)
) STRICT, WITHOUT ROWID;

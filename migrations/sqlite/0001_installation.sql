-- The first schema of the embedded store.
--
-- A user's shard is a function of the user id, so (shard, activity, user) names one user's order in one
-- activity and everything of a shard lies together. Times are Unix milliseconds.

-- One row: the generation (raised at every start of the serving process) and a counter that every operator's
-- write raises, so that a serving process notices what another process changed.
CREATE TABLE installation (
    id              INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    gen             INTEGER NOT NULL,
    catalog_version INTEGER NOT NULL
) STRICT;
INSERT INTO installation (id, gen, catalog_version) VALUES (1, 0, 0);

-- Events appended to each shard's feed in this generation.
CREATE TABLE shards (
    shard INTEGER NOT NULL PRIMARY KEY CHECK (shard BETWEEN 0 AND 15),
    seq   INTEGER NOT NULL
) STRICT;
INSERT INTO shards (shard, seq) VALUES
    (0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (5, 0), (6, 0), (7, 0),
    (8, 0), (9, 0), (10, 0), (11, 0), (12, 0), (13, 0), (14, 0), (15, 0);

-- One row per process start; AUTOINCREMENT never gives a number twice.
CREATE TABLE processes (
    number        INTEGER PRIMARY KEY AUTOINCREMENT,
    started_at_ms INTEGER NOT NULL
) STRICT;

-- The last call of each process to each shard, with its whole reply.
CREATE TABLE calls (
    process INTEGER NOT NULL,
    shard   INTEGER NOT NULL,
    number  INTEGER NOT NULL,
    reply   BLOB    NOT NULL,
    at_ms   INTEGER NOT NULL,
    PRIMARY KEY (process, shard)
) STRICT, WITHOUT ROWID;

CREATE TABLE activities (
    id             INTEGER NOT NULL PRIMARY KEY CHECK (id BETWEEN 1 AND 4294967295),
    name           TEXT    NOT NULL,
    -- 1 created, 2 loaded, 3 ending, 4 archived; only forward.
    state          INTEGER NOT NULL CHECK (state BETWEEN 1 AND 4),
    entry_open     INTEGER NOT NULL CHECK (entry_open IN (0, 1)),
    opens_at_ms    INTEGER NOT NULL,
    closes_at_ms   INTEGER NOT NULL CHECK (closes_at_ms > opens_at_ms),
    per_user_limit INTEGER NOT NULL CHECK (per_user_limit BETWEEN 1 AND 65535),
    pay_within_ms  INTEGER NOT NULL CHECK (pay_within_ms > 0),
    created_at_ms  INTEGER NOT NULL
) STRICT;

CREATE TABLE skus (
    activity    INTEGER NOT NULL REFERENCES activities (id),
    sku         INTEGER NOT NULL CHECK (sku BETWEEN 1 AND 65535),
    name        TEXT    NOT NULL,
    price_minor INTEGER NOT NULL CHECK (price_minor >= 0),
    PRIMARY KEY (activity, sku)
) STRICT, WITHOUT ROWID;

-- Additions and removals of stock: written first by the operator, applied once by whoever serves.
CREATE TABLE loads (
    ordinal       INTEGER PRIMARY KEY AUTOINCREMENT,
    id            TEXT    NOT NULL UNIQUE,
    activity      INTEGER NOT NULL,
    sku           INTEGER NOT NULL,
    -- 1 add, 2 take (only what is free).
    kind          INTEGER NOT NULL CHECK (kind IN (1, 2)),
    amount        INTEGER NOT NULL CHECK (amount > 0),
    -- 1 pending, 2 done.
    state         INTEGER NOT NULL CHECK (state IN (1, 2)),
    -- Units really added or taken, and how they fell on the 16 shards (a JSON array).
    applied       INTEGER NOT NULL DEFAULT 0 CHECK (applied BETWEEN 0 AND amount),
    amounts       TEXT,
    created_at_ms INTEGER NOT NULL,
    done_at_ms    INTEGER,
    FOREIGN KEY (activity, sku) REFERENCES skus (activity, sku)
) STRICT;
CREATE INDEX loads_pending ON loads (ordinal) WHERE state = 1;
CREATE INDEX loads_sku ON loads (activity, sku);

-- Free units, 16 rows per loaded SKU. An absent row means "not loaded", never zero. The CHECK is the last
-- line of defence against overselling: a transaction that would sell what is not there fails as a whole.
CREATE TABLE stock (
    shard    INTEGER NOT NULL CHECK (shard BETWEEN 0 AND 15),
    activity INTEGER NOT NULL,
    sku      INTEGER NOT NULL,
    free     INTEGER NOT NULL CHECK (free BETWEEN 0 AND 4294967295),
    PRIMARY KEY (shard, activity, sku),
    FOREIGN KEY (activity, sku) REFERENCES skus (activity, sku)
) STRICT, WITHOUT ROWID;

-- Cumulative units between shards: `moved_out` from shard to peer, `brought_in` to shard from peer.
CREATE TABLE transfers (
    shard      INTEGER NOT NULL,
    activity   INTEGER NOT NULL,
    sku        INTEGER NOT NULL,
    peer       INTEGER NOT NULL CHECK (peer BETWEEN 0 AND 15 AND peer <> shard),
    moved_out  INTEGER NOT NULL CHECK (moved_out >= 0),
    brought_in INTEGER NOT NULL CHECK (brought_in >= 0),
    PRIMARY KEY (shard, activity, sku, peer)
) STRICT, WITHOUT ROWID;

-- The orders; in this store an order row is the user's mark as well. Clustered by shard, so that one user's
-- order is one seek and a shard's snapshot one scan; as the shard follows from the user, the key says:
-- one order per user, activity and attempt.
CREATE TABLE orders (
    shard         INTEGER NOT NULL CHECK (shard BETWEEN 0 AND 15),
    activity      INTEGER NOT NULL,
    user          INTEGER NOT NULL CHECK (user > 0),
    attempt       INTEGER NOT NULL CHECK (attempt BETWEEN 1 AND 255),
    number        INTEGER NOT NULL CHECK (number > 0),
    sku           INTEGER NOT NULL,
    quantity      INTEGER NOT NULL CHECK (quantity BETWEEN 1 AND 65535),
    -- As on the wire: 1 reserved, 2 pending payment, 3 paid, 4 closed, 5 failed, 6 refund due, 7 recorded.
    state         INTEGER NOT NULL CHECK (state BETWEEN 1 AND 7),
    pay_by_ms     INTEGER NOT NULL,
    created_at_ms INTEGER NOT NULL,
    PRIMARY KEY (shard, activity, user, attempt)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX orders_number ON orders (number);
CREATE UNIQUE INDEX orders_live ON orders (activity, user) WHERE state IN (1, 2, 3, 7);

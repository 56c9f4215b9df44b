-- The reservation store of its own, for when Redis is gone: 16 rows per SKU, apart from what Redis sells.
--
-- The orders themselves are rows of `orders` with source 2, so that a user has one live order whoever sold it.

-- The lock of a shard, and events appended to its feed in a generation; of an older one: none in this.
CREATE TABLE sql_shards (
    shard TINYINT UNSIGNED NOT NULL PRIMARY KEY CHECK (shard < 16),
    gen   BIGINT UNSIGNED  NOT NULL,
    seq   BIGINT UNSIGNED  NOT NULL
) ENGINE = InnoDB;
INSERT INTO sql_shards (shard, gen, seq) VALUES
    (0, 0, 0), (1, 0, 0), (2, 0, 0), (3, 0, 0), (4, 0, 0), (5, 0, 0), (6, 0, 0), (7, 0, 0),
    (8, 0, 0), (9, 0, 0), (10, 0, 0), (11, 0, 0), (12, 0, 0), (13, 0, 0), (14, 0, 0), (15, 0, 0);

-- Free units. An absent row means "not loaded", never zero; the unsigned column refuses to sell what is not there.
CREATE TABLE sql_stock (
    shard    TINYINT UNSIGNED  NOT NULL,
    activity INT UNSIGNED      NOT NULL,
    sku      SMALLINT UNSIGNED NOT NULL,
    free     INT UNSIGNED      NOT NULL,
    PRIMARY KEY (shard, activity, sku),
    FOREIGN KEY (activity, sku) REFERENCES skus (activity, sku)
) ENGINE = InnoDB;

-- Cumulative units between shards: `moved_out` from shard to peer, `brought_in` to shard from peer.
CREATE TABLE sql_transfers (
    shard      TINYINT UNSIGNED  NOT NULL,
    activity   INT UNSIGNED      NOT NULL,
    sku        SMALLINT UNSIGNED NOT NULL,
    peer       TINYINT UNSIGNED  NOT NULL CHECK (peer < 16),
    moved_out  BIGINT UNSIGNED   NOT NULL,
    brought_in BIGINT UNSIGNED   NOT NULL,
    PRIMARY KEY (shard, activity, sku, peer)
) ENGINE = InnoDB;

-- The last call of each process to each shard, with its whole reply.
CREATE TABLE sql_calls (
    process INT UNSIGNED     NOT NULL,
    shard   TINYINT UNSIGNED NOT NULL,
    number  BIGINT UNSIGNED  NOT NULL,
    reply   MEDIUMBLOB       NOT NULL,
    at_ms   BIGINT UNSIGNED  NOT NULL,
    PRIMARY KEY (process, shard)
) ENGINE = InnoDB;

-- Which orders are marks of a shard: a snapshot is one range of it.
CREATE TABLE sql_marks (
    shard    TINYINT UNSIGNED NOT NULL,
    activity INT UNSIGNED     NOT NULL,
    user     BIGINT UNSIGNED  NOT NULL,
    attempt  TINYINT UNSIGNED NOT NULL,
    number   BIGINT UNSIGNED  NOT NULL,
    PRIMARY KEY (shard, activity, user, attempt)
) ENGINE = InnoDB;

-- The events of the shards, as many as readers that lag may need.
CREATE TABLE sql_feed (
    shard TINYINT UNSIGNED NOT NULL,
    gen   BIGINT UNSIGNED  NOT NULL,
    seq   BIGINT UNSIGNED  NOT NULL,
    body  MEDIUMBLOB       NOT NULL,
    PRIMARY KEY (shard, gen, seq)
) ENGINE = InnoDB;

-- Additions and removals of this store's stock, each applied in the one transaction that marks it done.
CREATE TABLE sql_loads (
    ordinal       BIGINT UNSIGNED   NOT NULL AUTO_INCREMENT PRIMARY KEY,
    activity      INT UNSIGNED      NOT NULL,
    sku           SMALLINT UNSIGNED NOT NULL,
    -- 1 add, 2 take (only what is free).
    kind          TINYINT UNSIGNED  NOT NULL CHECK (kind IN (1, 2)),
    amount        INT UNSIGNED      NOT NULL,
    -- 1 pending, 2 done.
    state         TINYINT UNSIGNED  NOT NULL CHECK (state IN (1, 2)),
    applied       INT UNSIGNED      NOT NULL,
    -- How the applied units fell on the 16 shards, separated by commas.
    amounts       VARCHAR(200)      NOT NULL,
    created_at_ms BIGINT UNSIGNED   NOT NULL,
    done_at_ms    BIGINT UNSIGNED   NULL,
    KEY sql_loads_state (state, ordinal),
    KEY sql_loads_sku (activity, sku),
    CHECK (applied <= amount),
    FOREIGN KEY (activity, sku) REFERENCES skus (activity, sku)
) ENGINE = InnoDB;

-- Activities that are sold from the database because Redis and its data are gone (rule 20 of the stock protocol).

-- Shards of an older generation are rebuilt, never adopted, and entries of an older generation are settled with care.
ALTER TABLE installation ADD COLUMN rebuild_below BIGINT UNSIGNED NOT NULL DEFAULT 0;

ALTER TABLE activities
    -- Whether the shards in this database sell it, and hold its orders, and no shard of Redis does.
    ADD COLUMN taken_over  TINYINT(1)      NOT NULL DEFAULT 0,
    -- The generation of its last takeover, for ever: what Redis has of it from before that counts for nothing.
    ADD COLUMN taken_gen   BIGINT UNSIGNED NOT NULL DEFAULT 0,
    -- The ordinal of its last load that was taken over: no shard has to know it, or an earlier one, any more.
    ADD COLUMN taken_loads BIGINT UNSIGNED NOT NULL DEFAULT 0;

-- What takeovers and ways back came to, a row per SKU; units, but for the orders that failed.
CREATE TABLE takeovers (
    activity      INT UNSIGNED      NOT NULL,
    sku           SMALLINT UNSIGNED NOT NULL,
    gen           BIGINT UNSIGNED   NOT NULL,
    -- 1 taken over, 2 given back to Redis.
    kind          TINYINT UNSIGNED  NOT NULL CHECK (kind IN (1, 2)),
    at_ms         BIGINT UNSIGNED   NOT NULL,
    total         BIGINT UNSIGNED   NOT NULL,
    unpaid        BIGINT UNSIGNED   NOT NULL,
    paid          BIGINT UNSIGNED   NOT NULL,
    closed        BIGINT UNSIGNED   NOT NULL,
    handed_in     BIGINT UNSIGNED   NOT NULL,
    failed_orders BIGINT UNSIGNED   NOT NULL,
    reserve_free  BIGINT UNSIGNED   NOT NULL,
    opened        BIGINT UNSIGNED   NOT NULL,
    PRIMARY KEY (activity, sku, gen)
) ENGINE = InnoDB;

-- Questions what gateways know that is not settled yet, asked before a takeover, and their answers. They change nothing.
CREATE TABLE takeover_looks (
    id    BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
    at_ms BIGINT UNSIGNED NOT NULL
) ENGINE = InnoDB;
CREATE TABLE takeover_look_answers (
    look    BIGINT UNSIGNED NOT NULL,
    process INT UNSIGNED    NOT NULL,
    PRIMARY KEY (look, process)
) ENGINE = InnoDB;
CREATE TABLE takeover_look_marks (
    look     BIGINT UNSIGNED   NOT NULL,
    number   BIGINT UNSIGNED   NOT NULL,
    user     BIGINT UNSIGNED   NOT NULL,
    activity INT UNSIGNED      NOT NULL,
    sku      SMALLINT UNSIGNED NOT NULL,
    quantity SMALLINT UNSIGNED NOT NULL,
    attempt  TINYINT UNSIGNED  NOT NULL,
    PRIMARY KEY (look, number, user)
) ENGINE = InnoDB;

-- The first schema of the production form, for MariaDB 10.6 or newer and MySQL 8.
--
-- Times are Unix milliseconds of the database's own clock. A user's shard is a function of the user id and stored
-- beside it, so that what concerns one shard can be asked for. Generated columns are STORED, because unique keys
-- over virtual ones have a history of faults.

-- One row: the number of the last recovery. Whoever writes what a recovery may write off locks it for sharing.
CREATE TABLE installation (
    id  TINYINT UNSIGNED NOT NULL PRIMARY KEY CHECK (id = 1),
    gen BIGINT UNSIGNED  NOT NULL
) ENGINE = InnoDB;
INSERT INTO installation (id, gen) VALUES (1, 0);

-- One row: raised by every change that an operator makes. Not in `installation`, whose row settlements lock.
CREATE TABLE catalog (
    id      TINYINT UNSIGNED NOT NULL PRIMARY KEY CHECK (id = 1),
    version BIGINT UNSIGNED  NOT NULL
) ENGINE = InnoDB;
INSERT INTO catalog (id, version) VALUES (1, 0);

-- One row per process start, never deleted, so that no number is given twice.
CREATE TABLE processes (
    number        INT UNSIGNED     NOT NULL AUTO_INCREMENT PRIMARY KEY,
    -- 1 gateway, 2 writer.
    kind          TINYINT UNSIGNED NOT NULL CHECK (kind IN (1, 2)),
    started_at_ms BIGINT UNSIGNED  NOT NULL,
    heartbeat_ms  BIGINT UNSIGNED  NOT NULL,
    ended_at_ms   BIGINT UNSIGNED  NULL,
    KEY processes_heartbeat (heartbeat_ms)
) ENGINE = InnoDB;

CREATE TABLE activities (
    id             INT UNSIGNED      NOT NULL PRIMARY KEY CHECK (id > 0),
    name           VARCHAR(255)      NOT NULL,
    -- 1 created, 2 loaded, 3 ending, 4 archived; only forward.
    state          TINYINT UNSIGNED  NOT NULL CHECK (state BETWEEN 1 AND 4),
    entry_open     TINYINT(1)        NOT NULL,
    opens_at_ms    BIGINT UNSIGNED   NOT NULL,
    closes_at_ms   BIGINT UNSIGNED   NOT NULL,
    per_user_limit SMALLINT UNSIGNED NOT NULL CHECK (per_user_limit > 0),
    -- Never changed: writers keep it in memory.
    pay_within_ms  BIGINT UNSIGNED   NOT NULL CHECK (pay_within_ms > 0),
    created_at_ms  BIGINT UNSIGNED   NOT NULL,
    CHECK (closes_at_ms > opens_at_ms)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;

CREATE TABLE skus (
    activity      INT UNSIGNED      NOT NULL,
    sku           SMALLINT UNSIGNED NOT NULL CHECK (sku > 0),
    name          VARCHAR(255)      NOT NULL,
    price_minor   BIGINT UNSIGNED   NOT NULL,
    -- What the preheat loads.
    planned_stock INT UNSIGNED      NOT NULL,
    PRIMARY KEY (activity, sku),
    FOREIGN KEY (activity) REFERENCES activities (id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;

-- Stock as SQL counts it: available = additions written - units taken - units of settled orders that hold them.
-- An unsigned column is the last line of defence against overselling. `version` rises with every change.
CREATE TABLE sku_stock (
    activity  INT UNSIGNED      NOT NULL,
    sku       SMALLINT UNSIGNED NOT NULL,
    available INT UNSIGNED      NOT NULL,
    sold      INT UNSIGNED      NOT NULL,
    version   BIGINT UNSIGNED   NOT NULL,
    PRIMARY KEY (activity, sku),
    FOREIGN KEY (activity, sku) REFERENCES skus (activity, sku)
) ENGINE = InnoDB;

-- Additions and removals of stock: rows first, then driven by any writer until done.
CREATE TABLE loads (
    ordinal       BIGINT UNSIGNED   NOT NULL AUTO_INCREMENT PRIMARY KEY,
    id            VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    -- Under which Redis is told, with the round; loads of one activity that share it go to a shard in one call.
    call_id       VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    activity      INT UNSIGNED      NOT NULL,
    sku           SMALLINT UNSIGNED NOT NULL,
    -- 1 add, 2 take (only what is free).
    kind          TINYINT UNSIGNED  NOT NULL CHECK (kind IN (1, 2)),
    amount        INT UNSIGNED      NOT NULL,
    -- 1 pending, 2 done.
    state         TINYINT UNSIGNED  NOT NULL CHECK (state IN (1, 2)),
    -- Units that count: all of an addition from its first row on, of a take what the shards gave so far.
    applied       INT UNSIGNED      NOT NULL,
    created_at_ms BIGINT UNSIGNED   NOT NULL,
    done_at_ms    BIGINT UNSIGNED   NULL,
    UNIQUE KEY loads_id (id),
    KEY loads_call (call_id),
    KEY loads_sku (activity, sku),
    KEY loads_state (state, ordinal),
    FOREIGN KEY (activity, sku) REFERENCES skus (activity, sku)
) ENGINE = InnoDB;

-- A load's share of each shard. A take that some shard could give more of gets another round, under another id.
CREATE TABLE load_shards (
    ordinal  BIGINT UNSIGNED   NOT NULL,
    round    SMALLINT UNSIGNED NOT NULL,
    shard    TINYINT UNSIGNED  NOT NULL CHECK (shard < 16),
    wanted   INT UNSIGNED      NOT NULL,
    -- What the shard really added or gave; NULL until it is known.
    applied  INT UNSIGNED      NULL,
    PRIMARY KEY (ordinal, round, shard),
    CHECK (applied <= wanted),
    FOREIGN KEY (ordinal) REFERENCES loads (ordinal)
) ENGINE = InnoDB;

-- One row per order number that was settled, or failed.
CREATE TABLE orders (
    number        BIGINT UNSIGNED   NOT NULL PRIMARY KEY,
    activity      INT UNSIGNED      NOT NULL,
    user          BIGINT UNSIGNED   NOT NULL CHECK (user > 0),
    attempt       TINYINT UNSIGNED  NOT NULL CHECK (attempt > 0),
    sku           SMALLINT UNSIGNED NOT NULL,
    quantity      SMALLINT UNSIGNED NOT NULL CHECK (quantity > 0),
    -- As on the wire: 1 reserved, 2 pending payment, 3 paid, 4 closed, 5 failed, 6 refund due, 7 recorded.
    state         TINYINT UNSIGNED  NOT NULL CHECK (state BETWEEN 1 AND 7),
    -- Where its units are from: 1 the shards in Redis, 2 the shards in this database. Attempts are numbered apart.
    source        TINYINT UNSIGNED  NOT NULL CHECK (source IN (1, 2)),
    shard         TINYINT UNSIGNED  NOT NULL CHECK (shard < 16),
    pay_by_ms     BIGINT UNSIGNED   NOT NULL,
    created_at_ms BIGINT UNSIGNED   NOT NULL,
    -- Set while the order stands in the way of another: any that holds units; and, of its attempt, any but a failed.
    live          TINYINT UNSIGNED  GENERATED ALWAYS AS (CASE WHEN state IN (1, 2, 3, 7) THEN 1 END) STORED,
    held_attempt  TINYINT UNSIGNED  GENERATED ALWAYS AS (CASE WHEN state <> 5 THEN attempt END) STORED,
    UNIQUE KEY orders_attempt (activity, user, source, held_attempt),
    UNIQUE KEY orders_live (activity, user, live),
    KEY orders_expiry (state, pay_by_ms)
) ENGINE = InnoDB;

-- What happened to an order after its row came to be.
CREATE TABLE order_history (
    id     BIGINT UNSIGNED  NOT NULL AUTO_INCREMENT PRIMARY KEY,
    number BIGINT UNSIGNED  NOT NULL,
    state  TINYINT UNSIGNED NOT NULL,
    reason VARCHAR(255)     NOT NULL,
    at_ms  BIGINT UNSIGNED  NOT NULL,
    KEY order_history_number (number)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;

-- Units that go back to Redis, one row per order number; the user is in the key only because two users may
-- collide under one number. Written with the order's final state, driven until done by any writer. A row says all
-- of the mark it releases, because an order that SQL refused has no other row.
CREATE TABLE ledger (
    number        BIGINT UNSIGNED   NOT NULL,
    user          BIGINT UNSIGNED   NOT NULL,
    id            BIGINT UNSIGNED   NOT NULL AUTO_INCREMENT,
    activity      INT UNSIGNED      NOT NULL,
    sku           SMALLINT UNSIGNED NOT NULL,
    quantity      SMALLINT UNSIGNED NOT NULL,
    attempt       TINYINT UNSIGNED  NOT NULL,
    -- 4 closed, 5 failed.
    state         TINYINT UNSIGNED  NOT NULL CHECK (state IN (4, 5)),
    shard         TINYINT UNSIGNED  NOT NULL CHECK (shard < 16),
    done          TINYINT(1)        NOT NULL,
    created_at_ms BIGINT UNSIGNED   NOT NULL,
    done_at_ms    BIGINT UNSIGNED   NULL,
    PRIMARY KEY (number, user),
    UNIQUE KEY ledger_id (id),
    KEY ledger_due (done, id)
) ENGINE = InnoDB;

-- States that Redis has to learn (paid, and what follows it), driven until done by any writer.
CREATE TABLE outbox (
    id            BIGINT UNSIGNED   NOT NULL AUTO_INCREMENT PRIMARY KEY,
    number        BIGINT UNSIGNED   NOT NULL,
    state         TINYINT UNSIGNED  NOT NULL,
    done          TINYINT(1)        NOT NULL,
    created_at_ms BIGINT UNSIGNED   NOT NULL,
    done_at_ms    BIGINT UNSIGNED   NULL,
    UNIQUE KEY outbox_number (number, state),
    KEY outbox_due (done, id)
) ENGINE = InnoDB;

-- Feed entries, or reservations in them, that could not be settled.
CREATE TABLE dead_letters (
    id       BIGINT UNSIGNED   NOT NULL AUTO_INCREMENT PRIMARY KEY,
    shard    TINYINT UNSIGNED  NOT NULL,
    gen      BIGINT UNSIGNED   NOT NULL,
    seq      BIGINT UNSIGNED   NOT NULL,
    -- 0 where the entry itself could not be read.
    number   BIGINT UNSIGNED   NOT NULL,
    user     BIGINT UNSIGNED   NOT NULL,
    activity INT UNSIGNED      NOT NULL,
    sku      SMALLINT UNSIGNED NOT NULL,
    quantity SMALLINT UNSIGNED NOT NULL,
    attempt  TINYINT UNSIGNED  NOT NULL,
    reason   VARCHAR(1000)     NOT NULL,
    at_ms    BIGINT UNSIGNED   NOT NULL,
    UNIQUE KEY dead_letters_entry (shard, gen, seq, number, user)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;

-- One row per generation that a leader began.
CREATE TABLE recoveries (
    gen           BIGINT UNSIGNED   NOT NULL PRIMARY KEY,
    -- Bit n: shard n is recovered.
    closed        SMALLINT UNSIGNED NOT NULL,
    -- 1 gateways hand in, 2 what they handed in is being read and the shards are rebuilt, 3 done; only forward.
    state         TINYINT UNSIGNED  NOT NULL CHECK (state IN (1, 2, 3)),
    started_at_ms BIGINT UNSIGNED   NOT NULL,
    done_at_ms    BIGINT UNSIGNED   NULL
) ENGINE = InnoDB;

-- The generation of each shard's last completed recovery.
CREATE TABLE rebuilt_shards (
    shard TINYINT UNSIGNED NOT NULL PRIMARY KEY CHECK (shard < 16),
    gen   BIGINT UNSIGNED  NOT NULL
) ENGINE = InnoDB;
INSERT INTO rebuilt_shards (shard, gen) VALUES
    (0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (5, 0), (6, 0), (7, 0),
    (8, 0), (9, 0), (10, 0), (11, 0), (12, 0), (13, 0), (14, 0), (15, 0);

-- Gateways that have handed in what they know for a recovery, and the marks they handed in.
CREATE TABLE hand_ins (
    gen     BIGINT UNSIGNED NOT NULL,
    process INT UNSIGNED    NOT NULL,
    at_ms   BIGINT UNSIGNED NOT NULL,
    PRIMARY KEY (gen, process)
) ENGINE = InnoDB;
CREATE TABLE hand_in_marks (
    gen       BIGINT UNSIGNED   NOT NULL,
    process   INT UNSIGNED      NOT NULL,
    activity  INT UNSIGNED      NOT NULL,
    user      BIGINT UNSIGNED   NOT NULL,
    number    BIGINT UNSIGNED   NOT NULL,
    sku       SMALLINT UNSIGNED NOT NULL,
    quantity  SMALLINT UNSIGNED NOT NULL,
    attempt   TINYINT UNSIGNED  NOT NULL,
    state     TINYINT UNSIGNED  NOT NULL,
    pay_by_ms BIGINT UNSIGNED   NOT NULL,
    PRIMARY KEY (gen, process, activity, user)
) ENGINE = InnoDB;

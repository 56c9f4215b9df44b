-- Payments, and orders that are not paid in time.

-- When the payment centre is to be asked to close an order: at its pay-by time, later where it was asked before.
-- Never set by a settlement, which therefore binds no more values than before; NULL unless the order waits for its
-- payment, so that the index holds these alone. It takes the place of one that nobody read.
ALTER TABLE orders
    ADD COLUMN deferred_ms BIGINT UNSIGNED   NOT NULL DEFAULT 0,
    -- How often the payment centre was asked.
    ADD COLUMN asked       SMALLINT UNSIGNED NOT NULL DEFAULT 0,
    ADD COLUMN ask_at_ms   BIGINT UNSIGNED
        GENERATED ALWAYS AS (CASE WHEN state = 2 THEN pay_by_ms + deferred_ms END) STORED,
    DROP KEY orders_expiry,
    ADD KEY orders_ask (ask_at_ms);

-- From which state, and why: 1 not settled, 2 timed out, 3 closed by an operator or the user, 4 paid, 5 paid after the close;
-- 0: written by an earlier version.
ALTER TABLE order_history
    ADD COLUMN from_state TINYINT UNSIGNED NOT NULL DEFAULT 0,
    ADD COLUMN cause      TINYINT UNSIGNED NOT NULL DEFAULT 0;

-- One row per payment that the payment centre told of, whatever became of it. Never deleted: a repeated notice is
-- answered from it.
CREATE TABLE payments (
    id             VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    number         BIGINT UNSIGNED  NOT NULL,
    amount_minor   BIGINT UNSIGNED  NOT NULL,
    -- By the payment centre's clock.
    paid_at_ms     BIGINT UNSIGNED  NOT NULL,
    -- 1 parked (its order is not settled yet), 2 has paid its order, 3 is to be given back.
    state          TINYINT UNSIGNED NOT NULL CHECK (state IN (1, 2, 3)),
    -- Why it is to be given back: 1 the order was closed, 2 has failed, 3 another amount, 4 paid twice, 5 no such order,
    -- 6 the order never came; else 0.
    refund_cause   TINYINT UNSIGNED NOT NULL,
    received_at_ms BIGINT UNSIGNED  NOT NULL,
    changed_at_ms  BIGINT UNSIGNED  NOT NULL,
    CHECK ((state = 3) = (refund_cause > 0)),
    KEY payments_state (state, number),
    KEY payments_number (number)
) ENGINE = InnoDB;

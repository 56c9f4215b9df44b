-- Payments, and orders that are not paid in time.

-- When the payment centre is to be asked to close an order: at its pay-by time, later where it was asked before.
ALTER TABLE orders ADD COLUMN deferred_ms INTEGER NOT NULL DEFAULT 0;
-- How often it was asked.
ALTER TABLE orders ADD COLUMN asked INTEGER NOT NULL DEFAULT 0;
-- Those alone that wait for their payment.
CREATE INDEX orders_ask ON orders (pay_by_ms + deferred_ms) WHERE state = 2;

-- One line per change of an order's state after the purchase; it reaches each state once.
CREATE TABLE order_history (
    number     INTEGER NOT NULL,
    from_state INTEGER NOT NULL,
    state      INTEGER NOT NULL,
    -- 2 timed out, 3 closed by an operator or the user, 4 paid, 5 paid after the close.
    cause      INTEGER NOT NULL,
    reason     TEXT    NOT NULL,
    at_ms      INTEGER NOT NULL,
    PRIMARY KEY (number, state)
) STRICT, WITHOUT ROWID;

-- Units that went back for sale, once per order: written with the order's last state and with the stock itself.
CREATE TABLE ledger (
    number   INTEGER NOT NULL PRIMARY KEY,
    shard    INTEGER NOT NULL CHECK (shard BETWEEN 0 AND 15),
    activity INTEGER NOT NULL,
    sku      INTEGER NOT NULL,
    quantity INTEGER NOT NULL CHECK (quantity BETWEEN 1 AND 65535),
    at_ms    INTEGER NOT NULL
) STRICT;
CREATE INDEX ledger_sku ON ledger (activity, sku);

-- One row per payment that the payment centre told of, whatever became of it. Never deleted: a repeated notice is
-- answered from it.
CREATE TABLE payments (
    id             TEXT    NOT NULL PRIMARY KEY,
    number         INTEGER NOT NULL,
    amount_minor   INTEGER NOT NULL,
    -- By the payment centre's clock.
    paid_at_ms     INTEGER NOT NULL,
    -- 1 parked (its order is not there yet), 2 has paid its order, 3 is to be given back.
    state          INTEGER NOT NULL CHECK (state IN (1, 2, 3)),
    -- Why it is to be given back: 1 the order was closed, 2 has failed, 3 another amount, 4 paid twice, 5 no such order,
    -- 6 the order never came; else 0.
    refund_cause   INTEGER NOT NULL,
    received_at_ms INTEGER NOT NULL,
    changed_at_ms  INTEGER NOT NULL,
    CHECK ((state = 3) = (refund_cause > 0))
) STRICT, WITHOUT ROWID;
CREATE INDEX payments_number ON payments (number);
CREATE INDEX payments_parked ON payments (number) WHERE state = 1;
CREATE INDEX payments_refunds ON payments (changed_at_ms) WHERE state = 3;

-- Orders in state RECORDED, which are still to be settled: written with the order's row, deleted by the transaction that
-- settles it. Apart from `orders`, whose settlement as a matter of course then costs nothing more.
--
-- In order_history there is one more cause: 6, settled after it had been recorded.
CREATE TABLE recorded (
    number   BIGINT UNSIGNED   NOT NULL PRIMARY KEY,
    activity INT UNSIGNED      NOT NULL,
    sku      SMALLINT UNSIGNED NOT NULL,
    quantity SMALLINT UNSIGNED NOT NULL,
    -- With the quantity, so that units are summed up from it alone.
    KEY recorded_sku (activity, sku, quantity),
    -- An article that is not there is found when its order is recorded, as a settlement finds it by its stock.
    FOREIGN KEY (activity, sku) REFERENCES skus (activity, sku)
) ENGINE = InnoDB;

-- Orders that their users have cancelled: kept whether or not the order is settled, applied by any writer once it is.
CREATE TABLE cancels (
    number      BIGINT UNSIGNED NOT NULL,
    -- Who asked; an order of somebody else is left alone.
    user        BIGINT UNSIGNED NOT NULL,
    done        TINYINT(1)      NOT NULL,
    asked_at_ms BIGINT UNSIGNED NOT NULL,
    done_at_ms  BIGINT UNSIGNED NULL,
    PRIMARY KEY (number, user),
    KEY cancels_due (done, number)
) ENGINE = InnoDB;

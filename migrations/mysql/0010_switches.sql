-- Switches that have to be set while Redis is away. All others are in Redis.
CREATE TABLE switches (
    name    VARCHAR(64)      CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    value   VARCHAR(64)      NOT NULL,
    -- Unix milliseconds, or the next number after the last one where the clock did not move on.
    version BIGINT UNSIGNED  NOT NULL,
    at_ms   BIGINT UNSIGNED  NOT NULL,
    who     VARCHAR(64)      NOT NULL,
    why     VARCHAR(400)     NOT NULL,
    UNIQUE KEY switches_version (version)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;

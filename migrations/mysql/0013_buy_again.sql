-- How often a user may buy again in an activity after his order there was closed.
ALTER TABLE activities
    ADD COLUMN buy_again_max TINYINT UNSIGNED NOT NULL DEFAULT 0 CHECK (buy_again_max < 255);

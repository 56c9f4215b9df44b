-- Whom an activity is for: a condition on claims ('' = none), and whether only the users of its list (in Redis) may buy.
ALTER TABLE activities
    ADD COLUMN eligibility VARCHAR(512) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '',
    ADD COLUMN allow_list TINYINT(1) NOT NULL DEFAULT 0;

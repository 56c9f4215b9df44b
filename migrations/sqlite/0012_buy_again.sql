-- How often a user may buy again in an activity after his order there was closed.
ALTER TABLE activities ADD COLUMN buy_again_max INTEGER NOT NULL DEFAULT 0 CHECK (buy_again_max BETWEEN 0 AND 254);

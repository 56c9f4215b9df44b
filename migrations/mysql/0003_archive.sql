-- When an activity was archived: RESULT is answered from here for a stated time after that.
ALTER TABLE activities ADD COLUMN archived_at_ms BIGINT UNSIGNED NULL;
UPDATE activities SET archived_at_ms = CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS UNSIGNED) WHERE state = 4;

-- Whom an activity is for: a condition on claims ('' = none), and whether only the users of its list may buy.
ALTER TABLE activities ADD COLUMN eligibility TEXT NOT NULL DEFAULT '';
ALTER TABLE activities ADD COLUMN allow_list INTEGER NOT NULL DEFAULT 0 CHECK (allow_list IN (0, 1));

-- The lists, and how each stands: the version rises with every change of it.
CREATE TABLE allow_lists (
    activity INTEGER NOT NULL PRIMARY KEY,
    version  INTEGER NOT NULL,
    users    INTEGER NOT NULL
) STRICT;

CREATE TABLE allowed_users (
    activity INTEGER NOT NULL,
    user     INTEGER NOT NULL CHECK (user > 0),
    PRIMARY KEY (activity, user)
) STRICT, WITHOUT ROWID;

//! A sale rehearsed: many users, one audit.

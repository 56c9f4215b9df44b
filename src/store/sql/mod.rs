//! The SQL stores.

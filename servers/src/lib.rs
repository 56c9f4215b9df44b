//! Real servers for tests, drills and benches, each on a free port with a data folder of its own.

//! See `bodies/connection`. The gateway is started once for each process, in a folder of its own.
#![no_main]

#[path = "../bodies/connection/mod.rs"]
mod body;

use std::path::PathBuf;
use std::sync::OnceLock;
use std::{env, fs, process};

use body::gateway::Bench;

const FOLDER_PREFIX: &str = "rushgate-fuzz-";

/// A fresh folder. libFuzzer ends its processes without a word, so those of processes that are gone go now.
fn folder() -> PathBuf {
    let parent = env::temp_dir();
    for entry in fs::read_dir(&parent).unwrap().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(FOLDER_PREFIX));
        if pid.is_some_and(|pid| !PathBuf::from("/proc").join(pid).exists()) {
            // Another process may be about the same.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    let folder = parent.join(format!("{FOLDER_PREFIX}{}", process::id()));
    fs::create_dir(&folder).unwrap();
    folder
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    static BENCH: OnceLock<Bench> = OnceLock::new();
    let _ = body::run(BENCH.get_or_init(|| Bench::open(&folder())), data);
});

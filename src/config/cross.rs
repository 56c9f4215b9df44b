//! Checks of keys that depend on each other, of entries of a list among themselves, and of the files that keys
//! name.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use toml::Value;

use super::Config;
use super::schema::Fault;
use super::sections::TokenAlgorithm;
use super::text::format_duration;

/// A fault, and the keys it is about: the place named is that of the first that is not built in.
pub(super) struct CrossFault {
    pub(super) keys: [&'static str; 2],
    pub(super) fault: Fault,
}

pub(super) fn faults(config: &Config) -> Vec<CrossFault> {
    let mut faults = Vec::new();
    waits(config, &mut faults);
    rates(config, &mut faults);
    overrides(config, &mut faults);
    auth(config, &mut faults);
    faults
}

/// Within this time after a BUY a client without a patience of its own expects to know (protocol.md, 9).
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// What waits for a purchase, from the shortest to the longest.
fn waits(config: &Config, faults: &mut Vec<CrossFault>) {
    let (stock, drain) = (&config.stock, config.gateway.drain_timeout);
    let (patience, unconfirmed) = (stock.patience, stock.unconfirmed_after);
    if patience > unconfirmed {
        // A gateway that ends waits unconfirmed_after for those in its queues too.
        let why = format!("allowed: at most stock.unconfirmed_after, \"{}\"", format_duration(unconfirmed));
        let keys = ["stock.patience", "stock.unconfirmed_after"];
        faults.push(fault(keys, format_duration(patience), &why));
    }
    if unconfirmed > drain {
        // Else a gateway that ends closes connections before it has answered what is in flight.
        let why = format!("allowed: at most gateway.drain_timeout, \"{}\"", format_duration(drain));
        let keys = ["stock.unconfirmed_after", "gateway.drain_timeout"];
        faults.push(fault(keys, format_duration(unconfirmed), &why));
    }
    if patience.saturating_add(unconfirmed) >= ANSWER_WITHIN {
        let why = format!(
            "allowed: less than \"{}\" together with stock.patience, \"{}\"; by then clients expect to know",
            format_duration(ANSWER_WITHIN),
            format_duration(patience)
        );
        let keys = ["stock.unconfirmed_after", "stock.patience"];
        faults.push(fault(keys, format_duration(unconfirmed), &why));
    }
}

const NO_BURST: &str = "allowed: at least 1 where rate_per_s is not 0";

fn rates(config: &Config, faults: &mut Vec<CrossFault>) {
    let limits = &config.limits;
    for (keys, rate) in [
        (["limits.global.burst", "limits.global.rate_per_s"], limits.global),
        (["limits.per_ip.burst", "limits.per_ip.rate_per_s"], limits.per_ip),
        (["limits.per_user.burst", "limits.per_user.rate_per_s"], limits.per_user),
        (["limits.result_per_user.burst", "limits.result_per_user.rate_per_s"], limits.result_per_user),
    ] {
        if rate.rate_per_s > 0 && rate.burst == 0 {
            faults.push(fault(keys, 0, NO_BURST));
        }
    }
}

fn overrides(config: &Config, faults: &mut Vec<CrossFault>) {
    const LIST: &str = "limits.per_ip_overrides";
    let mut push = |index: usize, name: &str, value: Value, why: String| {
        let key = format!("{LIST}[{index}].{name}");
        faults.push(CrossFault { keys: [LIST; 2], fault: Fault { key, value: Some(value), why } });
    };
    let list = &config.limits.per_ip_overrides;
    for (index, entry) in list.iter().enumerate() {
        if entry.rate_per_s > 0 && entry.burst == 0 {
            push(index, "burst", Value::Integer(0), NO_BURST.to_owned());
        }
        if let Some(first) = list.iter().position(|other| other.cidr == entry.cidr)
            && first != index
        {
            push(index, "cidr", entry.cidr.to_string().into(), format!("already given by {LIST}[{first}]"));
        }
    }
}

fn auth(config: &Config, faults: &mut Vec<CrossFault>) {
    let auth = &config.auth;
    let public_key = ["auth.public_key_file", "auth.algorithm"];
    match (auth.algorithm, &auth.public_key_file) {
        (TokenAlgorithm::Hs256, Some(path)) => {
            let why = "allowed: only \"\" with auth.algorithm = \"HS256\", which takes auth.secret_file";
            faults.push(fault(public_key, shown(path), why));
        }
        (TokenAlgorithm::EdDsa, None) => {
            let why = "allowed: the path of a public key (PEM) with auth.algorithm = \"EdDSA\"";
            faults.push(fault(public_key, "", why));
        }
        _ => {}
    }
    if let (TokenAlgorithm::EdDsa, Some(path)) = (auth.algorithm, &auth.secret_file) {
        let why = "allowed: only \"\" with auth.algorithm = \"EdDSA\", which takes auth.public_key_file";
        faults.push(fault(["auth.secret_file", "auth.algorithm"], shown(path), why));
    }
}

/// The key files that are named and cannot be read. What they hold is judged where the key is made.
pub(super) fn unreadable_key_files(config: &Config) -> Vec<CrossFault> {
    let auth = &config.auth;
    // The other algorithm's file is a fault already.
    let (key, path) = match auth.algorithm {
        TokenAlgorithm::Hs256 => ("auth.secret_file", &auth.secret_file),
        TokenAlgorithm::EdDsa => ("auth.public_key_file", &auth.public_key_file),
    };
    let Some(path) = path else { return Vec::new() };
    match try_read(path) {
        Ok(()) => Vec::new(),
        Err(error) => vec![fault([key; 2], shown(path), &format!("cannot be read: {error}"))],
    }
}

fn try_read(path: &Path) -> io::Result<()> {
    let kind = fs::metadata(path)?;
    // A pipe gives its content only once, and that is for whoever makes the key.
    if kind.is_file() || kind.is_dir() {
        io::copy(&mut File::open(path)?.take(1), &mut io::sink())?;
    }
    Ok(())
}

fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn fault(keys: [&'static str; 2], value: impl Into<Value>, why: &str) -> CrossFault {
    let fault = Fault { key: keys[0].to_owned(), value: Some(value.into()), why: why.to_owned() };
    CrossFault { keys, fault }
}

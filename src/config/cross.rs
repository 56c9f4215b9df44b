//! Checks of keys that depend on each other, and of entries of a list among themselves.

use std::path::Path;

use toml::Value;

use super::Config;
use super::schema::Fault;
use super::sections::TokenAlgorithm;

/// A fault, and the keys it is about: the place named is that of the first that is not built in.
pub(super) struct CrossFault {
    pub(super) keys: [&'static str; 2],
    pub(super) fault: Fault,
}

pub(super) fn faults(config: &Config) -> Vec<CrossFault> {
    let mut faults = Vec::new();
    rates(config, &mut faults);
    overrides(config, &mut faults);
    auth(config, &mut faults);
    faults
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

fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn fault(keys: [&'static str; 2], value: impl Into<Value>, why: &str) -> CrossFault {
    let fault = Fault { key: keys[0].to_owned(), value: Some(value.into()), why: why.to_owned() };
    CrossFault { keys, fault }
}

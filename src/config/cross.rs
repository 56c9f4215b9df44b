//! Checks of keys that depend on each other, of entries of a list among themselves, and of the files that keys
//! name.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use toml::Value;

use super::Config;
use super::rules::Fault;
use super::sections::StoreKind;
use super::text::{format_bytes, format_duration};
use crate::admission::identity::TokenAlgorithm;

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
    attempts(config, &mut faults);
    auth(config, &mut faults);
    behaviour(config, &mut faults);
    ports(config, &mut faults);
    payment(config, &mut faults);
    log(config, &mut faults);
    if config.store.kind == StoreKind::Redis {
        redis(config, &mut faults);
    }
    faults
}

fn log(config: &Config, faults: &mut Vec<CrossFault>) {
    let log = &config.log;
    let twice = log.file_bytes_max.saturating_mul(2);
    if log.total_bytes_max < twice {
        // Else what was put away would be deleted at once.
        let why = format!("allowed: at least twice log.file_bytes_max, \"{}\"", format_bytes(twice));
        let keys = ["log.total_bytes_max", "log.file_bytes_max"];
        faults.push(fault(keys, format_bytes(log.total_bytes_max), &why));
    }
}

fn payment(config: &Config, faults: &mut Vec<CrossFault>) {
    let payment = &config.payment;
    if payment.key_file.is_none() {
        // Else anybody could say that orders are paid, or ask for their close.
        const WHY: &str = "allowed: only \"\" without payment.key_file, which signs what is said";
        if let Some(path) = &payment.other_key_file {
            faults.push(fault(["payment.other_key_file", "payment.key_file"], shown(path), WHY));
        }
        if let Some(url) = &payment.centre_url {
            faults.push(fault(["payment.centre_url", "payment.key_file"], url.as_str(), WHY));
        }
    }
    let twice = payment.ask_timeout.saturating_mul(2);
    if payment.retry_max < twice {
        // Else an order is asked about again while the first answer is still waited for.
        let why = format!("allowed: at least twice payment.ask_timeout, \"{}\"", format_duration(twice));
        let keys = ["payment.retry_max", "payment.ask_timeout"];
        faults.push(fault(keys, format_duration(payment.retry_max), &why));
    }
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
        (["limits.per_connection.burst", "limits.per_connection.rate_per_s"], limits.per_connection),
        (["limits.auth_per_ip.burst", "limits.auth_per_ip.rate_per_s"], limits.auth_per_ip),
        (["limits.per_activity.burst", "limits.per_activity.rate_per_s"], limits.per_activity),
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

/// One gateway sees every attempt on the embedded store.
fn attempts(config: &Config, faults: &mut Vec<CrossFault>) {
    let count_max = config.limits.store_attempts_max;
    if count_max > 0 && config.store.kind == StoreKind::Sqlite {
        let why = "allowed: only 0 with store.kind = \"sqlite\", where one gateway sees all that a user asks: \
                   limits.per_user is his rate";
        faults.push(fault(["limits.store_attempts_max", "store.kind"], i64::from(count_max), why));
    }
}

fn auth(config: &Config, faults: &mut Vec<CrossFault>) {
    let auth = &config.auth;
    let algorithm = auth.algorithm.name();
    match (auth.algorithm, &auth.secret_file, &auth.public_key_file) {
        (TokenAlgorithm::Hs256, _, Some(path)) => {
            let why = "allowed: only \"\" with auth.algorithm = \"HS256\", which takes auth.secret_file";
            faults.push(fault(["auth.public_key_file", "auth.algorithm"], shown(path), why));
        }
        (TokenAlgorithm::EdDsa | TokenAlgorithm::Es256, _, None) if auth.jwks_file.is_none() => {
            let why =
                format!("allowed: the path of a public key (PEM) with auth.algorithm = \"{algorithm}\"");
            faults.push(fault(["auth.public_key_file", "auth.algorithm"], "", &why));
        }
        _ => {}
    }
    if let (TokenAlgorithm::EdDsa | TokenAlgorithm::Es256, Some(path)) = (auth.algorithm, &auth.secret_file) {
        let why = format!(
            "allowed: only \"\" with auth.algorithm = \"{algorithm}\", which takes auth.public_key_file"
        );
        faults.push(fault(["auth.secret_file", "auth.algorithm"], shown(path), &why));
    }
    if let Some(kid) = auth.kid.as_ref().filter(|_| auth.jwks_file.is_some() && !auth.names_a_key()) {
        let why = "allowed: only \"\" where all keys are those of auth.jwks_file, which names them itself";
        faults.push(fault(["auth.kid", "auth.jwks_file"], kid.as_str(), why));
    }
}

/// A bucket that holds more than leaks out in a month would count for ever.
fn behaviour(config: &Config, faults: &mut Vec<CrossFault>) {
    const MONTH_MINUTES: u64 = 30 * 24 * 60;
    let behaviour = &config.behaviour;
    let most = u64::from(behaviour.per_minute).saturating_mul(MONTH_MINUTES);
    let held = u64::from(behaviour.burst).saturating_add(behaviour.block_after.into());
    if behaviour.per_minute > 0 && held > most {
        let why = format!(
            "allowed: at most {most} together with behaviour.burst, {}, which is what behaviour.per_minute \
             lets pass in a month",
            behaviour.burst
        );
        let keys = ["behaviour.block_after", "behaviour.per_minute"];
        faults.push(fault(keys, i64::from(behaviour.block_after), &why));
    }
}

/// The gateway's ports: each is another, and says by itself what is spoken there.
fn ports(config: &Config, faults: &mut Vec<CrossFault>) {
    let (gateway, tls) = (&config.gateway, &config.tls);
    let ports = [
        ("gateway.listen", Some(gateway.listen)),
        ("gateway.proxy_listen", gateway.proxy_listen),
        ("tls.listen", tls.listen),
        ("tls.proxy_listen", tls.proxy_listen),
    ];
    for (index, (key, listen)) in ports.iter().enumerate() {
        // Port 0 takes any that is free, so that two of them never meet.
        let Some(listen) = listen.filter(|listen| listen.port() != 0) else { continue };
        let before = ports.iter().take(index).find(|(_, before)| *before == Some(listen));
        if let Some((other, _)) = before {
            let why = format!(
                "allowed: another address or port than {other}; which of the two a client uses decides what is spoken \
                 and whether a PROXY header is believed"
            );
            faults.push(fault([key, other], listen.to_string(), &why));
        }
    }
    let for_balancers =
        [("gateway.proxy_listen", gateway.proxy_listen), ("tls.proxy_listen", tls.proxy_listen)];
    if let Some((key, _)) = for_balancers.iter().find(|(_, listen)| listen.is_some())
        && gateway.proxy_from.is_empty()
    {
        let why = format!("allowed: at least one block where {key} is not \"\"; nobody could connect there");
        faults.push(fault(["gateway.proxy_from", key], Value::Array(Vec::new()), &why));
    }
    for (key, file) in
        [("tls.certificate_file", &tls.certificate_file), ("tls.private_key_file", &tls.private_key_file)]
    {
        if tls.is_on() && file.is_none() {
            let listen = if tls.listen.is_some() { "tls.listen" } else { "tls.proxy_listen" };
            let why = format!("allowed: a PEM file where {listen} is not \"\"");
            faults.push(fault([key, listen], "", &why));
        }
    }
}

fn redis(config: &Config, faults: &mut Vec<CrossFault>) {
    let (redis, stock) = (&config.redis, &config.stock);
    let nodes = || Value::Array(redis.nodes.iter().map(|node| Value::from(node.as_str())).collect());
    if !redis.cluster && redis.nodes.len() > 1 {
        let why = "allowed: only one with redis.cluster = false";
        faults.push(fault(["redis.nodes", "redis.cluster"], nodes(), why));
    }
    if let Some(clock_node) = redis.clock_node.as_ref().filter(|node| !redis.nodes.contains(node)) {
        let why = format!("allowed: one of redis.nodes, {}, or \"\" for the first", nodes());
        faults.push(fault(["redis.clock_node", "redis.nodes"], clock_node.as_str(), &why));
    }
    if redis.replicas_waited_for() > 0 && redis.wait_timeout >= redis.call_timeout {
        // Else a call that waits for replicas is given up before it knows that they are too few.
        let why =
            format!("allowed: less than redis.call_timeout, \"{}\"", format_duration(redis.call_timeout));
        let keys = ["redis.wait_timeout", "redis.call_timeout"];
        faults.push(fault(keys, format_duration(redis.wait_timeout), &why));
    }
    if redis.call_timeout > stock.call_timeout {
        // Else a call is repeated while its first copy is still waited for.
        let why = format!("allowed: at most stock.call_timeout, \"{}\"", format_duration(stock.call_timeout));
        let keys = ["redis.call_timeout", "stock.call_timeout"];
        faults.push(fault(keys, format_duration(redis.call_timeout), &why));
    }
}

/// The key and password files that are named and cannot be read. What they hold is judged where it is used.
pub(super) fn unreadable_key_files(config: &Config) -> Vec<CrossFault> {
    let auth = &config.auth;
    // The other kind's file is a fault already.
    let key_file = match auth.algorithm {
        TokenAlgorithm::Hs256 => ("auth.secret_file", &auth.secret_file),
        TokenAlgorithm::EdDsa | TokenAlgorithm::Es256 => ("auth.public_key_file", &auth.public_key_file),
    };
    let mut files = vec![key_file, ("auth.jwks_file", &auth.jwks_file)];
    if config.store.kind == StoreKind::Redis {
        files.push(("redis.password_file", &config.redis.password_file));
        files.push(("mysql.password_file", &config.mysql.password_file));
    }
    if config.tls.is_on() {
        files.push(("tls.certificate_file", &config.tls.certificate_file));
        files.push(("tls.private_key_file", &config.tls.private_key_file));
        files.push(("tls.ticket_keys_file", &config.tls.ticket_keys_file));
    }
    files.push(("payment.key_file", &config.payment.key_file));
    files.push(("payment.other_key_file", &config.payment.other_key_file));
    let faults = files.into_iter().filter_map(|(key, path)| {
        let path = path.as_ref()?;
        let error = try_read(path).err()?;
        Some(fault([key; 2], shown(path), &format!("cannot be read: {error}")))
    });
    faults.collect()
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

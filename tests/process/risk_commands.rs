//! `rushgate risk` and the admin port's /risk, beside a gateway on the embedded store.

use std::fs;

use rushgate::protocol::Status;
use serde_json::{Value, json};

use super::house::{House, SALE, SKU, Serving, post};
use super::wire::{Client, buy, eventually};

const UNLIMITED: &str = "limits.per_user.rate_per_s=0";
const REASON: [&str; 4] = ["--who", "mia", "--why", "a farm"];

fn add(house: &House, args: &[&str]) -> String {
    house.done(&[&["risk", "add"], args, &REASON].concat())
}

fn listed(house: &House, args: &[&str]) -> Vec<Value> {
    let list: Value =
        serde_json::from_str(&house.done(&[&["risk", "list", "--json"], args].concat())).unwrap();
    list.as_array().unwrap().clone()
}

fn subjects(list: &[Value]) -> Vec<&str> {
    list.iter().map(|one| one["subject"].as_str().unwrap()).collect()
}

#[track_caller]
fn comes_to(client: &mut Client, due: Status) {
    eventually("the list is obeyed", || client.ask(&buy(SALE, SKU, 1)).status == due);
}

/// Nothing is left.
fn sold_out(house: &House) -> (Serving, Client) {
    let serving = house.serve(&[UNLIMITED]);
    assert_eq!(house.app(&serving, 1).ask(&buy(SALE, SKU, 1)).status, Status::Queued);
    let mut client = house.app(&serving, 42);
    comes_to(&mut client, Status::SoldOut);
    (serving, client)
}

#[test]
fn who_is_added_is_blocked_is_listed_with_who_and_why_and_is_free_when_removed() {
    let house = House::with_sale(1);
    let (serving, mut client) = sold_out(&house);
    assert!(house.done(&["risk", "list"]).contains("nobody is listed"));
    let said = add(&house, &["user:42", "ip:10.0.0.0/8", "device:a, b"]);
    assert!(said.starts_with("user:42: block (version "), "{said}");
    comes_to(&mut client, Status::Blocked);
    add(&house, &["user:43", "--effect", "slow", "--for", "2h"]);
    let list = listed(&house, &[]);
    assert_eq!(subjects(&list), ["device:a, b", "ip:10.0.0.0/8", "user:42", "user:43"]);
    let (hours, at) = (list[3]["until_ms"].as_u64().unwrap(), list[3]["at_ms"].as_u64().unwrap());
    assert_eq!((list[3]["effect"].as_str(), (hours - at) / 60_000), (Some("slow"), 119), "{list:?}");
    assert_eq!(
        (&list[0]["who"], &list[0]["why"], &list[0]["until_ms"]),
        (&"mia".into(), &"a farm".into(), &0.into())
    );
    assert_eq!(subjects(&listed(&house, &["--kind", "ip"])), ["ip:10.0.0.0/8"]);
    let table = house.done(&["risk", "list", "--limit", "1"]);
    assert!(
        table.contains("mia: a farm") && table.contains("for good") && table.contains("--limit 0"),
        "{table}"
    );
    eventually("they are counted", || serving.metric("rushgate_risk_users") == 2);
    assert_eq!([serving.metric("rushgate_risk_ips"), serving.metric("rushgate_risk_devices")], [1, 1]);
    let said = house.done(&["risk", "remove", "user:42", "user:44"]);
    assert!(said.starts_with("1 of 2 were listed"), "{said}");
    comes_to(&mut client, Status::SoldOut);
}

#[test]
fn what_is_no_entry_is_refused_with_the_reason_and_changes_nothing() {
    let house = House::with_sale(1);
    for (args, says) in [
        (&["add", "42", "--why", "y"][..], "\"42\" is no subject; write user:42"),
        (&["add", "user:1", "user:x", "--why", "y"], "is no user"),
        (&["add", "ip:10.0.0.1/8", "--why", "y"], "write 10.0.0.0/8"),
        (&["add", "user:1", "--why", "y", "--effect", "ban"], "it is block or slow"),
        (&["add", "user:1", "--why", " "], "why is empty"),
        (&["add", "user:1", "--why", "two\nlines"], "control characters"),
        (&["add", "user:1", "--why", "y", "--for", "10ms"], "is no time to list somebody for"),
        (&["remove", "user:0"], "is no user"),
    ] {
        let mut command = house.command(&[&["risk"], args].concat());
        let output = command.env("USER", "mia").output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{args:?}: {error}");
        assert!(error.contains(says) && error.contains("nothing was changed"), "{args:?}: {error}");
    }
    for args in [&["risk", "add", "--why", "y"][..], &["risk", "add", "user:1"], &["risk", "remove"]] {
        assert!(house.refused_by_usage(args).contains("required"));
    }
    fs::write(house.dir.path().join("bad"), "user:1\nuser:2\tban\nnobody\n").unwrap();
    let output = house.run(&[&["risk", "import", "bad"][..], &REASON].concat());
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        error.contains("2 lines are no entry; nothing was changed") && error.contains("line 3: "),
        "{error}"
    );
    assert_eq!(output.status.code(), Some(1));
    let missing = house.refused(&[&["risk", "import", "missing"][..], &REASON].concat());
    assert!(missing.contains("cannot read missing"), "{missing}");
    assert!(listed(&house, &[]).is_empty());
}

#[test]
fn a_file_is_imported_and_so_is_what_comes_through_a_pipe() {
    let house = House::with_sale(1);
    let (_serving, mut client) = sold_out(&house);
    let file = "# a farm\nuser:42\ndevice:x y\tslow\t1h\n\nip:10.1.0.0/16\n";
    fs::write(house.dir.path().join("farm"), file).unwrap();
    let said = house.done(&[&["risk", "import", "farm"][..], &REASON].concat());
    assert!(said.starts_with("3 entries listed in "), "{said}");
    comes_to(&mut client, Status::Blocked);
    let piped = "seq 100 1099 | sed 's/^/user:/' | $RUSHGATE risk import - --who mia --why piped --json";
    let output = house.shell(piped).stdin(std::process::Stdio::null()).output().unwrap();
    let done: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(done["entries"], 1000, "{output:?}");
    assert_eq!(listed(&house, &["--limit", "0"]).len(), 1003);
    // Once more changes nothing.
    house.done(&[&["risk", "import", "farm"][..], &REASON].concat());
    assert_eq!(listed(&house, &["--limit", "0"]).len(), 1003);
}

fn explained(house: &House, serving: &Serving, args: &[&str]) -> (String, Value) {
    let admin = serving.admin.to_string();
    let args = [&["risk", "explain"], args, &["--admin", &admin]].concat();
    let json: Value = serde_json::from_str(&house.done(&[&args[..], &["--json"]].concat())).unwrap();
    (house.done(&args), json)
}

#[test]
fn explain_names_the_rung_that_turned_a_user_away_and_what_is_listed() {
    let house = House::with_sale(1);
    let (serving, mut client) = sold_out(&house);
    let (text, json) = explained(&house, &serving, &["42"]);
    assert!(text.contains("not listed") && text.contains("SOLD_OUT, by rung stock"), "{text}");
    assert_eq!(json["gateways"][0]["gateway"], serving.metric("rushgate_process"));
    let last = &json["gateways"][0]["last_buy"];
    assert_eq!(
        (&last["rung"], &last["status"], &last["activity"]),
        (&"stock".into(), &"SOLD_OUT".into(), &SALE.into())
    );
    add(&house, &["device:a device", "ip:127.0.0.0/8"]);
    comes_to(&mut client, Status::Blocked);
    eventually("both are in force", || serving.metric("rushgate_risk_ips") == 1);
    let (text, json) = explained(&house, &serving, &["42", "--device", "a device", "--ip", "127.0.0.1"]);
    for says in
        ["BLOCKED, by rung risk", "mia: a farm", "in force: ip:127.0.0.0/8 block, device:a device block"]
    {
        assert!(text.contains(says), "{says}: {text}");
    }
    assert_eq!(json["listed"].as_array().unwrap().len(), 2, "{json}");
    // The winner is told what he holds, listed or not.
    assert_eq!(house.app(&serving, 1).ask(&buy(SALE, SKU, 1)).status, Status::Already);
    let (text, _) = explained(&house, &serving, &["1"]);
    assert!(text.contains("ALREADY, by rung duplicate"), "{text}");
    let (text, _) = explained(&house, &serving, &["7"]);
    assert!(text.contains("no BUY of this user is remembered"), "{text}");
    // What cannot be asked is told, and the rest is told all the same.
    let admin = serving.admin.to_string();
    let said = house.done(&["risk", "explain", "42", "--admin", "127.0.0.1:1", "--admin", &admin]);
    assert!(
        said.contains("gateway at 127.0.0.1:1: cannot be asked") && said.contains("by rung risk"),
        "{said}"
    );
    let refused = house.run(&["risk", "explain", "0"]);
    assert_eq!(refused.status.code(), Some(1));
}

#[test]
fn the_admin_port_shows_the_lists_changes_them_and_explains() {
    let house = House::with_sale(1);
    let (serving, mut client) = sold_out(&house);
    let change = |body: &Value| {
        let (status, body) = post(serving.admin, "/risk", "application/json", &body.to_string());
        (status, serde_json::from_str::<Value>(&body).unwrap())
    };
    let block = json!({"subject": "user:42", "effect": "block", "for_s": 3600, "who": "mia", "why": "y"});
    let (status, done) = change(&block);
    assert_eq!((status.as_str(), &done["entries"]), ("HTTP/1.1 200 OK", &1.into()), "{done}");
    comes_to(&mut client, Status::Blocked);
    let shown: Value = serde_json::from_str(&serving.get("/risk").1).unwrap();
    assert_eq!((&shown["users"], &shown["version"], &shown["ips"]), (&1.into(), &done["version"], &0.into()));
    let (status, told) = serving.get("/risk/explain?user=42&device=a%20device");
    assert_eq!(status, "HTTP/1.1 200 OK");
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(
        (&told["listed"][0]["subject"], &told["last_buy"]["rung"]),
        (&"user:42".into(), &"risk".into())
    );
    assert_eq!(serving.get("/risk/explain").0, "HTTP/1.1 400 Bad Request");
    for (body, says) in [
        (json!({"subject": "user:x", "effect": "block", "who": "mia", "why": "y"}), "is no user"),
        (json!({"subject": "user:1", "effect": "ban", "who": "mia", "why": "y"}), "it is block or slow"),
        (json!({"subject": "user:1", "effect": "slow", "for_s": 0, "who": "mia", "why": "y"}), "is no time"),
        (json!({"subject": "user:1", "effect": "slow", "who": "", "why": "y"}), "who is empty"),
        (json!({"subject": "user:1", "effect": "slow", "who": "gateway 7", "why": "y"}), "as gateways sign"),
    ] {
        let (status, told) = change(&body);
        assert_eq!(status, "HTTP/1.1 400 Bad Request");
        assert!(told["error"].as_str().unwrap().contains(says), "{told}");
    }
    // As a form on some web page would send it.
    let (status, _) = post(serving.admin, "/risk", "text/plain", &block.to_string());
    assert_eq!(status, "HTTP/1.1 415 Unsupported Media Type");
    let (_, done) = change(&json!({"subject": "user:42", "effect": "none", "who": "mia", "why": "y"}));
    assert_eq!(done["entries"], 1);
    comes_to(&mut client, Status::SoldOut);
    assert!(listed(&house, &[]).is_empty());
}

//! `rushgate switch` and the admin port's /switches, beside a gateway on the embedded store.

use rushgate::protocol::Status;
use serde_json::{Value, json};

use super::house::{House, SALE, SKU, Serving, Started, post};
use super::wire::{Client, buy, eventually};

fn set(house: &House, name: &str, value: &str, why: &str) -> String {
    house.done(&["switch", "set", name, value, "--who", "mia", "--why", why])
}

fn listed(house: &House) -> Vec<Value> {
    let list: Value = serde_json::from_str(&house.done(&["switch", "list", "--json"])).unwrap();
    list.as_array().unwrap().clone()
}

#[track_caller]
fn comes_to(client: &mut Client, due: Status) {
    eventually("the switch is obeyed", || client.ask(&buy(SALE, SKU, 2)).status == due);
}

fn sets(serving: &Serving, kind: &str, body: &Value) -> (String, Value) {
    let (status, body) = post(serving.admin, "/switches", kind, &body.to_string());
    (status, serde_json::from_str(&body).unwrap())
}

#[test]
fn what_is_set_is_listed_with_who_when_and_why_and_is_obeyed() {
    let house = House::with_sale(5);
    let serving = house.serve(&["limits.per_user.rate_per_s=0"]);
    let mut client = house.app(&serving, 1);
    let empty = house.done(&["switch", "list"]);
    assert!(empty.contains("nothing was ever set") && empty.contains("entry or entry/ACTIVITY"), "{empty}");
    // More than one may have: told only while the entry is open.
    comes_to(&mut client, Status::OverLimit);
    let said = set(&house, "entry/7", "closed", "counted wrong");
    assert!(said.starts_with("entry/7 = closed (version "), "{said}");
    comes_to(&mut client, Status::Ended);
    // Who is who says so, unless he says otherwise.
    let mut by_user = house.command(&["switch", "set", "entry", "open", "--why", "a drill"]);
    assert!(by_user.env("USER", "nightwatch").output().unwrap().status.success());
    let list = listed(&house);
    let told =
        |nth: usize| ["name", "value", "who", "why"].map(|key| list[nth][key].as_str().unwrap().to_owned());
    assert_eq!(told(0), ["entry", "open", "nightwatch", "a drill"]);
    assert_eq!(told(1), ["entry/7", "closed", "mia", "counted wrong"]);
    assert!(list[0]["version"].as_u64() > list[1]["version"].as_u64() && list[1]["at_ms"].as_u64() > Some(0));
    let table = house.done(&["switch", "list"]);
    assert!(table.contains("mia: counted wrong") && table.contains("[open]"), "{table}");
    // In a container nobody may be named.
    let mut by_nobody = house.command(&["switch", "set", "entry", "open", "--why", "a second drill"]);
    let output = by_nobody.env_remove("USER").env_remove("LOGNAME").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_ne!(listed(&house)[0]["who"], "");
    set(&house, "entry/7", "open", "counted again");
    comes_to(&mut client, Status::OverLimit);
}

#[test]
fn what_is_no_switch_is_refused_with_the_reason_and_changes_nothing() {
    let house = House::with_sale(5);
    let serving = house.serve(&[]);
    for (args, says) in [
        (
            &["entri", "open", "--why", "y"][..],
            "there is no switch \"entri\"; there are entry or entry/ACTIVITY",
        ),
        (&["entry", "shut", "--why", "y"], "entry cannot be set to \"shut\"; it is open or closed"),
        (&["entry/x", "open", "--why", "y"], "from 1 to 4294967295"),
        (&["drain", "on", "--why", "y"], "write drain/GATEWAY"),
        (&["log_level", "loud", "--why", "y"], "it is default, error, warn"),
        (&["entry", "closed", "--why", " "], "why is empty"),
        (&["entry", "closed", "--why", "two\nlines"], "control characters"),
    ] {
        let output = house.run(&[&["switch", "set", "--who", "mia"], args].concat());
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{args:?}: {error}");
        assert!(error.contains(says) && error.contains("nothing was changed"), "{args:?}: {error}");
    }
    assert!(
        house.refused_by_usage(&["switch", "set", "entry", "closed", "--who", "mia"]).contains("required")
    );
    assert!(listed(&house).is_empty());
    for (body, says) in [
        (json!({"name": "entry", "value": "shut", "who": "mia", "why": "y"}), "it is open or closed"),
        (json!({"name": "entry", "value": "closed", "who": "", "why": "y"}), "who is empty"),
    ] {
        let (status, told) = sets(&serving, "application/json", &body);
        assert_eq!(status, "HTTP/1.1 400 Bad Request");
        assert!(told["error"].as_str().unwrap().contains(says), "{told}");
    }
    let whole = json!({"name": "entry", "value": "closed", "who": "mia", "why": "y"});
    // As a form on some web page would send it.
    let (status, _) = sets(&serving, "text/plain", &whole);
    assert_eq!(status, "HTTP/1.1 415 Unsupported Media Type");
    let (status, told) = sets(&serving, "application/json", &json!({"name": "entry", "value": "closed"}));
    assert_eq!(status, "HTTP/1.1 422 Unprocessable Entity");
    assert!(told["error"].as_str().unwrap().contains("who"), "{told}");
    assert!(listed(&house).is_empty());
}

#[test]
fn the_admin_port_sets_switches_and_shows_those_that_the_gateway_obeys() {
    let house = House::with_sale(5);
    let serving = house.serve(&["limits.per_user.rate_per_s=0"]);
    let mut client = house.app(&serving, 1);
    let body = json!({"name": "entry", "value": "closed", "who": "mia", "why": "a test"});
    let (status, done) = sets(&serving, "application/json", &body);
    assert_eq!(
        (status.as_str(), &done["name"], &done["value"]),
        ("HTTP/1.1 200 OK", &body["name"], &body["value"])
    );
    let version = done["version"].as_u64().unwrap();
    eventually("it is obeyed", || serving.metric("rushgate_switches_version") == version);
    assert_eq!(client.ask(&buy(SALE, SKU, 1)).status, Status::Ended);
    let shown: Value = serde_json::from_str(&serving.get("/switches").1).unwrap();
    assert_eq!(shown["gateway"], serving.metric("rushgate_process"));
    assert_eq!((&shown["version"], &shown["switches"][0]["why"]), (&done["version"], &body["why"]));
    assert!(shown["age_ms"].as_u64().unwrap() < 20_000);
    assert_eq!(listed(&house).len(), 1);
    // A writer, or whoever obeys none, has none.
    assert_eq!(serving.get("/switch").0, "HTTP/1.1 404 Not Found");
}

#[test]
fn watch_prints_what_is_set_from_now_on() {
    let house = House::with_sale(5);
    set(&house, "entry", "closed", "before anybody watched");
    let mut watching = Started::new(&house, house.command(&["switch", "watch"]));
    let mut machine = Started::new(&house, house.command(&["switch", "watch", "--json"]));
    // It says nothing while nothing happens; so set something until it is heard.
    let mut times = 0;
    let heard = |watching: &Started| watching.said().contains("mia: again");
    eventually("both watch", || {
        times += 1;
        set(&house, "entry", if times % 2 == 0 { "closed" } else { "open" }, "again");
        heard(&watching) && heard_json(&machine, "again")
    });
    set(&house, "entry/7", "closed", "the last");
    eventually("it is printed", || {
        watching.said().contains("mia: the last") && heard_json(&machine, "the last")
    });
    assert!(!watching.said().contains("before anybody watched"));
    for process in [&mut watching, &mut machine] {
        process.signal("INT");
        assert_eq!(process.ended().code(), Some(0), "{}", process.log());
    }
}

fn heard_json(machine: &Started, why: &str) -> bool {
    let said = machine.said();
    let whole = said.lines().filter(|line| line.ends_with('}'));
    whole.map(|line| serde_json::from_str::<Value>(line).unwrap()).any(|change| change["why"] == why)
}

#[test]
fn a_gateway_drains_by_switch_as_by_sigterm_and_its_successor_does_not() {
    let house = House::with_sale(5);
    let mut serving = house.serve(&[]);
    let mut client = house.app(&serving, 1);
    let number = serving.metric("rushgate_process");
    // Somebody else's, one that is called off before it begins, and this one's.
    set(&house, &format!("drain/{}", number + 1_000), "on", "not me");
    set(&house, &format!("drain/{number}"), "off", "called off");
    assert_eq!(client.ask(&buy(SALE, SKU, 1)).status, Status::Queued);
    set(&house, &format!("drain/{number}"), "on", "a new kernel");
    client.push(rushgate::protocol::Opcode::Goaway);
    drop(client);
    assert_eq!(serving.ended().code(), Some(0), "{}", serving.log());
    let log = serving.log();
    assert!(log.contains(&format!("switch drain/{number}, set by mia: a new kernel")), "{log}");
    let mut next = house.serve(&[]);
    assert_eq!(house.app(&next, 1).ask(&buy(SALE, SKU, 1)).status, Status::Already);
    assert!(next.is_running() && next.metric("rushgate_process") > number);
}

#[test]
fn what_is_logged_follows_the_switch() {
    let house = House::with_sale(5);
    let serving = house.serve(&[]);
    let tokens_refused = || serving.log().matches("token refused").count();
    let refuse = || {
        let mut client = Client::connect(serving.addr);
        client.ask(&super::wire::hello());
        client.auth("nonsense");
        client.closed();
    };
    let obeyed = |value: &str| {
        set(&house, "log_level", value, "a look");
        let version = listed(&house)[0]["version"].as_u64().unwrap();
        eventually("it is obeyed", || serving.metric("rushgate_switches_version") == version);
    };
    refuse();
    assert_eq!(tokens_refused(), 0, "{}", serving.log());
    obeyed("debug");
    eventually("what was hidden is logged", || {
        refuse();
        tokens_refused() > 0
    });
    obeyed("default");
    eventually("it is hidden again", || {
        let before = tokens_refused();
        refuse();
        before == tokens_refused()
    });
    // The gateway's own news, too; that it is so is the last of it.
    obeyed("error");
    let is_silent = || {
        let before = serving.log().len();
        set(&house, "entry/9", "open", "anything");
        let version = listed(&house).iter().filter_map(|one| one["version"].as_u64()).max().unwrap();
        eventually("it is obeyed", || serving.metric("rushgate_switches_version") == version);
        serving.log().len() == before
    };
    eventually("nothing is logged", is_silent);
}

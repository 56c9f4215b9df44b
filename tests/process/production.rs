//! The operator's commands on the production store's database: the same words, and what only it has.

use std::fs;

use rushgate::stock::calls::Gen;
use serde_json::Value;

use super::house::{House, refusal};
use super::shop::Shop;

/// Does what a writer does for loads, as if Redis had done all of them.
fn apply_loads(shop: &Shop) {
    shop.run(async |sql| {
        for load in sql.due_loads(1_000).await.unwrap() {
            let amount = |(sku, units): &(_, i64)| (*sku, u32::try_from(units.abs()).unwrap());
            let amounts: Vec<_> = load.changes.iter().map(amount).collect();
            sql.load_done(&load, Gen(0), &amounts).await.unwrap();
        }
    });
}

#[test]
fn an_activity_is_preheated_before_it_opens_by_command_or_by_a_writer_later() {
    let shop = Shop::new();
    let created = shop.create(100, &["--opens", "+1h", "--closes", "+2h"]);
    assert!(
        created.contains("a writer loads the stock at ") && created.contains("activity preheat 7"),
        "{created}"
    );
    assert_eq!(shop.shown()["skus"][0]["total"], 0);
    assert_eq!(shop.shown()["skus"][0]["pending_loads"][0]["units"], 100);
    let list = shop.house.done(&["activity", "list"]);
    assert!(list.contains("a sale"), "{list}");

    let preheated = shop.house.done(&["activity", "preheat", "7"]);
    assert_eq!(
        preheated.trim(),
        "activity 7: 1 loads are pending: the running or the next writer applies them"
    );
    apply_loads(&shop);
    assert_eq!(shop.house.done(&["activity", "preheat", "7"]).trim(), "activity 7: the stock is loaded");
    let sku = &shop.shown()["skus"][0];
    assert_eq!((&sku["total"], &sku["free"], &sku["sold"]), (&100.into(), &100.into(), &0.into()));
    assert_eq!(sku["pending_loads"], Value::Array(Vec::new()));

    // Added and taken by loads, too.
    let added = shop.house.done(&["activity", "stock", "add", "7", "1", "20"]);
    assert!(added.contains("pending: 20 units will be applied by the running or the next writer"), "{added}");
    shop.house.done(&["activity", "stock", "remove", "7", "1", "5"]);
    apply_loads(&shop);
    assert_eq!(shop.shown()["skus"][0]["total"], 115);
    shop.house.done(&["activity", "close", "7"]);
    assert_eq!(shop.shown()["entry_open"], false);
    shop.house.done(&["activity", "open", "7"]);
    assert_eq!(shop.shown()["entry_open"], true);
}

#[test]
fn an_activity_that_opens_soon_is_preheated_when_it_is_created() {
    let shop = Shop::new();
    let created = shop.create(100, &["--opens", "+5m"]);
    assert!(
        created.contains("1 loads are pending: the running or the next writer applies them"),
        "{created}"
    );
    apply_loads(&shop);
    assert_eq!(shop.shown()["skus"][0]["total"], 100);
}

#[test]
fn what_is_refused_is_told_as_on_the_embedded_store() {
    let shop = Shop::new();
    let create = |opens: &'static str| {
        [
            "activity", "create", "--id", "7", "--name", "", "--sku", "1:1:999", "--opens", opens,
            "--closes", "+2h",
        ]
    };
    let refused = |args: &[&str], says: &[&str]| {
        let output = shop.house.run(args);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{args:?}: {error}");
        assert!(says.iter().all(|says| error.contains(says)), "{args:?}: {error}");
    };
    refused(
        &create("now"),
        &["2 problems", "name has 0 characters", "let it open a little later (--opens +1m)"],
    );
    shop.create(100, &["--opens", "+1h", "--closes", "+2h"]);
    refused(&create("+1h"), &["2 problems", "name has 0 characters", "activity 7 exists already"]);
    refused(&["activity", "show", "8"], &["there is no activity 8"]);
    refused(&["activity", "open", "8"], &["there is no activity 8"]);
    refused(&["activity", "preheat", "8"], &["there is no activity 8"]);
    refused(&["activity", "stock", "add", "7", "2", "0"], &["activity 7 has no SKU 2", "0 units"]);
    refused(&["activity", "stock", "add", "7", "1", "1000000000"], &["the greatest stock is"]);
}

#[test]
fn an_activity_that_has_opened_is_not_preheated() {
    let shop = Shop::new();
    shop.create(100, &["--opens", "+1h", "--closes", "+2h"]);
    shop.sql("UPDATE activities SET opens_at_ms = 1");
    let output = shop.house.run(&["activity", "preheat", "7"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("has opened") && error.contains("stock add 7 SKU UNITS"), "{error}");
}

#[test]
fn an_activity_that_is_over_or_closed_is_ended_for_good() {
    let shop = Shop::new();
    shop.create(100, &["--opens", "+5m"]);
    let output = shop.house.run(&["activity", "archive", "7"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("close it first: rushgate activity close 7"), "{error}");
    shop.house.done(&["activity", "close", "7"]);
    for _ in 0..2 {
        let ended = shop.house.done(&["activity", "archive", "7"]);
        assert!(ended.contains("activity 7: ended; a writer archives it"), "{ended}");
    }
    let added = shop.house.run(&["activity", "stock", "add", "7", "1", "5"]);
    let error = String::from_utf8_lossy(&added.stderr);
    assert!(added.status.code() == Some(1) && error.contains("has ended"), "{error}");
    let other = shop.house.run(&["activity", "archive", "8"]);
    assert!(String::from_utf8_lossy(&other.stderr).contains("there is no activity 8"));
    let embedded = House::with_sale(5);
    let output = embedded.run(&["activity", "close", "7"]);
    assert_eq!(output.status.code(), Some(0));
    let output = embedded.run(&["activity", "archive", "7"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("archives nothing"));
}

#[test]
fn a_database_that_cannot_be_used_is_told_and_nothing_is_done() {
    let shop = Shop::new();
    let list = |set: &str| {
        let args = ["activity", "list", "--set", set];
        refusal(&args, &shop.house.run(&args))
    };
    for (set, says) in [
        ("mysql.user=nobody", "refuses the user nobody"),
        ("mysql.database=nothing", "nothing"),
        ("mysql.port=1", "does not answer"),
        ("mysql.password_file=missing", "mysql.password_file = \"missing\": cannot be read"),
    ] {
        let error = list(set);
        assert!(error.contains(says), "{set}: {error}");
    }
    fs::write(shop.house.dir.path().join("password"), "wrong").unwrap();
    let error = list("mysql.connect_timeout=2s");
    assert!(error.contains("refuses the user"), "{error}");
    assert!(!error.contains("wrong"), "the password is never printed: {error}");
}

#[test]
fn the_embedded_store_has_nothing_to_preheat() {
    let house = House::with_sale(5);
    let output = house.run(&["activity", "preheat", "7"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("there is nothing to preheat"), "{error}");
}

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    missing_docs,
    reason = "tests"
)]

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::admission::identity::{ClaimNames, Claims};
use crate::protocol::UserId;

fn fits(rule: &str, asserted: &str) -> bool {
    let rule = Rule::parse(rule).unwrap();
    let names: Vec<String> = rule.names().map(str::to_owned).collect();
    rule.bind(&ClaimNames::new(&names).unwrap()).unwrap().fits_asserted(asserted)
}

#[test]
fn conditions_mean_what_they_say() {
    for (rule, claims, expected) in [
        ("level >= 2", "level=2", true),
        ("level >= 2", "level=1.99", false),
        ("level > 2", "level=2", false),
        ("level < -1", "level=-1.5", true),
        ("level <= 2", "level=2", true),
        ("level == 2", "level=2.0", true),
        ("level != 2", "level=3", true),
        ("vip", "vip=true", true),
        ("vip", "vip=false", false),
        ("vip == false", "vip=false", true),
        ("not vip", "vip=false", true),
        ("city == \"Wuhan\"", "city=Wuhan", true),
        ("city == \"武汉 东\"", "city=武汉 东", true),
        ("city != \"Wuhan\"", "city=Beijing", true),
        // `and` binds closer than `or`, `not` closer than both.
        ("a or b and c", "a=true", true),
        ("(a or b) and c", "a=true", false),
        ("not a and b", "a=false;b=true", true),
        ("not (a and b)", "a=true;b=false", true),
        ("not not a", "a=true", true),
        ("level >= 2 and (vip or city == \"x\")", "level=3; city=x", true),
        ("level>=2 and vip", "level=2;vip=true", true),
    ] {
        assert_eq!(fits(rule, claims), expected, "{rule} with {claims}");
    }
}

#[test]
fn a_claim_that_is_missing_or_of_another_type_fits_no_comparison() {
    for rule in ["level >= 2", "level == 2", "level != 2", "level < 2"] {
        for claims in ["", "vip=true", "level=", "level=\"2\"", "level=true", "level=two", "level", "Level=9"]
        {
            assert!(!fits(rule, claims), "{rule} with {claims:?}");
        }
    }
    for claims in ["", "vip=1", "vip=yes", "vip=\"true\""] {
        assert!(!fits("vip", claims), "{claims:?}");
        assert!(!fits("vip == true", claims) && !fits("vip != true", claims), "{claims:?}");
        // Who is not told to be one is none.
        assert!(fits("not vip", claims), "{claims:?}");
    }
    let long = format!("city={}", "x".repeat(65));
    assert!(!fits("city != \"Wuhan\"", &long), "a text that is too long is not there");
    assert!(fits("city != \"Wuhan\"", &long[..69]));
}

#[test]
fn of_two_assertions_the_first_one_counts_and_what_is_none_is_passed_over() {
    assert!(!fits("level >= 2", "level=1;level=3"));
    assert!(fits("level >= 2", ";;=3;and=1;x y=2;level=3;vip"));
    assert!(fits("city == \"\"", "city=\"\""));
    for hostile in ["level=NaN", "level=inf", "level=1e9", "level=+3", "level=0x10", "level=--3", "level=3."]
    {
        assert!(!fits("level >= 2", hostile) && !fits("level < 2", hostile), "{hostile}");
    }
}

#[test]
fn a_rule_that_does_not_parse_says_where_and_what_would_do() {
    for (rule, at, says) in [
        ("", 1, "expected a claim's name, not or (; found the end"),
        ("level >=", 9, "expected a number, \"text\", true or false after >=; found the end"),
        ("level >= two", 10, "found two"),
        ("level = 2", 7, "write == to compare"),
        ("level => 2", 7, "expected and, or, == != < <= > >=, or the end; found =>"),
        ("level 2", 7, "found 2"),
        ("vip and", 8, "found the end"),
        ("vip and or x", 9, "found or"),
        ("(vip or x", 10, "the ) of a ("),
        ("vip)", 4, "a ) without its ("),
        ("vip x", 5, "found x"),
        ("2 < level", 1, "expected a claim's name"),
        ("level < \"x\"", 9, "< compares numbers alone"),
        ("vip >= true", 8, ">= compares numbers alone"),
        ("city == \"Wu", 9, "a text without the \" at its end"),
        ("城市 == 1", 1, "found 城市"),
        ("city == \"武汉\" und", 14, "expected and, or, or the end; found und"),
        ("level >= 1.2.3", 10, "found 1.2.3"),
        ("level >= --2", 10, "found --2"),
        ("vip; drop", 4, "found ;"),
    ] {
        let error = Rule::parse(rule).unwrap_err();
        assert_eq!(error.at, at, "{rule}: {error}");
        assert!(error.what.contains(says), "{rule}: {error}");
        assert!(error.to_string().starts_with(&format!("at character {at}: ")));
    }
}

#[test]
fn a_rule_is_bounded_in_every_direction() {
    let parse = |text: &str| Rule::parse(text).map(|_| ()).map_err(|error| error.what);
    assert!(parse(&format!("{}vip{}", "(".repeat(15), ")".repeat(15))).is_ok());
    for deep in [format!("{}vip{}", "(".repeat(200), ")".repeat(200)), format!("{}vip", "not ".repeat(100))] {
        assert!(parse(&deep).unwrap_err().contains("more than 16"), "{deep}");
    }
    let names = |count: usize| (0..count).map(|nth| format!("c{nth}")).collect::<Vec<_>>().join(" or ");
    assert!(parse(&names(16)).is_ok());
    assert!(parse(&names(17)).unwrap_err().contains("more than 16 claims"));
    assert!(parse(&format!("a{}", " ".repeat(512))).unwrap_err().contains("513 bytes; at most 512"));
    assert!(parse(&"x".repeat(33)).is_err());
    assert!(parse(&format!("city == \"{}\"", "x".repeat(65))).unwrap_err().contains("more than 64 bytes"));
    // As many as fit side by side.
    assert!(parse(&["a"; 100].join(" or ")).is_ok());
}

#[test]
fn a_rule_that_names_a_claim_nobody_keeps_is_not_bound() {
    let kept = ClaimNames::new(&["level".to_owned()]).unwrap();
    assert_eq!(Rule::parse("level > 1 and vip").unwrap().bind(&kept).unwrap_err(), "vip");
    let bound = Rule::parse("level > 1").unwrap().bind(&kept).unwrap();
    assert!(!bound.fits(&Claims::default()), "a token without claims");
}

fn ids(users: impl IntoIterator<Item = u64>) -> Vec<UserId> {
    users.into_iter().map(UserId).collect()
}

#[test]
fn one_more_user_does_not_copy_a_list_of_a_million() {
    let list = AllowList::of(ids((1..=1_000_000).map(|user| user * 2)));
    let mut now = list.clone();
    for user in 0..5000 {
        now = now.with(&ids([user * 2 + 1]), true);
    }
    assert_eq!((list.len(), now.len()), (1_000_000, 1_005_000));
    assert!(now.contains(UserId(9_999)) && !list.contains(UserId(9_999)));
    assert!(now.contains(UserId(2_000_000)) && !now.contains(UserId(2_000_001)));
}

proptest! {
    #[test]
    fn a_list_is_a_set_whatever_changes_in_whatever_order(
        first in prop::collection::vec(1_u64..40, 0..30),
        changes in prop::collection::vec((prop::collection::vec(1_u64..40, 0..8), any::<bool>()), 0..20),
    ) {
        let mut set: BTreeSet<u64> = first.iter().copied().collect();
        let mut list = AllowList::of(ids(first));
        for (users, is_in) in changes {
            for user in &users {
                if is_in { set.insert(*user); } else { set.remove(user); }
            }
            list = list.with(&ids(users), is_in);
            prop_assert_eq!(list.len(), set.len());
            prop_assert_eq!(list.is_empty(), set.is_empty());
            prop_assert!((0..45).all(|user| list.contains(UserId(user)) == set.contains(&user)));
        }
        prop_assert_eq!(list.users(), ids(set));
    }

    #[test]
    fn no_text_makes_the_parser_or_a_judgement_panic(text in "[a-c(<=>!\"0-9. )notrd;-]{0,60}", claims in ".{0,60}") {
        if let Ok(rule) = Rule::parse(&text) {
            let names: Vec<String> = rule.names().map(str::to_owned).collect();
            let bound = rule.bind(&ClaimNames::new(&names).unwrap()).unwrap();
            bound.fits_asserted(&claims);
            bound.fits_asserted(&text);
            bound.fits(&Claims::default());
        }
    }
}

//! What every store of risk lists keeps.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rushgate::store::risk::{Change, Followed, NewEntry, NewFlag, RiskStore, STEP_ENTRIES};

/// Longer than any wait that a test waits out.
const LONG: Duration = Duration::from_secs(20);

pub fn new(subject: &str, effect: &str, until_ms: u64) -> NewEntry {
    let text = |text: &str| text.to_owned();
    NewEntry { subject: text(subject), effect: text(effect), until_ms, who: text("mia"), why: text("a test") }
}

pub fn changed(subject: &str, listed: Option<(&str, u64)>) -> Change {
    let listed = listed.map(|(effect, until_ms)| (effect.to_owned(), until_ms));
    Change { subject: subject.to_owned(), listed, is_flag: false }
}

pub fn now_ms() -> u64 {
    std::time::UNIX_EPOCH.elapsed().unwrap().as_millis() as u64
}

fn many(range: std::ops::Range<usize>) -> Vec<NewEntry> {
    range.map(|nth| new(&format!("user:{}", nth + 1), "block", 0)).collect()
}

/// What changed after a version, which has to come.
pub async fn follow<S: RiskStore>(store: &S, after: u64) -> (u64, Vec<Change>) {
    let deadline = Instant::now() + LONG;
    loop {
        match store.risk_changes(after, LONG).await.unwrap() {
            Followed::Changes { version, changes } if !changes.is_empty() => return (version, changes),
            Followed::Changes { .. } => assert!(Instant::now() < deadline, "no change after {after}"),
            other => panic!("{other:?}"),
        }
    }
}

/// Everything, by scanning.
pub async fn all<S: RiskStore>(store: &S) -> BTreeMap<String, (String, u64)> {
    let (mut found, mut cursor) = (BTreeMap::new(), None);
    loop {
        let page = store.risk_scan(cursor.as_deref()).await.unwrap();
        found.extend(page.found.into_iter().map(|one| (one.subject, one.listed.unwrap())));
        cursor = page.next;
        if cursor.is_none() {
            return found;
        }
    }
}

/// On an empty store; `other` is another process's view of it.
pub async fn entries_are_kept_and_followed<S: RiskStore, O: RiskStore>(store: &S, other: &O) {
    assert_eq!((store.risk_version().await.unwrap(), all(store).await.len()), (0, 0));
    let nothing = Followed::Changes { version: 0, changes: Vec::new() };
    assert_eq!(store.risk_changes(0, Duration::ZERO).await.unwrap(), nothing);

    // What is listed is kept to the letter, with who, when and why; a new entry replaces the old one.
    let odd = "device:it's \"odd\" {\\n} 误操作 %s \u{1F512}; DROP TABLE";
    let first = store.risk_add(&[new("user:42", "slow", 0), new(odd, "block", 0)]).await.unwrap();
    let until_ms = now_ms() + 3_600_000;
    let second = other.risk_add(&[new("user:42", "block", until_ms)]).await.unwrap();
    assert!(first < second, "{first} {second}");
    assert_eq!(store.risk_version().await.unwrap(), second);
    let asked = ["user:42", "user:43", odd].map(str::to_owned);
    let kept = store.risk_find(&asked).await.unwrap();
    assert_eq!(kept.len(), 2, "{kept:?}");
    let said = (kept[0].subject.as_str(), kept[0].effect.as_str(), kept[0].until_ms);
    assert_eq!(said, ("user:42", "block", until_ms));
    assert_eq!(
        (kept[1].subject.as_str(), kept[1].who.as_str(), kept[1].why.as_str()),
        (odd, "mia", "a test")
    );
    assert!(kept.iter().all(|one| now_ms().abs_diff(one.at_ms) < 600_000), "{kept:?}");
    assert_eq!(store.risk_page(None).await.unwrap().found.len(), 2);

    // Who follows sees each step once, in order, whoever made it.
    let (version, changes) = follow(store, 0).await;
    let due = [
        changed("user:42", Some(("slow", 0))),
        changed(odd, Some(("block", 0))),
        changed("user:42", Some(("block", until_ms))),
    ];
    assert_eq!((version, changes.as_slice()), (second, &due[..]));
    assert_eq!(follow(store, first).await, (second, due[2..].to_vec()));

    // Who is not listed cannot be taken off; that is no step.
    let removed = store.risk_remove(&["user:43".to_owned()]).await.unwrap();
    assert_eq!((removed.version, removed.entries), (second, 0));

    // Who waits is told, of what is changed here and elsewhere.
    let subjects = [odd.to_owned(), "user:43".to_owned()];
    let ((third, heard), removed) = tokio::join!(follow(store, second), other.risk_remove(&subjects));
    let removed = removed.unwrap();
    assert_eq!((removed.version, removed.entries), (third, 1));
    assert_eq!(heard, [changed(odd, None)]);
    let ours = [new("ip:10.0.0.0/8", "slow", 0)];
    let ((fourth, heard), added) = tokio::join!(follow(store, third), store.risk_add(&ours));
    assert_eq!((added.unwrap(), heard), (fourth, vec![changed("ip:10.0.0.0/8", Some(("slow", 0)))]));
    let due = [("ip:10.0.0.0/8", ("slow", 0)), ("user:42", ("block", until_ms))];
    let due = due.map(|(subject, (effect, until_ms))| (subject.to_owned(), (effect.to_owned(), until_ms)));
    assert_eq!(all(store).await, due.into());
}

/// However many are changed at once.
pub async fn many_entries_are_steps_and_pages<S: RiskStore>(store: &S) {
    let entries = 5 * STEP_ENTRIES + 7;
    let last = store.risk_add(&many(0..entries)).await.unwrap();
    assert_eq!(all(store).await.len(), entries);
    let (mut after, mut told) = (0, 0);
    while after < last {
        let (version, changes) = follow(store, after).await;
        told += changes.len();
        after = version;
    }
    assert_eq!(told, entries);
    let subjects: Vec<String> = many(7..entries).into_iter().map(|entry| entry.subject).collect();
    assert_eq!(store.risk_find(&subjects).await.unwrap().len(), entries - 7);
    let removed = store.risk_remove(&subjects).await.unwrap();
    assert_eq!(removed.entries, entries as u64 - 7);
    assert_eq!((all(store).await.len(), store.risk_version().await.unwrap()), (7, removed.version));
}

/// Steps that are gone are not passed over in silence. `steps` are more than are kept, of so many entries.
pub async fn forgotten_steps_are_an_overrun<S: RiskStore>(store: &S, steps: usize, entries: usize) {
    let first = store.risk_add(&many(0..1)).await.unwrap();
    let mut last = first;
    for nth in 0..steps {
        last = store.risk_add(&many(nth..nth + entries)).await.unwrap();
    }
    for after in [0, first] {
        assert_eq!(store.risk_changes(after, Duration::ZERO).await.unwrap(), Followed::Overrun, "{after}");
    }
    let unchanged = Followed::Changes { version: last, changes: Vec::new() };
    assert_eq!(store.risk_changes(last, Duration::ZERO).await.unwrap(), unchanged);
}

/// The store does not grow by what is listed for a time.
pub async fn what_has_passed_is_forgotten<S: RiskStore>(store: &S) {
    let passed = now_ms() - 1;
    let short: Vec<_> = (0..100).map(|nth| new(&format!("device:{nth}"), "slow", passed)).collect();
    store.risk_add(&short).await.unwrap();
    store.risk_add(&[new("user:1", "slow", now_ms() + 3_600_000), new("user:2", "block", 0)]).await.unwrap();
    // Listed for good meanwhile: it stays.
    store.risk_add(&[new("device:0", "block", 0)]).await.unwrap();
    for _ in 0..20 {
        store.risk_add(&[new("user:3", "block", 0)]).await.unwrap();
    }
    let left: Vec<String> = all(store).await.into_keys().collect();
    assert_eq!(left, ["device:0", "user:1", "user:2", "user:3"]);
}

/// As a gateway lists it that has looked before.
async fn flag<S: RiskStore>(store: &S, subject: &str, effect: &str, until_ms: u64) -> NewFlag {
    let entry = NewEntry { who: "gateway 9".to_owned(), ..new(subject, effect, until_ms) };
    let seen = store.risk_find(&[subject.to_owned()]).await.unwrap().pop();
    NewFlag { entry, seen }
}

/// What an operator changes between a gateway's look and its flag stays as he has made it.
pub async fn flags_are_listed_only_over_what_the_gateway_has_seen<S: RiskStore, O: RiskStore>(
    store: &S,
    operator: &O,
) {
    let soon_ms = now_ms() + 600_000;
    // Nothing stands there; another flag; an operator's whose time has passed.
    operator.risk_add(&[new("user:3", "block", now_ms() - 1)]).await.unwrap();
    let passed = flag(store, "user:3", "slow", soon_ms).await;
    let first = flag(store, "user:1", "slow", soon_ms).await;
    assert_eq!(store.risk_flag(&[first.clone(), passed.clone()]).await.unwrap(), [true, true]);
    let worse = flag(store, "user:1", "block", soon_ms).await;
    assert!(worse.seen.as_ref().is_some_and(|seen| seen.is_flag() && seen.effect == "slow"));
    assert_eq!(store.risk_flag(std::slice::from_ref(&worse)).await.unwrap(), [true]);
    let listed = all(store).await;
    assert_eq!(listed["user:1"], ("block".to_owned(), soon_ms));
    assert_eq!(listed["user:3"], ("slow".to_owned(), soon_ms));
    // A copy of a flag that came before changes nothing and is told the same; a late one of an earlier flag neither.
    let version = store.risk_version().await.unwrap();
    assert_eq!(store.risk_flag(&[worse, first]).await.unwrap(), [true, false]);
    assert_eq!(store.risk_version().await.unwrap(), version, "no step");

    // Listed where nothing stood, replaced, and taken off, each after the look; and one that nobody has touched.
    let looks = [
        flag(store, "user:1", "slow", soon_ms + 1).await,
        flag(store, "user:2", "slow", soon_ms).await,
        flag(store, "user:3", "block", soon_ms).await,
        flag(store, "user:4", "block", soon_ms).await,
    ];
    operator.risk_add(&[new("user:1", "slow", 0), new("user:2", "block", 0)]).await.unwrap();
    operator.risk_remove(&["user:3".to_owned()]).await.unwrap();
    assert_eq!(store.risk_flag(&looks).await.unwrap(), [false, false, false, true]);
    let due = [("user:1", ("slow", 0)), ("user:2", ("block", 0)), ("user:4", ("block", soon_ms))];
    let due = due.map(|(subject, (effect, until_ms))| (subject.to_owned(), (effect.to_owned(), until_ms)));
    assert_eq!(all(store).await, due.into());
    let kept = store.risk_find(&["user:1", "user:2", "user:4"].map(str::to_owned)).await.unwrap();
    assert_eq!(kept.iter().map(|one| one.who.as_str()).collect::<Vec<_>>(), ["mia", "mia", "gateway 9"]);
    // Who follows is told of those that were listed.
    let told = follow(store, version).await.1;
    assert!(told.iter().any(|one| one.subject == "user:4"), "{told:?}");
    assert!(store.risk_flag(&[]).await.unwrap().is_empty());
}

/// The store has forgotten an entry whose time had passed, after a gateway has looked: nobody has taken it off.
pub async fn a_flag_replaces_what_was_forgotten<S: RiskStore>(store: &S) {
    let passed = new("user:1", "block", now_ms() - 1);
    store.risk_add(&[passed]).await.unwrap();
    let flag = flag(store, "user:1", "slow", now_ms() + 600_000).await;
    assert!(flag.seen.is_some());
    store.risk_add(&[new("user:2", "block", 0)]).await.unwrap();
    assert!(store.risk_find(&["user:1".to_owned()]).await.unwrap().is_empty(), "forgotten");
    assert_eq!(store.risk_flag(&[flag]).await.unwrap(), [true]);
    assert_eq!(all(store).await["user:1"].0, "slow");
}

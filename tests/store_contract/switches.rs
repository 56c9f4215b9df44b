//! What every store of switches keeps.

use std::time::{Duration, Instant};

use rushgate::store::switches::{CHANGES_KEPT, NewSwitch, SetSwitch, SwitchStore, Switches};

/// Longer than any wait that a test waits out.
const LONG: Duration = Duration::from_secs(20);

pub fn new(name: &str, value: &str, why: &str) -> NewSwitch {
    let text = |text: &str| text.to_owned();
    NewSwitch { name: text(name), value: text(value), who: text("mia"), why: text(why) }
}

fn said(switch: &SetSwitch) -> (&str, &str, &str, &str) {
    (&switch.name, &switch.value, &switch.who, &switch.why)
}

/// Changes after a version, which have to come.
async fn changes<S: SwitchStore>(store: &S, after: u64) -> Vec<SetSwitch> {
    let deadline = Instant::now() + LONG;
    loop {
        let changes = store.switch_changes(after, LONG).await.unwrap();
        if !changes.is_empty() {
            return changes;
        }
        assert!(Instant::now() < deadline, "no change after {after}");
    }
}

/// On an empty store; `other` is another process's view of it.
pub async fn switches_are_kept_and_followed<S: SwitchStore, O: SwitchStore>(store: &S, other: &O) {
    assert_eq!(store.switches().await.unwrap(), Switches::default());
    assert!(store.switch_changes(0, Duration::ZERO).await.unwrap().is_empty());

    // What is set is kept to the letter, with who, when and why; a new value replaces the old one.
    let odd = "it's \"odd\" {\\n} 误操作 %s \u{1F512}; DROP TABLE";
    let first = store.set_switch(&new("entry", "closed", odd)).await.unwrap();
    let second = store.set_switch(&new("entry/7", "closed", "stock")).await.unwrap();
    let third = other.set_switch(&new("entry", "open", "over")).await.unwrap();
    assert!(first < second && second < third, "{first} {second} {third}");
    let kept = store.switches().await.unwrap();
    assert!(kept.unreadable.is_empty());
    assert!(
        kept.set
            .iter()
            .map(said)
            .eq([("entry", "open", "mia", "over"), ("entry/7", "closed", "mia", "stock")])
    );
    assert_eq!((kept.version(), kept.set[1].version), (third, second));
    let now_ms = std::time::UNIX_EPOCH.elapsed().unwrap().as_millis() as u64;
    assert!(kept.set.iter().all(|switch| now_ms.abs_diff(switch.at_ms) < 600_000), "{kept:?}");

    // Who follows sees each change once, in order, whoever made it.
    let told = changes(store, 0).await;
    assert!(told.iter().map(|switch| switch.version).eq([first, second, third]), "{told:?}");
    assert_eq!(said(&told[0]), ("entry", "closed", "mia", odd));
    assert!(changes(store, second).await.iter().map(|switch| switch.version).eq([third]));
    assert!(store.switch_changes(third, Duration::from_millis(20)).await.unwrap().is_empty());

    // Who waits is told, of what is set here and elsewhere.
    let (elsewhere, here) = (new("log_level", "debug", "look"), new("entry/7", "open", "found"));
    let (heard, set) = tokio::join!(changes(store, third), other.set_switch(&elsewhere));
    let fourth = set.unwrap();
    assert!(heard.iter().map(|switch| switch.version).eq([fourth]));
    let (heard, set) = tokio::join!(changes(store, fourth), store.set_switch(&here));
    assert_eq!((heard.len(), heard[0].version), (1, set.unwrap()));
}

/// The log is bounded; what holds is not.
pub async fn the_last_changes_are_kept_and_every_switch<S: SwitchStore>(store: &S) {
    let mut last = 0;
    for nth in 0..CHANGES_KEPT + 5 {
        let version = store.set_switch(&new(&format!("entry/{nth}"), "closed", "many")).await.unwrap();
        assert!(version > last, "{version} after {last}");
        last = version;
    }
    assert_eq!(store.switches().await.unwrap().set.len(), CHANGES_KEPT + 5);
    let (mut after, mut told) = (0, 0);
    while after < last {
        let some = changes(store, after).await;
        told += some.len();
        after = some.last().unwrap().version;
    }
    assert_eq!(told, CHANGES_KEPT);
}

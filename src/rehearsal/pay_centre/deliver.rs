//! Telling writers of payments, each until one of them has answered.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::{Inner, count, now_ms};
use crate::payment::http::{Target, post, post_signed};
use crate::payment::{Payment, notice_body};

const PATIENCE: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
const PATH: &str = "/payments";

/// Until the payment centre ends.
pub(super) async fn run(
    inner: Weak<Inner>,
    mut notices: mpsc::UnboundedReceiver<Payment>,
    writers: Vec<Target>,
) {
    let mut telling = JoinSet::new();
    let writers: Arc<[Target]> = writers.into();
    while let Some(payment) = notices.recv().await {
        telling.spawn(tell(Weak::clone(&inner), payment, Arc::clone(&writers)));
        // Those that are done are let go of.
        while telling.try_join_next().is_some() {}
    }
}

async fn tell(inner: Weak<Inner>, payment: Payment, writers: Arc<[Target]>) {
    let Some(centre) = inner.upgrade() else { return };
    let faults = &centre.faults;
    let (delay, repeats, forges) =
        centre.with_till(|till| (till.part(), till.hits(faults.repeat_rate), till.hits(faults.forge_rate)));
    tokio::time::sleep(faults.notice_delay_max.mul_f64(delay)).await;
    let body = notice_body(&payment);
    if forges {
        forge(&centre, &writers, &body).await;
    }
    until_answered(&centre, &writers, &body).await;
    if repeats {
        tokio::time::sleep(faults.notice_delay_max.mul_f64(delay)).await;
        count(&centre.counts.told_again);
        until_answered(&centre, &writers, &body).await;
    }
}

/// Signed with a key that nobody has: it has to be refused.
async fn forge(centre: &Inner, writers: &[Target], body: &str) {
    let Some(writer) = writers.first() else { return };
    let signature = "0".repeat(64);
    let answered = post_signed(writer, PATH, (now_ms(), &signature), body.to_owned(), PATIENCE).await;
    match answered {
        Ok((401, _)) => count(&centre.counts.forged_refused),
        Ok((status, _)) if status < 500 => count(&centre.counts.unexpected),
        // Nobody there, or not yet.
        Ok(_) | Err(_) => {}
    }
}

async fn until_answered(centre: &Inner, writers: &[Target], body: &str) {
    let mut pause = FIRST_PAUSE;
    for writer in writers.iter().cycle() {
        count(&centre.counts.told);
        let answered = post(writer, PATH, &centre.keys, now_ms(), body.to_owned(), PATIENCE).await;
        match answered {
            Ok((status, answer)) if status < 500 => return note(centre, status, &answer),
            Ok(_) | Err(_) => tokio::time::sleep(pause).await,
        }
        pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
    }
}

fn note(centre: &Inner, status: u16, answer: &[u8]) {
    let answer: serde_json::Value = serde_json::from_slice(answer).unwrap_or_default();
    let counts = &centre.counts;
    let counter = match (status, answer.get("result").and_then(serde_json::Value::as_str)) {
        (200, Some("paid")) => &counts.paid,
        (202, Some("parked")) => &counts.parked,
        (200, Some("refund_due")) => &counts.refund_due,
        _ => &counts.unexpected,
    };
    count(counter);
}

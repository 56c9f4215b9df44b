//! What `rushgate takeover` prints: what is known before it, what it came to, and what to type next.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::protocol::ActivityId;
use crate::store::shared::takeover::Looked;
use crate::store::sql::mysql::{Outlook, TakenSku, Takeover};

/// Failed reservations that are told one by one.
const TOLD_MAX: usize = 20;

/// From Redis to the database, or back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    There,
    Back,
}

/// What was found before anything was done.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) activities: Vec<(ActivityId, Outlook)>,
    pub(super) looked: Looked,
    pub(super) redis_answers: bool,
    pub(super) redis_serves: bool,
}

/// For a person.
pub(super) fn outlook_text(way: Way, found: &Found) -> String {
    let mut text = String::new();
    let redis = match (found.redis_answers, found.redis_serves) {
        (false, _) => "does not answer",
        (true, false) => "answers, but not all of its shards serve",
        (true, true) => "answers, and all of its shards serve",
    };
    let _ = writeln!(text, "Redis {redis}");
    if way == Way::There {
        let (live, answered) = (found.looked.live.len(), found.looked.answered.len());
        let _ = writeln!(text, "gateways that live: {live}; {answered} have told what they know");
    }
    if found.activities.is_empty() {
        let _ = writeln!(text, "there is no activity to do it to");
    }
    for (id, outlook) in &found.activities {
        match (&outlook.refused, outlook.is_taken, way) {
            (Some(refused), ..) => {
                let _ = writeln!(text, "activity {id}: refused: {refused}");
                continue;
            }
            (None, true, Way::There) => {
                let _ = writeln!(text, "activity {id}: taken over already; it came to");
            }
            (None, _, Way::There) => {
                let _ = writeln!(text, "activity {id}: would be sold from the database");
            }
            (None, _, Way::Back) => {
                let _ = writeln!(text, "activity {id}: would be sold by Redis again");
            }
        }
        table(&mut text, &outlook.skus, way);
    }
    text
}

fn table(text: &mut String, skus: &[TakenSku], way: Way) {
    let _ = match way {
        Way::There => writeln!(
            text,
            "{:>7}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}",
            "SKU", "total", "unpaid", "paid", "closed", "reserved", "FAILED", "reserve", "for sale"
        ),
        Way::Back => {
            writeln!(text, "{:>7}  {:>9}  {:>9}  {:>9}  {:>9}", "SKU", "total", "unpaid", "paid", "for sale")
        }
    };
    for TakenSku { sku, total, unpaid, paid, closed, handed_in, failed_orders, reserve_free, opened } in skus
    {
        let sku = sku.0;
        let _ = match way {
            Way::There => writeln!(
                text,
                "{sku:>7}  {total:>9}  {unpaid:>9}  {paid:>9}  {closed:>9}  {handed_in:>9}  {failed_orders:>9}  \
                 {reserve_free:>9}  {opened:>9}"
            ),
            Way::Back => writeln!(text, "{sku:>7}  {total:>9}  {unpaid:>9}  {paid:>9}  {opened:>9}"),
        };
    }
}

/// For a person.
pub(super) fn done_text(way: Way, done: &[(ActivityId, Takeover)]) -> String {
    let mut text = String::new();
    for (id, one) in done {
        match one {
            Takeover::Done { skus, failed } => {
                let what =
                    if way == Way::There { "is sold from the database" } else { "is sold by Redis again" };
                let _ = writeln!(text, "activity {id}: {what}");
                table(&mut text, skus, way);
                for (user, order) in failed.iter().take(TOLD_MAX) {
                    let _ = writeln!(text, "order {order} of user {user}: FAILED");
                }
                if let Some(more) = failed.len().checked_sub(TOLD_MAX).filter(|more| *more > 0) {
                    let _ = writeln!(text, "… and {more} more; --json tells all");
                }
            }
            Takeover::WasDone(skus) => {
                let _ = writeln!(text, "activity {id}: was taken over before; it came to");
                table(&mut text, skus, way);
            }
            Takeover::Refused(refused) => {
                let _ = writeln!(text, "activity {id}: refused: {refused}");
            }
            Takeover::Gen(_) => {}
        }
    }
    if way == Way::There {
        text.push_str(
            "next, while Redis is away: rushgate switch set stock.mode database --why \"Redis is gone\"   (gateways are \
             ready without it)\nonce there is a Redis again: rushgate takeover --back --all\n",
        );
    }
    text
}

fn sku_json(one: &TakenSku) -> Value {
    json!({
        "sku": one.sku.0, "total": one.total, "unpaid": one.unpaid, "paid": one.paid, "closed": one.closed,
        "handed_in": one.handed_in, "failed_orders": one.failed_orders, "reserve_free": one.reserve_free,
        "opened": one.opened,
    })
}

/// For a machine.
pub(super) fn outlook_json(found: &Found) -> Value {
    let activity = |(id, one): &(ActivityId, Outlook)| {
        json!({
            "activity": id.0, "taken": one.is_taken, "refused": one.refused.map(|refused| refused.to_string()),
            "skus": one.skus.iter().map(sku_json).collect::<Vec<_>>(),
        })
    };
    json!({
        "done": false,
        "redis_answers": found.redis_answers,
        "redis_serves": found.redis_serves,
        "gateways": found.looked.live.len(),
        "gateways_answered": found.looked.answered.len(),
        "activities": found.activities.iter().map(activity).collect::<Vec<_>>(),
    })
}

/// For a machine.
pub(super) fn done_json(done: &[(ActivityId, Takeover)]) -> Value {
    let activity = |(id, one): &(ActivityId, Takeover)| match one {
        Takeover::Done { skus, failed } => json!({
            "activity": id.0, "result": "done", "skus": skus.iter().map(sku_json).collect::<Vec<_>>(),
            "failed": failed.iter().map(|(user, order)| json!({"user": user.0, "order": order.0.to_string()}))
                .collect::<Vec<_>>(),
        }),
        Takeover::WasDone(skus) => json!({
            "activity": id.0, "result": "was_done", "skus": skus.iter().map(sku_json).collect::<Vec<_>>(),
        }),
        Takeover::Refused(refused) => {
            json!({"activity": id.0, "result": "refused", "refused": refused.to_string()})
        }
        Takeover::Gen(_) => json!({"activity": id.0, "result": "overtaken"}),
    };
    json!({"done": true, "activities": done.iter().map(activity).collect::<Vec<_>>()})
}

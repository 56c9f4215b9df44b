//! Asking the payment centre to close orders, many at once: `POST /close` with `{"orders":["68719476737"]}`.
//!
//! The answer names each with a state: *closed* means that nobody can pay it any more; *paid* comes with the payment;
//! everything else, an order that is not named included, is *unknown*, which closes nothing.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::notice::order_number;
use super::verdict::{Payment, PaymentId};
use crate::protocol::OrderNumber;

/// What the payment centre says of one order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// It is closed there: nobody can pay it any more.
    Closed,
    /// It is paid.
    Paid(Payment),
    /// It does not know, or not yet.
    Unknown,
}

/// Why an answer could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the payment centre's answer is not understood: {0}")]
pub struct AskedError(String);

#[derive(Debug, Serialize, Deserialize)]
struct AskBody {
    orders: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct AskedBody {
    orders: Vec<AskedOrder>,
}

/// More fields may come with newer payment centres.
#[derive(Debug, Serialize, Deserialize)]
struct AskedOrder {
    order: String,
    state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    payment: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    amount_minor: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    paid_at_ms: Option<u64>,
}

/// The body that asks to close these orders.
pub fn ask_body(orders: &[OrderNumber]) -> String {
    let body = AskBody { orders: orders.iter().map(ToString::to_string).collect() };
    serde_json::to_string(&body).unwrap_or_default()
}

/// The orders that a body asks to close, or what is wrong with it.
pub fn read_ask(body: &[u8]) -> Result<Vec<OrderNumber>, String> {
    let body: AskBody = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    body.orders.iter().map(|order| order_number(order)).collect()
}

/// The answer to such a body.
pub fn asked_body(answers: &[(OrderNumber, Asked)]) -> String {
    let one = |(order, asked): &(OrderNumber, Asked)| {
        let (state, payment) = match asked {
            Asked::Closed => ("closed", None),
            Asked::Paid(payment) => ("paid", Some(payment)),
            Asked::Unknown => ("unknown", None),
        };
        AskedOrder {
            order: order.to_string(),
            state: state.to_owned(),
            payment: payment.map(|payment| payment.id.as_str().to_owned()),
            amount_minor: payment.map(|payment| payment.amount_minor),
            paid_at_ms: payment.map(|payment| payment.paid_at_ms),
        }
    };
    serde_json::to_string(&AskedBody { orders: answers.iter().map(one).collect() }).unwrap_or_default()
}

/// What is said of each of these orders, in their order.
pub fn read_asked(orders: &[OrderNumber], body: &[u8]) -> Result<Vec<(OrderNumber, Asked)>, AskedError> {
    let body: AskedBody = serde_json::from_slice(body).map_err(|error| AskedError(error.to_string()))?;
    let mut said: HashMap<OrderNumber, Asked> = HashMap::with_capacity(body.orders.len());
    for one in body.orders {
        let Ok(order) = order_number(&one.order) else { continue };
        let asked = asked(order, &one);
        // Told twice and not the same: it does not know what it says.
        said.entry(order)
            .and_modify(|before| {
                if *before != asked {
                    *before = Asked::Unknown;
                }
            })
            .or_insert_with(|| asked.clone());
    }
    Ok(orders.iter().map(|order| (*order, said.remove(order).unwrap_or(Asked::Unknown))).collect())
}

fn asked(order: OrderNumber, one: &AskedOrder) -> Asked {
    match one.state.as_str() {
        "closed" => Asked::Closed,
        "paid" => {
            let id = one.payment.as_deref().and_then(PaymentId::new);
            match (id, one.amount_minor) {
                (Some(id), Some(amount_minor)) => {
                    let paid_at_ms = one.paid_at_ms.unwrap_or_default();
                    Asked::Paid(Payment { id, order, amount_minor, paid_at_ms })
                }
                // Paid, it says, and not how: its notice will.
                _ => Asked::Unknown,
            }
        }
        _ => Asked::Unknown,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    const ORDERS: [OrderNumber; 3] = [OrderNumber(1 << 60), OrderNumber(2), OrderNumber(3)];

    fn said(body: &str) -> Vec<Asked> {
        let answers = read_asked(&ORDERS, body.as_bytes()).unwrap();
        assert!(answers.iter().map(|(order, _)| *order).eq(ORDERS));
        answers.into_iter().map(|(_, asked)| asked).collect()
    }

    #[test]
    fn questions_and_answers_are_read_as_they_were_written() {
        assert_eq!(ask_body(&ORDERS), r#"{"orders":["1152921504606846976","2","3"]}"#);
        assert_eq!(read_ask(ask_body(&ORDERS).as_bytes()), Ok(ORDERS.to_vec()));
        assert!(read_ask(br#"{"orders":["x"]}"#).is_err() && read_ask(b"{}").is_err());
        let payment =
            Payment { id: PaymentId::new("p").unwrap(), order: ORDERS[1], amount_minor: 100, paid_at_ms: 9 };
        let answers: Vec<_> =
            ORDERS.into_iter().zip([Asked::Closed, Asked::Paid(payment), Asked::Unknown]).collect();
        assert_eq!(read_asked(&ORDERS, asked_body(&answers).as_bytes()), Ok(answers));
    }

    #[test]
    fn what_is_not_clearly_closed_or_paid_is_unknown() {
        for order in [
            "",
            r#"{"order":"2","state":"CLOSED"}"#,
            r#"{"order":"2","state":"refused"}"#,
            r#"{"order":"2","state":"paid"}"#,
            r#"{"order":"2","state":"paid","payment":"a b","amount_minor":1}"#,
            r#"{"order":"2","state":"paid","payment":"p"}"#,
            r#"{"order":"+2","state":"closed"}"#,
            r#"{"order":"77","state":"closed"}"#,
            r#"{"order":"2","state":"closed"},{"order":"2","state":"paid","payment":"p","amount_minor":1}"#,
            r#"{"order":"2","state":"unknown"},{"order":"2","state":"closed"}"#,
        ] {
            let body = format!(r#"{{"more":1,"orders":[{order}]}}"#);
            assert_eq!(said(&body), [Asked::Unknown, Asked::Unknown, Asked::Unknown], "{order}");
        }
        let closed = r#"{"orders":[{"order":"2","state":"closed","more":1},{"order":"2","state":"closed"}]}"#;
        assert_eq!(said(closed), [Asked::Unknown, Asked::Closed, Asked::Unknown]);
        for wrong in ["", "{}", "[]", r#"{"orders":1}"#, r#"{"orders":[{"order":2,"state":"closed"}]}"#] {
            assert!(read_asked(&ORDERS, wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}

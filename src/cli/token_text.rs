//! How tokens and claims are written on the command line.

use std::io::{self, Read as _};

use serde_json::{Value, json};

use super::Failure;
use crate::admission::identity::{Claim, TOKEN_BYTES_MAX, asserted};

/// The token on the command line, or on standard input.
pub(super) fn given(token: String) -> Result<String, Failure> {
    let token = if token == "-" {
        let mut text = String::new();
        let bytes_max = u64::try_from(TOKEN_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(2);
        io::stdin()
            .take(bytes_max)
            .read_to_string(&mut text)
            .map_err(|error| Failure::cannot_start(format!("standard input cannot be read: {error}")))?;
        text
    } else {
        token
    };
    Ok(token.trim().to_owned())
}

/// Written as in a rule, or as a back end asserts it.
pub(super) fn parse_claim(text: &str) -> Result<(String, Value), String> {
    const TAKEN: [&str; 7] = ["sub", "aud", "iss", "iat", "exp", "nbf", "scope"];
    let mut claims = asserted(text);
    let (Some((name, claim)), None) = (claims.next(), claims.next()) else {
        return Err("write NAME=VALUE, such as level=3, vip=true or city=Wuhan".to_owned());
    };
    if TAKEN.contains(&name) {
        return Err(format!("{name} is told otherwise, or not at all"));
    }
    let value = match claim {
        Claim::Number(number) => json!(number),
        Claim::Flag(flag) => json!(flag),
        Claim::Text(text) => json!(text),
    };
    Ok((name.to_owned(), value))
}

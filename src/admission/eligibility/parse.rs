//! Reads the text of a rule. Told where it goes wrong and what would do; never deeper than [`DEPTH_MAX`], so that no text
//! can use up the stack.
//!
//! ```text
//! rule      = all *("or" all)
//! all       = one *("and" one)
//! one       = "not" one / "(" rule ")" / NAME / NAME compare literal
//! compare   = "==" / "!=" / "<" / "<=" / ">" / ">="      order only for numbers
//! literal   = NUMBER / "true" / "false" / '"' text '"'
//! ```

use super::rule::{Compare, Condition, Literal, RULE_BYTES_MAX, Rule, RuleError};
use crate::admission::identity::{CLAIM_TEXT_BYTES_MAX, CLAIMS_MAX, is_claim_name, number};

/// Parentheses and `not` within each other.
const DEPTH_MAX: usize = 16;

const COMPARES: [(&str, Compare); 6] = [
    ("==", Compare::Equal),
    ("!=", Compare::NotEqual),
    ("<=", Compare::AtMost),
    (">=", Compare::AtLeast),
    ("<", Compare::Less),
    (">", Compare::Greater),
];

impl Rule {
    /// Compiles a text such as `level >= 2 and (vip or city == "Wuhan")`.
    pub fn parse(text: &str) -> Result<Self, RuleError> {
        let mut parser = Parser { text, rest: text, names: Vec::new(), depth: 0 };
        if text.len() > RULE_BYTES_MAX {
            let what = format!("the rule has {} bytes; at most {RULE_BYTES_MAX}", text.len());
            return Err(RuleError { at: 1, what });
        }
        let condition = parser.any()?;
        match parser.peek() {
            "" => Ok(Self { condition, names: parser.names }),
            ")" => Err(parser.fault("a ) without its (")),
            other => Err(parser.fault(&format!("expected and, or, or the end; found {other}"))),
        }
    }
}

struct Parser<'a> {
    text: &'a str,
    rest: &'a str,
    names: Vec<Box<str>>,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn any(&mut self) -> Result<Condition, RuleError> {
        let mut conditions = vec![self.all()?];
        while self.take("or") {
            conditions.push(self.all()?);
        }
        Ok(joined(conditions, Condition::Any))
    }

    fn all(&mut self) -> Result<Condition, RuleError> {
        let mut conditions = vec![self.one()?];
        while self.take("and") {
            conditions.push(self.one()?);
        }
        Ok(joined(conditions, Condition::All))
    }

    fn one(&mut self) -> Result<Condition, RuleError> {
        self.depth = self.depth.saturating_add(1);
        if self.depth > DEPTH_MAX {
            return Err(self.fault(&format!("more than {DEPTH_MAX} parentheses and not within each other")));
        }
        let condition = if self.take("not") {
            Condition::Not(Box::new(self.one()?))
        } else if self.take("(") {
            let inner = self.any()?;
            if !self.take(")") {
                return Err(self.expected("and, or, or the ) of a ("));
            }
            inner
        } else {
            self.claim()?
        };
        self.depth = self.depth.saturating_sub(1);
        Ok(condition)
    }

    fn claim(&mut self) -> Result<Condition, RuleError> {
        let name = self.peek();
        if !is_claim_name(name) {
            return Err(self.expected("a claim's name, not or ("));
        }
        let nth = match self.names.iter().position(|known| &**known == name) {
            Some(nth) => nth,
            None if self.names.len() >= CLAIMS_MAX => {
                return Err(self.fault(&format!("more than {CLAIMS_MAX} claims in one rule")));
            }
            None => {
                self.names.push(name.into());
                self.names.len().saturating_sub(1)
            }
        };
        self.skip(name);
        let found = self.peek();
        let Some((spelling, compare)) = COMPARES.into_iter().find(|(spelling, _)| *spelling == found) else {
            return match found {
                "" | "and" | "or" | ")" => Ok(Condition::Holds(nth)),
                "=" => Err(self.fault("write == to compare")),
                _ => Err(self.expected("and, or, == != < <= > >=, or the end")),
            };
        };
        self.skip(spelling);
        let literal_begins = self.rest;
        let literal = self.literal(spelling)?;
        let orders = !matches!(compare, Compare::Equal | Compare::NotEqual);
        if orders && !matches!(literal, Literal::Number(_)) {
            self.rest = literal_begins;
            return Err(self.fault(&format!("{spelling} compares numbers alone; use == or !=")));
        }
        Ok(Condition::Compares(nth, compare, literal))
    }

    fn literal(&mut self, after: &str) -> Result<Literal, RuleError> {
        let found = self.peek();
        let literal = match found {
            "true" => Literal::Flag(true),
            "false" => Literal::Flag(false),
            _ if found.starts_with('"') => {
                let Some(text) = found.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else {
                    return Err(self.fault("a text without the \" at its end"));
                };
                if text.len() > CLAIM_TEXT_BYTES_MAX {
                    return Err(self.fault(&format!("a text of more than {CLAIM_TEXT_BYTES_MAX} bytes")));
                }
                Literal::Text(text.into())
            }
            _ => {
                let Some(number) = number(found) else {
                    let wanted = format!("a number, \"text\", true or false after {after}");
                    return Err(self.expected(&wanted));
                };
                Literal::Number(number)
            }
        };
        self.skip(found);
        Ok(literal)
    }

    /// The next word, sign or text in quotes; empty at the end.
    fn peek(&mut self) -> &'a str {
        self.rest = self.rest.trim_start();
        let rest = self.rest;
        let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.');
        let is_compare = |c: char| matches!(c, '=' | '!' | '<' | '>');
        let bytes = match rest.chars().next() {
            None => 0,
            Some('"') => rest
                .char_indices()
                .skip(1)
                .find(|(_, c)| *c == '"')
                .map_or(rest.len(), |(at, _)| at.saturating_add(1)),
            Some(c) if is_compare(c) => rest.find(|c| !is_compare(c)).unwrap_or(rest.len()),
            Some(c) if is_word(c) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            Some('-') => {
                let digits = rest.trim_start_matches('-');
                let end = digits.find(|c| !is_word(c)).unwrap_or(digits.len());
                rest.len().saturating_sub(digits.len()).saturating_add(end)
            }
            Some(c) => c.len_utf8(),
        };
        rest.get(..bytes).unwrap_or_default()
    }

    fn skip(&mut self, token: &str) {
        self.rest = self.rest.get(token.len()..).unwrap_or_default();
    }

    fn take(&mut self, wanted: &str) -> bool {
        let is_next = self.peek() == wanted;
        if is_next {
            self.skip(wanted);
        }
        is_next
    }

    fn expected(&mut self, wanted: &str) -> RuleError {
        let found = match self.peek() {
            "" => "the end".to_owned(),
            found => found.to_owned(),
        };
        self.fault(&format!("expected {wanted}; found {found}"))
    }

    /// At what comes next.
    fn fault(&self, what: &str) -> RuleError {
        let rest = self.rest.trim_start();
        let before = self.text.get(..self.text.len().saturating_sub(rest.len())).unwrap_or_default();
        RuleError { at: before.chars().count().saturating_add(1), what: what.to_owned() }
    }
}

fn joined(mut conditions: Vec<Condition>, join: fn(Vec<Condition>) -> Condition) -> Condition {
    match (conditions.pop(), conditions.is_empty()) {
        (Some(only), true) => only,
        (last, _) => {
            conditions.extend(last);
            join(conditions)
        }
    }
}

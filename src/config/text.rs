//! Durations and sizes as people write them: `200us`, `10s`, `15m`; `4KiB`, `1MiB`. A whole number and a unit,
//! nothing else, so that each value has one meaning. Without I/O; the command line uses the same functions.

use std::time::Duration;

/// Nanoseconds per unit, ascending.
const TIME_UNITS: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Bytes per unit, ascending.
const SIZE_UNITS: &[(&str, u64)] = &[("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];

/// Why a text is no duration or size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// It does not begin with a digit.
    #[error("it does not begin with a whole number")]
    NoNumber,
    /// A bare number, which might mean anything.
    #[error("it has no unit ({units})")]
    NoUnit {
        /// Those known.
        units: String,
    },
    /// The text after the number is no unit.
    #[error("{unit:?} is not a unit ({units})")]
    UnknownUnit {
        /// What was written.
        unit: String,
        /// Those known.
        units: String,
    },
    /// More than can be counted.
    #[error("the number is too great")]
    TooGreat,
}

/// `"10s"` → 10 seconds. Units: ns, us, ms, s, m, h.
pub fn parse_duration(text: &str) -> Result<Duration, TextError> {
    parse(text, TIME_UNITS).map(Duration::from_nanos)
}

/// The shortest exact form: `90s`, not `90000ms`; `1500ms`, not `1.5s`.
pub fn format_duration(duration: Duration) -> String {
    // Everything parsed fits (584 years); anything longer is shown as that.
    let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    if nanos == 0 { "0s".to_owned() } else { format(nanos, TIME_UNITS) }
}

/// `"4KiB"` → 4096. Units: B, KiB, MiB, GiB.
pub fn parse_bytes(text: &str) -> Result<usize, TextError> {
    usize::try_from(parse(text, SIZE_UNITS)?).map_err(|_| TextError::TooGreat)
}

/// The shortest exact form: `64KiB`, not `65536B`.
pub fn format_bytes(bytes: usize) -> String {
    format(u64::try_from(bytes).unwrap_or(u64::MAX), SIZE_UNITS)
}

fn parse(text: &str, units: &[(&str, u64)]) -> Result<u64, TextError> {
    let names = || units.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let unit = text.trim_start_matches(|letter: char| letter.is_ascii_digit());
    let number = text.strip_suffix(unit).unwrap_or_default();
    if number.is_empty() {
        return Err(TextError::NoNumber);
    }
    if unit.is_empty() {
        return Err(TextError::NoUnit { units: names() });
    }
    let (_, scale) = units
        .iter()
        .find(|(name, _)| *name == unit)
        .ok_or_else(|| TextError::UnknownUnit { unit: unit.to_owned(), units: names() })?;
    // Digits only, so that the one possible failure is too many of them.
    let number: u64 = number.parse().map_err(|_| TextError::TooGreat)?;
    number.checked_mul(*scale).ok_or(TextError::TooGreat)
}

fn format(amount: u64, units: &[(&str, u64)]) -> String {
    units
        .iter()
        .rev()
        .filter(|_| amount != 0)
        .find(|(_, scale)| amount.is_multiple_of(*scale))
        .or(units.first())
        .map_or_else(String::new, |(name, scale)| {
            format!("{}{name}", amount.checked_div(*scale).unwrap_or(amount))
        })
}

/// `#[serde(with = "duration")]` for a [`Duration`] field.
pub(super) mod duration {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(crate) fn serialize<S: Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&super::format_duration(*value))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        let text = String::deserialize(deserializer)?;
        super::parse_duration(&text).map_err(|error| de::Error::custom(format!("{text:?}: {error}")))
    }
}

/// `#[serde(with = "bytes")]` for a field that counts bytes.
pub(super) mod bytes {
    use serde::{Deserialize, Deserializer, Serializer, de};

    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes the field by reference")]
    pub(crate) fn serialize<S: Serializer>(value: &usize, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&super::format_bytes(*value))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
        let text = String::deserialize(deserializer)?;
        super::parse_bytes(&text).map_err(|error| de::Error::custom(format!("{text:?}: {error}")))
    }
}

/// `#[serde(with = "empty_is_none")]` for an optional field: TOML has no null, so none is the empty text.
pub(super) mod empty_is_none {
    use serde::de::IntoDeserializer;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[allow(clippy::ref_option, reason = "serde passes the field by reference")]
    pub(crate) fn serialize<T: Serialize, S: Serializer>(
        value: &Option<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => value.serialize(serializer),
            None => serializer.serialize_str(""),
        }
    }

    pub(crate) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<T>, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.is_empty() { Ok(None) } else { T::deserialize(text.into_deserializer()).map(Some) }
    }
}

/// `#[serde(with = "auto_is_none")]` for a count that may be left to the program.
pub(super) mod auto_is_none {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum AutoOrCount {
        Count(u32),
        Text(String),
    }

    #[allow(
        clippy::ref_option,
        clippy::trivially_copy_pass_by_ref,
        reason = "serde passes the field by reference"
    )]
    pub(crate) fn serialize<S: Serializer>(value: &Option<u32>, serializer: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(count) => count.serialize(serializer),
            None => serializer.serialize_str("auto"),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
        match AutoOrCount::deserialize(deserializer)? {
            AutoOrCount::Count(count) => Ok(Some(count)),
            AutoOrCount::Text(text) if text == "auto" => Ok(None),
            AutoOrCount::Text(text) => {
                Err(de::Error::custom(format!("{text:?} is neither \"auto\" nor a number")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_read_exactly() {
        for (text, expected) in [
            ("200us", Duration::from_micros(200)),
            ("10s", Duration::from_secs(10)),
            ("15m", Duration::from_secs(900)),
            ("1h", Duration::from_secs(3_600)),
            ("7ns", Duration::from_nanos(7)),
            ("0s", Duration::ZERO),
            ("0h", Duration::ZERO),
            ("007ms", Duration::from_millis(7)),
        ] {
            assert_eq!(parse_duration(text), Ok(expected), "{text}");
        }
        assert_eq!(format_duration(Duration::from_millis(1_500)), "1500ms");
        assert_eq!(format_duration(Duration::from_secs(120)), "2m");
        assert_eq!(format_duration(Duration::from_secs(90)), "90s");
        assert_eq!(format_duration(Duration::ZERO), "0s");
    }

    #[test]
    fn sizes_are_read_exactly() {
        for (text, expected) in
            [("4KiB", 4096), ("1MiB", 1 << 20), ("2GiB", 2 << 30), ("0B", 0), ("1000B", 1000)]
        {
            assert_eq!(parse_bytes(text), Ok(expected), "{text}");
        }
        assert_eq!(format_bytes(65_536), "64KiB");
        assert_eq!(format_bytes(1_000), "1000B");
        assert_eq!(format_bytes(0), "0B");
    }

    #[test]
    fn everything_else_is_refused_with_the_reason() {
        for (text, says) in [
            ("", "whole number"),
            ("s", "whole number"),
            ("-1s", "whole number"),
            ("+1s", "whole number"),
            (" 1s", "whole number"),
            ("10", "no unit (ns, us, ms, s, m, h)"),
            ("10 s", "\" s\" is not a unit"),
            ("10S", "not a unit"),
            ("10sec", "not a unit"),
            ("1.5s", "\".5s\" is not a unit"),
            ("1h30m", "\"h30m\" is not a unit"),
            ("10µs", "not a unit"),
            ("١s", "whole number"),
            ("99999999999999999999s", "too great"),
            ("6000000h", "too great"),
        ] {
            let error = parse_duration(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
        for (text, says) in [
            ("4096", "no unit (B, KiB, MiB, GiB)"),
            ("4KB", "\"KB\" is not a unit"),
            ("4kib", "not a unit"),
            ("4K", "not a unit"),
            ("99999999999GiB", "too great"),
        ] {
            let error = parse_bytes(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_written_is_read_back(amount: u64) {
            let duration = Duration::from_nanos(amount);
            prop_assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
            let bytes = usize::try_from(amount).unwrap();
            prop_assert_eq!(parse_bytes(&format_bytes(bytes)), Ok(bytes));
        }

        #[test]
        fn no_text_makes_it_panic(text: String) {
            let _ = (parse_duration(&text), parse_bytes(&text));
        }
    }
}

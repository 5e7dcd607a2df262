//! Rates and sizes as operators write them: a number of bytes, or a text with a unit, `"10mbit"`, `"1.25MB/s"`, `"15kB"`.
//!
//! A bit is a lower-case b, a byte an upper-case B; `k` is 1000 and `Ki` is 1024. Ambiguous units are refused: `mbps` means
//! megabytes to tc and megabits to most others, and `k` alone may mean 1000 or 1024.

use std::fmt;

use serde::de::{Deserializer, Error, Visitor};

use crate::config::ConfigError;

/// Reads a whole number from 0 to `MOST`; the error for any other number says so. For `#[serde(deserialize_with)]`.
pub fn up_to<'de, D: Deserializer<'de>, const MOST: u32>(deserializer: D) -> Result<u32, D::Error> {
    deserializer.deserialize_u32(UpTo(MOST))
}

struct UpTo(u32);

impl Visitor<'_> for UpTo {
    type Value = u32;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from 0 to {}, without quotes", self.0)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<u32, E> {
        let fits = u32::try_from(value).ok().filter(|value| *value <= self.0);
        fits.ok_or_else(|| E::custom(format_args!("{value} is out of range: write 0 to {}", self.0)))
    }
}

/// A number of bytes or bytes per second, and whether it was written with a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amount {
    value: u64,
    has_unit: bool,
}

impl Amount {
    /// Returns the number. An error if packets are counted and the amount was written with a unit.
    pub fn of(self, key: &str, in_packets: bool) -> Result<u64, ConfigError> {
        if in_packets && self.has_unit {
            return Err(ConfigError::new(
                key,
                "packets are counted, and this is of bytes",
                "write a number of packets",
            ));
        }
        Ok(self.value)
    }
}

impl From<Amount> for u64 {
    fn from(amount: Amount) -> u64 {
        amount.value
    }
}

impl From<Amount> for Option<u64> {
    fn from(amount: Amount) -> Option<u64> {
        Some(amount.value)
    }
}

/// Reads a rate in bytes per second, for `#[serde(deserialize_with)]`.
pub fn rate<'de, D: Deserializer<'de>, T: From<Amount>>(deserializer: D) -> Result<T, D::Error> {
    deserializer.deserialize_any(Written { per_second: true }).map(T::from)
}

/// Reads a size in bytes, for `#[serde(deserialize_with)]`.
pub fn size<'de, D: Deserializer<'de>, T: From<Amount>>(deserializer: D) -> Result<T, D::Error> {
    deserializer.deserialize_any(Written { per_second: false }).map(T::from)
}

struct Written {
    per_second: bool,
}

impl Visitor<'_> for Written {
    type Value = Amount;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.per_second {
            true => "a number of bytes a second, or \"10mbit\", \"1.25MB/s\"",
            false => "a number of bytes, or \"15kB\", \"15KiB\"",
        })
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Amount, E> {
        let wrong = |_| E::invalid_value(serde::de::Unexpected::Signed(value), &self);
        Ok(Amount { value: u64::try_from(value).map_err(wrong)?, has_unit: false })
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Amount, E> {
        Ok(Amount { value, has_unit: false })
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Amount, E> {
        let value = bytes(text, self.per_second);
        let value = value.ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(text), &self))?;
        Ok(Amount { value, has_unit: true })
    }
}

/// Returns the number of bytes (per second) that a text states; `None` if it is malformed or not a whole number of bytes.
fn bytes(text: &str, per_second: bool) -> Option<u64> {
    let at = text.find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | '_'))?;
    let (digits, unit) = (text[..at].replace('_', ""), text[at..].trim());
    let bits = match unit.strip_suffix("/s") {
        Some(unit) if per_second => bits_of(unit)?,
        None if !per_second || unit.ends_with("bit") => bits_of(unit)?,
        _ => return None,
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((&digits, ""));
    let scale = 10u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let number = format!("{whole}{fraction}").parse::<u128>().ok()?.checked_mul(bits)?;
    let is_whole = number % (scale * 8) == 0;
    u64::try_from(number / (scale * 8)).ok().filter(|_| is_whole)
}

/// Returns the number of bits in a unit.
fn bits_of(unit: &str) -> Option<u128> {
    let (prefix, bits) = match unit.strip_suffix("bit") {
        Some(prefix) => (prefix, 1),
        None => (unit.strip_suffix('B')?, 8),
    };
    let factor = match prefix {
        "" => 1,
        "k" | "K" => 1_000,
        "m" | "M" => 1_000_000,
        "g" | "G" => 1_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        _ => return None,
    };
    Some(factor * bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, per_second: bool, expected: impl Into<Option<u64>>) {
        assert_eq!(bytes(text, per_second), expected.into(), "{text}");
    }

    #[test]
    fn rates_have_bits_or_bytes_a_second() {
        check("10mbit", true, 1_250_000);
        check("10 Mbit/s", true, 1_250_000);
        check("1.5gbit", true, 187_500_000);
        check("64kbit", true, 8000);
        check("1.25MB/s", true, 1_250_000);
        check("1_000kB/s", true, 1_000_000);
        check("1KiB/s", true, 1024);
    }

    #[test]
    fn sizes_have_bytes() {
        check("15kB", false, 15_000);
        check("15KiB", false, 15_360);
        check("2MB", false, 2_000_000);
        check("12kbit", false, 1500);
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_none() {
        for text in ["10mbps", "10m", "10MB", "10", "", "mbit", "1.2.3mbit", "-1mbit", "1bit", "10mb/s"] {
            check(text, true, None);
        }
        for text in ["15k", "15", "15kB/s", "15kb", "99999999999GB"] {
            check(text, false, None);
        }
    }
}

//! Reads a function's configuration from a table of a plan file, with errors that say what to write instead.

use std::fmt::Display;
use std::time::Duration;

use braid_nf::SetMeta;
use braid_nf::packet::fields::WIRE_LEN;
use braid_nf::state::StateError;
use braid_nf::{FieldUse, Port};
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};

use crate::parts::config::elsewhere;

/// The longest idle timeout of a packet set, whose age is counted modulo 2³² milliseconds.
pub(crate) const IDLE_MAX: Duration = Duration::from_secs(24 * 24 * 60 * 60);
const _: () = assert!(IDLE_MAX.as_millis() < SetMeta::LONGEST_MS as u128, "a greater age means that time went back");

/// The field use that functions declare if they read the length on the wire.
pub(crate) const READS_WIRE_LEN: FieldUse = FieldUse { name: WIRE_LEN, bytes: 4, reads: true, writes: false };

/// A configuration from which no function can be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{key}`: {reason}; {instead}")]
pub struct ConfigError {
    /// The key; nested keys are joined by dots.
    pub key: String,
    /// What is wrong with it.
    pub reason: String,
    /// What to write instead.
    pub instead: String,
}

impl ConfigError {
    /// Creates an error about a key.
    pub fn new(key: &str, reason: impl Into<String>, instead: impl Into<String>) -> ConfigError {
        ConfigError { key: key.to_owned(), reason: reason.into(), instead: instead.into() }
    }

    /// Moves the error to one element of a list: a key below `route` becomes one below `route[3]`.
    pub(crate) fn of(self, list: &str, number: usize) -> ConfigError {
        let rest = self.key.strip_prefix(list).unwrap_or_default();
        ConfigError { key: format!("{list}[{number}]{rest}"), ..self }
    }

    /// An error about a state object that cannot be made, at the key that sets its size.
    pub fn state(key: &str, error: &StateError) -> ConfigError {
        let instead = match error {
            StateError::Capacity { capacity: 0, most, .. } => format!("write a number from 1 to {most}"),
            StateError::Capacity { most, .. } => format!("write a number up to {most}"),
            StateError::Memory { .. } | StateError::Beyond { .. } => {
                "write a smaller number, or give the machine more memory".to_owned()
            }
        };
        ConfigError::new(key, error.to_string(), instead)
    }
}

/// Reads a configuration from a table.
pub fn parse<C: DeserializeOwned>(table: toml::Table) -> Result<C, ConfigError> {
    let error = match table.clone().try_into() {
        Ok(config) => return Ok(config),
        Err(error) => error,
    };
    let error = explain(error.message(), &error.to_string());
    let key = numbered::<C>(&error.key, table.clone()).unwrap_or(error.key);
    let instead = without_port(&key, table).unwrap_or(error.instead);
    Err(ConfigError { key, instead, ..error })
}

/// What to write instead of an address with its port, where an address stands alone.
fn without_port(key: &str, mut table: toml::Table) -> Option<String> {
    let (list, last) = key.rsplit_once('.').unwrap_or(("", key));
    let mut path = Vec::new();
    for step in list.split('.').filter(|step| !step.is_empty()) {
        let (name, number) = step.split_once('[').map_or((step, None), |(name, number)| (name, Some(number)));
        path.push(Step::Key(name));
        if let Some(number) = number {
            path.push(Step::Number(number.strip_suffix(']')?.parse().ok()?));
        }
    }
    path.push(Step::Key(last));
    let written: std::net::SocketAddr = at(&mut table, &path)?.as_str()?.parse().ok()?;
    let (address, port) = (written.ip(), written.port());
    (last == "address")
        .then(|| format!("write the address alone, and its port beside it: {last} = \"{address}\", port = {port}"))
}

/// Adds to an error's key the indices of the wrong elements in lists of tables; `None` if the error is not within a list.
fn numbered<C: DeserializeOwned>(key: &str, mut table: toml::Table) -> Option<String> {
    let (names, last) = key.rsplit_once('.')?;
    let mut path: Vec<Step<'_>> = Vec::new();
    for name in names.split('.') {
        path.push(Step::Key(name));
        let Some(list) = at(&mut table, &path).and_then(|value| value.as_array().cloned()) else { continue };
        let mut is_right = |count: usize| {
            if let Some(value) = at(&mut table, &path) {
                *value = list[..count].to_vec().into();
            }
            table.clone().try_into::<C>().is_ok()
        };
        if list.is_empty() || !is_right(0) {
            return None;
        }
        let counts: Vec<usize> = (1..list.len()).collect();
        let wrong = counts.partition_point(|count| is_right(*count));
        // Later elements may be wrong too.
        *at(&mut table, &path)? = list[..=wrong].to_vec().into();
        path.push(Step::Number(wrong));
    }
    let is_numbered = path.iter().any(|step| matches!(step, Step::Number(_)));
    path.push(Step::Key(last));
    let written = || path.iter().map(Step::to_string).collect::<String>().trim_start_matches('.').to_owned();
    is_numbered.then(written)
}

/// A step of a path into a table.
enum Step<'a> {
    Key(&'a str),
    Number(usize),
}

impl Display for Step<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Step::Key(name) => write!(f, ".{name}"),
            Step::Number(number) => write!(f, "[{number}]"),
        }
    }
}

/// The value at a path.
fn at<'a>(table: &'a mut toml::Table, path: &[Step<'_>]) -> Option<&'a mut toml::Value> {
    let (first, rest) = path.split_first()?;
    let Step::Key(first) = first else { return None };
    rest.iter().try_fold(table.get_mut(*first)?, |value, step| match step {
        Step::Key(name) => value.get_mut(*name),
        Step::Number(number) => value.get_mut(*number),
    })
}

/// Turns an error's text into a [`ConfigError`]. Serde describes the problem in prose; toml adds a line "in `key`" if it
/// knows the key.
fn explain(message: &str, whole: &str) -> ConfigError {
    let at = whole.lines().find_map(|line| line.strip_prefix("in `")?.strip_suffix('`'));
    if let Some(("", unknown, expected)) = split_quoted(message.strip_prefix("unknown field ").unwrap_or("")) {
        let known: Vec<&str> = quoted(expected).collect();
        let key = at.map_or_else(|| unknown.to_owned(), |at| format!("{at}.{unknown}"));
        let near = || braid_nf::suggest::nearest(unknown, known.iter().copied());
        let instead = match elsewhere::key(unknown, &known).map_or_else(|| Err(near()), Ok) {
            Ok(meant) => meant,
            Err(Some(near)) => format!("did you mean `{near}`?"),
            Err(None) if known.is_empty() => "this function has no configuration: remove it".to_owned(),
            Err(None) => format!("known keys are {}", known.join(", ")),
        };
        return ConfigError::new(&key, "no such key", instead);
    }
    if let Some(("", unknown, expected)) = split_quoted(message.strip_prefix("unknown variant ").unwrap_or(""))
        && let Some(instead) = elsewhere::value(unknown, &quoted(expected).collect::<Vec<_>>())
    {
        return ConfigError::new(at.unwrap_or("?"), format!("unknown variant `{unknown}`"), instead);
    }
    let missing = message.strip_prefix("missing field ").and_then(|rest| quoted(rest).next());
    if let Some(missing) = missing {
        let key = at.map_or_else(|| missing.to_owned(), |at| format!("{at}.{missing}"));
        return lacks(&key, missing);
    }
    // A key and one of its aliases are both present.
    if let Some(twice) = message.strip_prefix("duplicate field ").and_then(|rest| quoted(rest).next()) {
        let key = at.map_or_else(|| twice.to_owned(), |at| format!("{at}.{twice}"));
        return has_twice(&key, twice);
    }
    // An empty table in place of a word: serde finds no variant name in it.
    if message.starts_with("wanted exactly 1 element") {
        return ConfigError::new(at.unwrap_or("?"), "invalid type: table", "write a text in quotes");
    }
    // Custom deserializers say in their message what to write.
    if let Some((reason, instead)) = message.split_once(": write ").or_else(|| message.split_once("; write ")) {
        return ConfigError::new(at.unwrap_or("?"), reason, format!("write {instead}"));
    }
    let (reason, expected) = message.split_once(", expected ").unwrap_or((message, ""));
    let reason = if reason == "invalid type: unit variant" { "invalid type: no text" } else { reason };
    ConfigError::new(at.unwrap_or("?"), reason, format!("write {}", in_words(expected, reason)))
}

/// The error for a missing `key`, called `name` within its table.
pub(crate) fn lacks(key: &str, name: &str) -> ConfigError {
    ConfigError::new(key, "missing", format!("write `{name} = …` there"))
}

/// The error for a `key`, called `name` within its table, that is present under two names.
pub(crate) fn has_twice(key: &str, name: &str) -> ConfigError {
    ConfigError::new(key, format!("two keys there mean `{name}`"), "keep one of them")
}

/// The message about a reversed range such as `80-70`, worded so that [`parse`] finds what to write.
pub(crate) fn backwards(text: &str, first: impl Display, last: impl Display) -> String {
    format!("`{text}` ends before it begins; write \"{last}-{first}\"")
}

/// Translates serde's description of an expected value for the author of a plan.
fn in_words<'a>(expected: &'a str, reason: &str) -> &'a str {
    let is_outside = reason.starts_with("invalid value: integer");
    // A key may accept less than its type holds, so no range is promised.
    let is_negative = is_outside && reason.contains("`-");
    match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" if is_negative => "a whole number that is not negative",
        "u8" if is_outside => "a whole number of at most 255",
        "u16" if is_outside => "a whole number of at most 65535",
        "u32" if is_outside => "a whole number of at most 4294967295",
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number, without quotes",
        "i8" | "i16" | "i32" | "i64" => "a whole number, without quotes, perhaps negative",
        "f32" | "f64" => "a number, without quotes",
        "a boolean" => "true or false",
        "a string" | "path string" | "string only" => "a text in quotes",
        "a sequence" => "a list, as [first, second]",
        "" if reason.contains("IPv4 socket") => "an address with its port, such as \"192.0.2.1:80\"",
        "" if reason.contains("IPv6 socket") => "an address with its port, such as \"[2001:db8::1]:80\"",
        "" if reason.contains("socket") => "an address with its port, such as \"192.0.2.1:80\" or \"[2001:db8::1]:80\"",
        "" if reason.contains("IPv4") => "an IPv4 address such as \"192.0.2.1\", and nothing else",
        "" if reason.contains("IPv6") => "an IPv6 address such as \"2001:db8::1\", and nothing else",
        "" if reason.contains("IP") => "an address such as \"192.0.2.1\" or \"2001:db8::1\", and nothing else",
        "" => "another value",
        "struct Backend" => "{ address = \"10.0.0.1\", port = 8080 }",
        table if table.starts_with("struct ") => "a table, as { key = value }",
        other => other,
    }
}

/// Splits a text into the part before the first quoted word, the word, and the rest.
fn split_quoted(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once('`')?;
    let (word, after) = rest.split_once('`')?;
    Some((before, word, after))
}

fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Converts a time span to nanoseconds, after checking that it is in `least..=most`. The error uses the unit in the key's
/// name.
pub(crate) fn span_ns(key: &str, value: Duration, least: Duration, most: Duration) -> Result<u64, ConfigError> {
    if value < least || value > most {
        let (unit, ns) = unit_of(key);
        let [value, most] = [value, most].map(|span| span.as_nanos() / ns);
        let instead = format!("write {} to {most} {unit}", least.as_nanos().div_ceil(ns));
        return Err(ConfigError::new(key, format!("{value} is out of range"), instead));
    }
    Ok(value.as_nanos() as u64)
}

/// The maximum number of entries of a table (`braid_state`).
const CAPACITY_MAX: u64 = 1 << 31;

/// Deserializes the capacity of a table, so that an error states the range of capacities, not that of the number's type.
pub(crate) fn capacity<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let written = u64::deserialize(deserializer)?;
    match u32::try_from(written) {
        Ok(entries) if (1..=CAPACITY_MAX).contains(&written) => Ok(entries),
        _ => Err(D::Error::custom(format!("{written} is out of range; write 1 to {CAPACITY_MAX}"))),
    }
}

/// The unit in a key's name, and its length in nanoseconds.
fn unit_of(key: &str) -> (&'static str, u128) {
    match key.rsplit('_').next() {
        Some("us") => ("microseconds", 1_000),
        Some("ms") => ("milliseconds", 1_000_000),
        _ => ("seconds", 1_000_000_000),
    }
}

/// Converts an idle timeout from seconds to nanoseconds, after checking that it is from one second to [`IDLE_MAX`].
pub(crate) fn idle_ns(key: &str, seconds: u64) -> Result<u64, ConfigError> {
    span_ns(key, Duration::from_secs(seconds), Duration::from_secs(1), IDLE_MAX)
}

/// Checks a share, which must be neither nothing nor all.
pub(crate) fn share(key: &str, value: f64) -> Result<f64, ConfigError> {
    if (0.000_001..=0.999_999).contains(&value) {
        return Ok(value);
    }
    Err(ConfigError::new(key, format!("{value} is no share"), "write a number above 0 and below 1, such as 0.2"))
}

/// Checks prefix lengths for IPv4 and IPv6.
pub(crate) fn check_lengths(key: &str, v4: u8, v6: u8) -> Result<(), ConfigError> {
    for (version, name, bits, most) in [("v4", "IPv4", v4, 32), ("v6", "IPv6", v6, 128)] {
        if bits > most {
            let reason = format!("no {name} address has {bits} bits");
            return Err(ConfigError::new(&format!("{key}.{version}"), reason, format!("write at most {most}")));
        }
    }
    Ok(())
}

/// Checks that the plan has a port.
pub(crate) fn check_port(key: &str, port: Port, ports: u16) -> Result<Port, ConfigError> {
    if port < ports {
        return Ok(port);
    }
    let instead = format!("write a number from 0 to {}", ports.saturating_sub(1));
    Err(ConfigError::new(key, format!("the plan has no port {port}"), instead))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    #[allow(dead_code, reason = "only parsed")]
    struct Sample {
        rate: u64,
        mode: Mode,
        inner: Vec<Inner>,
        link: Option<Link>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only parsed")]
    struct Link {
        #[serde(alias = "bytes_per_s")]
        per_s: u64,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Mode {
        #[default]
        Drop,
        Pass,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only parsed")]
    struct Inner {
        port: u16,
        #[serde(default)]
        parts: Vec<Innermost>,
        #[serde(default)]
        to: Option<Address>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only parsed")]
    struct Innermost {
        weight: u16,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    #[allow(dead_code, reason = "only parsed")]
    struct Address {
        v4: Option<std::net::Ipv4Addr>,
        v6: Option<std::net::Ipv6Addr>,
        end: Option<std::net::SocketAddrV4>,
        any: Option<std::net::SocketAddr>,
    }

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let error = parse::<Sample>(text.parse().unwrap()).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn errors_name_the_key_and_what_to_write_instead() {
        check("rat = 1", "`rat`: no such key; did you mean `rate`?");
        check("colour = 1", "`colour`: no such key; known keys are rate, mode, inner, link");
        check("rate = 'fast'", "`rate`: invalid type: string \"fast\"; write a whole number, without quotes");
        check("rate = -1", "`rate`: invalid value: integer `-1`; write a whole number that is not negative");
        let port = |value: &str, expected: &str| {
            check(&format!("[[inner]]\nport = {value}"), &format!("`inner[0].port`: invalid value: {expected}"))
        };
        port("-1", "integer `-1`; write a whole number that is not negative");
        port("65536", "integer `65536`; write a whole number of at most 65535");
        check("mode = 300", "`mode`: invalid type: no text; write a text in quotes");
        check("mode = {}", "`mode`: invalid type: table; write a text in quotes");
        check("mode = 'pas'", "`mode`: unknown variant `pas`; write `drop` or `pass`");
        check("link = { per_s = 5, bytes_per_s = 5 }", "`link.per_s`: two keys there mean `per_s`; keep one of them");
        check("[[inner]]\nprt = 1", "`inner[0].prt`: no such key; did you mean `port`?");
        check("[[inner]]", "`inner[0].port`: missing; write `port = …` there");
        check(
            "[[inner]]\nport = 1\n[[inner]]\nport = 2\n[[inner]]",
            "`inner[2].port`: missing; write `port = …` there",
        );
        let wrong = "`inner[1].port`: invalid type: string \"x\"; write a whole number, without quotes";
        check("[[inner]]\nport = 1\n[[inner]]\nport = 'x'\n[[inner]]\nport = 'y'", wrong);
        let parts = "[[inner]]\nport = 1\nparts = [{ weight = 1 }]\n[[inner]]\nport = 2\nparts = [{ weight = 1 }, { wieght = 2 }, { x = 1 }]";
        check(parts, "`inner[1].parts[1].wieght`: no such key; did you mean `weight`?");
        check(&format!("{parts}\n[[inner]]"), "`inner[1].parts[1].wieght`: no such key; did you mean `weight`?");
        check(
            "rate = 'fast'\ninner = [{ port = 1 }]",
            "`rate`: invalid type: string \"fast\"; write a whole number, without quotes",
        );
    }

    #[test]
    fn times_out_of_range_are_told_in_the_unit_of_their_key() {
        let check = |key: &str, value: Duration, expected: &str| {
            let (least, most) = (Duration::from_micros(1_500_001), Duration::from_secs(60));
            let error = span_ns(key, value, least, most).unwrap_err().to_string();
            assert_eq!(error, format!("`{key}`: {expected}"));
        };
        check("a.udp_s", Duration::ZERO, "0 is out of range; write 2 to 60 seconds");
        check("udp_s", Duration::from_secs(u64::MAX), &format!("{} is out of range; write 2 to 60 seconds", u64::MAX));
        check("look_ms", Duration::from_millis(1500), "1500 is out of range; write 1501 to 60000 milliseconds");
        check("old_us", Duration::from_micros(7), "7 is out of range; write 1500001 to 60000000 microseconds");
    }

    #[test]
    fn an_address_that_is_none_is_answered_with_one_of_its_kind() {
        let check = |key: &str, text: &str, instead: &str| {
            let error =
                parse::<Sample>(format!("inner = [{{ port = 1, to = {{ {key} = '{text}' }} }}]").parse().unwrap());
            let error = error.unwrap_err().to_string();
            assert!(error.starts_with(&format!("`inner[0].to.{key}`: ")) && error.ends_with(instead), "{error}");
        };
        check("v4", "2001:db8::1", "write an IPv4 address such as \"192.0.2.1\", and nothing else");
        check("v6", "192.0.2.1", "write an IPv6 address such as \"2001:db8::1\", and nothing else");
        check("end", "192.0.2.1", "write an address with its port, such as \"192.0.2.1:80\"");
        check("any", "2001:db8::1", "such as \"192.0.2.1:80\" or \"[2001:db8::1]:80\"");
    }
}

//! Conditions on the time: `meta hour "08:00"-"18:00"`, `meta day { "Saturday", "Sunday" }`, `meta time >= "2026-12-24 16:00"`.
//! All times are in the time zone of the plan ([`utc_offset`](crate::firewall::UtcOffset)).

use super::narrow_field;
use super::numbers::Numbers;
use crate::firewall::conditions::clock::{DAY_S, DAYS, hour, time};
use crate::firewall::conditions::fields::{Field, MOST, except};
use crate::firewall::rule_file::reader::Words;
use crate::firewall::rule_file::{Parsed, wrong};
use crate::firewall::rules::Rule;

const HOUR: Numbers =
    Numbers { what: "an hour such as \"08:00\", \"08:00:30\" or \"22:00\"-\"06:00\"", last: DAY_S - 1, named: hour };
const DAY: Numbers = Numbers { what: "a day such as \"Monday\"", last: 6, named: day };
const TIME: Numbers = Numbers { what: "a time such as \"2026-12-24 16:00\"", last: MOST, named: time };

/// Reads what follows `meta hour`, `meta day` or `meta time`.
pub(in crate::firewall::rule_file) fn when(rule: &mut Rule, rest: &mut Words<'_>, key: &str) -> Parsed<()> {
    let (field, ranges) = match key {
        "hour" => (Field::Hour, hours(rest)?),
        "day" => (Field::Day, DAY.read(rest)?),
        _ => (Field::Time, TIME.read(rest)?),
    };
    narrow_field(rule, field, ranges)
}

/// Reads hours. If the first is later than the second, the range spans midnight. nftables excludes the second in which such a
/// range begins and the one in which it ends, because it treats the range as everything that is not between the end and the
/// beginning.
fn hours(rest: &mut Words<'_>) -> Parsed<Vec<(u64, u64)>> {
    let mut look = *rest;
    let Ok((texts, is_negated)) = look.set(HOUR.what) else { return HOUR.read(rest) };
    match texts.first().and_then(|text| HOUR.ends(text)) {
        Some((first, last)) if first > last && texts.len() == 1 => {
            *rest = look;
            let between = vec![(last, first)];
            Ok(if is_negated { between } else { except(between, DAY_S - 1) })
        }
        Some((first, last)) if first > last => {
            wrong("a range across midnight cannot be in a set", "write meta hour \"22:00\"-\"06:00\"")
        }
        _ => HOUR.read(rest),
    }
}

/// Parses a day such as `Monday`, counted from Sunday; three letters suffice.
fn day(text: &str) -> Option<u64> {
    let text = text.to_ascii_lowercase();
    let at = DAYS.iter().position(|day| text.len() >= 3 && day.to_ascii_lowercase().starts_with(&text))?;
    Some(at as u64)
}

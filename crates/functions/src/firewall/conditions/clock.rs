//! Hours, days and dates: converts a packet's time to the time zone in which rules are written.

use serde::Deserialize;

/// Seconds per day.
pub(in crate::firewall) const DAY_S: u64 = 24 * 3600;
/// Days of the week, in the order of `meta day`.
pub(in crate::firewall) const DAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// The offset of a time zone from UTC: `"+02:00"`, `"-03:30"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct UtcOffset {
    seconds: i32,
}

impl TryFrom<String> for UtcOffset {
    type Error = String;

    fn try_from(text: String) -> Result<UtcOffset, String> {
        let wrong = || format!("`{text}` is no distance from UTC, expected \"+02:00\", \"-03:30\" or \"+00:00\"");
        let (sign, rest) = match text.split_at_checked(1) {
            Some(("+", rest)) => (1, rest),
            Some(("-", rest)) => (-1, rest),
            _ => return Err(wrong()),
        };
        let (hours, minutes) = rest.split_once(':').ok_or_else(wrong)?;
        let part = |text: &str, most: i32| match text.parse::<u8>() {
            Ok(number) if text.len() == 2 && i32::from(number) <= most => Ok(i32::from(number)),
            _ => Err(wrong()),
        };
        Ok(UtcOffset { seconds: sign * (part(hours, 14)? * 3600 + part(minutes, 59)? * 60) })
    }
}

/// The time of a packet to be explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Nanoseconds since 1970, UTC.
    Utc(u64),
    /// Nanoseconds since 1970 by the clocks of the plan's time zone.
    Shown(u64),
}

impl When {
    pub(in crate::firewall) fn utc_ns(self, zone: UtcOffset) -> u64 {
        match self {
            When::Utc(ns) => ns,
            When::Shown(ns) => ns.saturating_add_signed(-i64::from(zone.seconds) * 1_000_000_000),
        }
    }
}

impl std::str::FromStr for When {
    type Err = String;

    fn from_str(text: &str) -> Result<When, String> {
        let wrong = || format!("`{text}` is no time, expected \"2026-12-24 16:00\"");
        time(text).map(When::Shown).ok_or_else(wrong)
    }
}

/// A moment, as rules examine it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::firewall) struct Moment {
    /// Nanoseconds since the beginning of 1970, by the clocks of the time zone.
    pub(in crate::firewall) ns: u64,
    /// The second of its day.
    pub(in crate::firewall) second: u32,
    /// The day of the week; 0: Sunday.
    pub(in crate::firewall) day: u8,
}

impl Moment {
    /// Converts a UTC time in nanoseconds to a time zone.
    pub(in crate::firewall) fn of(now_ns: u64, zone: UtcOffset) -> Moment {
        let second = (now_ns / 1_000_000_000) as i64 + i64::from(zone.seconds);
        let (day, second_of_day) = (second.div_euclid(DAY_S as i64), second.rem_euclid(DAY_S as i64));
        Moment {
            ns: (now_ns as i64).saturating_add(i64::from(zone.seconds) * 1_000_000_000).max(0) as u64,
            second: second_of_day as u32,
            // 1 January 1970 was a Thursday.
            day: (day + 4).rem_euclid(7) as u8,
        }
    }
}

/// Formats a second of the day: `16:00:30`.
pub(in crate::firewall) fn shown(second: u64) -> String {
    format!("{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)
}

/// Parses a second of the day: `08:00`, `08:00:30`.
pub(in crate::firewall) fn hour(text: &str) -> Option<u64> {
    let parts: Vec<u64> = text.split(':').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    match parts[..] {
        [hour, minute] => (hour < 24 && minute < 60).then_some(hour * 3600 + minute * 60),
        [hour, minute, second] => {
            (hour < 24 && minute < 60 && second < 60).then_some(hour * 3600 + minute * 60 + second)
        }
        _ => None,
    }
}

/// Parses `2026-12-24`, `2026-12-24 16:00` or seconds since 1970, into nanoseconds.
pub(in crate::firewall) fn time(text: &str) -> Option<u64> {
    let seconds = match text.parse::<u64>() {
        Ok(seconds) => seconds,
        Err(_) => {
            let (day, of_day) = text.split_once(' ').unwrap_or((text, "00:00"));
            date(day)?.checked_mul(DAY_S)?.checked_add(hour(of_day.trim())?)?
        }
    };
    seconds.checked_mul(1_000_000_000)
}

/// The number of days from 1970 to a date such as `2026-12-24`; `None` if there is no such day, or it is earlier.
fn date(text: &str) -> Option<u64> {
    let mut parts = text.split('-').map(|part| part.parse::<u32>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let months = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let here = *months.get(month.checked_sub(1)? as usize)?;
    if parts.next().is_some() || !(1970..10_000).contains(&year) || !(1..=here).contains(&day) {
        return None;
    }
    let before: u32 = months[..month as usize - 1].iter().sum();
    let years = u64::from(year - 1);
    let leap_days = years / 4 - years / 100 + years / 400 - (1969 / 4 - 1969 / 100 + 1969 / 400);
    Some(u64::from(year - 1970) * 365 + leap_days + u64::from(before + day - 1))
}

/// Formats nanoseconds since 1970: `2026-12-24 16:00:30`.
pub(in crate::firewall) fn written(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    let days = seconds / DAY_S;
    let year =
        (1970..=2_554).take_while(|year| date(&format!("{year}-01-01")).is_some_and(|first| first <= days)).last();
    let year = year.unwrap_or(1970);
    let first = |month: u32| date(&format!("{year}-{month}-01")).unwrap_or_default();
    let month = (1..=12).take_while(|month| first(*month) <= days).last().unwrap_or(1);
    format!("{year}-{month:02}-{:02} {}", days - first(month) + 1, shown(seconds % DAY_S))
}

//! Conditions whose values are numbers: one, a range, a set, names of some of them, `!=`, and comparisons such as `< 5`.

use super::reader::Words;
use super::{Parsed, wrong};
use crate::firewall::fields::except;

/// The numbers that a field may have.
#[derive(Clone, Copy)]
pub(super) struct Numbers {
    /// One of them, with how it is written.
    pub(super) what: &'static str,
    pub(super) last: u32,
    pub(super) named: fn(&str) -> Option<u32>,
}

/// No number has a name.
pub(super) fn nameless(_: &str) -> Option<u32> {
    None
}

impl Numbers {
    /// Reads what comes next as ranges of numbers, ends included; at least one.
    pub(super) fn read(&self, rest: &mut Words<'_>) -> Parsed<Vec<(u32, u32)>> {
        let sign = rest.peek();
        let left = match sign {
            "<" | "lt" | ">" | "gt" | "<=" | "le" | ">=" | "ge" => {
                rest.word();
                let text = rest.word();
                let number = self.number(&text)?;
                match sign {
                    "<" | "lt" => number.checked_sub(1).map(|last| (0, last)),
                    ">" | "gt" => number.checked_add(1).map(|first| (first, self.last)),
                    "<=" | "le" => Some((0, number)),
                    _ => Some((number, self.last)),
                }
                .filter(|(first, last)| first <= last)
                .into_iter()
                .collect()
            }
            _ => {
                let (texts, is_negated) = rest.set(self.what)?;
                let ranges = texts.iter().map(|text| self.range(text)).collect::<Parsed<Vec<_>>>()?;
                if is_negated { except(ranges, self.last) } else { ranges }
            }
        };
        if left.is_empty() {
            return wrong("nothing is left that could fit", format!("write {}, and not all of them", self.what));
        }
        Ok(left)
    }

    fn range(&self, text: &str) -> Parsed<(u32, u32)> {
        if let Some(number) = self.parse(text) {
            return Ok((number, number));
        }
        let ends = text.split_once('-').and_then(|(first, last)| Some((self.parse(first)?, self.parse(last)?)));
        match ends {
            Some((first, last)) if first <= last => Ok((first, last)),
            _ => self.refuse(text),
        }
    }

    fn number(&self, text: &str) -> Parsed<u32> {
        self.parse(text).map_or_else(|| self.refuse(text), Ok)
    }

    fn parse(&self, text: &str) -> Option<u32> {
        number(text).or_else(|| (self.named)(text)).filter(|number| *number <= self.last)
    }

    fn refuse<T>(&self, text: &str) -> Parsed<T> {
        wrong(format!("`{text}` is not {}", self.what), format!("write {}", self.what))
    }
}

/// A number as nftables writes it: `10`, `0x0a`.
pub(super) fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

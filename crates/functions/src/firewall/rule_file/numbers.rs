//! Conditions whose values are numbers: one, a range, a set, names of some of them, `!=`, and comparisons such as `< 5`; of some bits of
//! a field as well: `& 0x38 == 0x20`.

use super::reader::Words;
use super::{Kind, Parsed, Wrong, wrong};
use crate::firewall::fields::{Field, Within, except};

/// The numbers that a field may have.
#[derive(Clone, Copy)]
pub(super) struct Numbers {
    /// One of them, with how it is written.
    pub(super) what: &'static str,
    pub(super) last: u64,
    pub(super) named: fn(&str) -> Option<u64>,
}

/// No number has a name.
pub(super) fn nameless(_: &str) -> Option<u64> {
    None
}

impl Numbers {
    /// Reads a condition about a field, or about those of its bits that a mask names.
    pub(super) fn within(&self, field: Field, rest: &mut Words<'_>) -> Parsed<Within> {
        self.within_unless(field, 0, rest)
    }

    /// The same where a field that is not there has the value `none`, which fits no condition.
    pub(super) fn within_unless(&self, field: Field, none: u64, rest: &mut Words<'_>) -> Parsed<Within> {
        let Some(mask) = self.mask(rest)? else { return Ok(Within::new(field, self.read(rest)?)) };
        let mut ranges = self.read(rest)?;
        // No value under the mask is a number that has other bits.
        ranges.retain(|(first, last)| first != last || first & !mask == 0);
        if ranges.is_empty() {
            nothing_left("write bits of the mask")
        } else {
            Ok(Within::under(field, mask | none, ranges))
        }
    }

    /// `& 0x0f`, `& (1 | 4)`, if that comes next.
    fn mask(&self, rest: &mut Words<'_>) -> Parsed<Option<u64>> {
        if !rest.take("&") && !rest.take("and") {
            return Ok(None);
        }
        if !rest.take("(") {
            return self.number(&rest.word()).map(Some);
        }
        let mut mask = self.number(&rest.word())?;
        while rest.take("|") || rest.take("or") {
            mask |= self.number(&rest.word())?;
        }
        if rest.take(")") { Ok(Some(mask)) } else { wrong("a mask without its end", "write & (1 | 4)") }
    }

    /// Reads what comes next as ranges of numbers, ends included; at least one.
    pub(super) fn read(&self, rest: &mut Words<'_>) -> Parsed<Vec<(u64, u64)>> {
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
            return nothing_left(&format!("write {}, and not all of them", self.what));
        }
        Ok(left)
    }

    fn range(&self, text: &str) -> Parsed<(u64, u64)> {
        if let Some(number) = self.parse(text) {
            return Ok((number, number));
        }
        match self.ends(text) {
            Some((first, last)) if first <= last => Ok((first, last)),
            Some(_) => wrong(format!("`{text}` ends before it begins"), "write the smaller end first"),
            None => self.refuse(text),
        }
    }

    /// The ends of a range, in the order in which they stand. A `-` may stand in them too.
    pub(super) fn ends(&self, text: &str) -> Option<(u64, u64)> {
        text.match_indices('-').find_map(|(at, _)| Some((self.parse(&text[..at])?, self.parse(&text[at + 1..])?)))
    }

    /// One number, from how it is written.
    pub(super) fn number(&self, text: &str) -> Parsed<u64> {
        self.parse(text).map_or_else(|| self.refuse(text), Ok)
    }

    fn parse(&self, text: &str) -> Option<u64> {
        (self.named)(text).or_else(|| number(text)).filter(|number| *number <= self.last)
    }

    fn refuse<T>(&self, text: &str) -> Parsed<T> {
        wrong(format!("`{text}` is not {}", self.what), format!("write {}", self.what))
    }
}

/// nftables takes it, and no packet fits.
pub(super) fn nothing_left<T>(instead: &str) -> Parsed<T> {
    let reason = "nothing is left that could fit".to_owned();
    Err(Wrong { reason, instead: instead.to_owned(), kind: Kind::Excluded })
}

/// How many tokens a mask has that stands there; 0 for none.
pub(super) fn mask_len(words: &Words<'_>, at: usize) -> usize {
    if !matches!(words.peek_at(at), "&" | "and") {
        return 0;
    }
    let mut len = 2;
    if words.peek_at(at + 1) == "(" {
        while !matches!(words.peek_at(at + len), ")" | "") {
            len += 1;
        }
        return len + 1;
    }
    while words.peek_at(at + len) == "|" {
        len += 2;
    }
    len
}

/// A number as nftables writes it: `10`, `0x0a`.
pub(super) fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

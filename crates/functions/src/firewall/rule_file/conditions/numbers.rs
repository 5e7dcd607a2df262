//! Conditions with numeric values: a number, a range, a set, names for some numbers, `!=`, and comparisons such as `< 5`. They
//! may concern some bits of a field, or what is computed from it: `& 0x38 == 0x20`, `^ 1 == 81`.

use super::arithmetic::{Made, Reckoner, comes};
use crate::firewall::conditions::fields::{Field, Within, except};
use crate::firewall::rule_file::reader::Words;
use crate::firewall::rule_file::{Kind, Parsed, Wrong, wrong};

/// The numbers that a field may have.
#[derive(Clone, Copy)]
pub(in crate::firewall::rule_file) struct Numbers {
    /// What a number is called in errors, with examples.
    pub(in crate::firewall::rule_file) what: &'static str,
    pub(in crate::firewall::rule_file) last: u64,
    pub(in crate::firewall::rule_file) named: fn(&str) -> Option<u64>,
}

/// For fields whose numbers have no names.
pub(in crate::firewall::rule_file) fn nameless(_: &str) -> Option<u64> {
    None
}

impl Numbers {
    /// Reads a condition on a field, or on those of its bits that a mask selects.
    pub(in crate::firewall::rule_file) fn within(&self, field: Field, rest: &mut Words<'_>) -> Parsed<Within> {
        self.within_unless(field, 0, rest)
    }

    /// Like [`within`](Self::within), for a field that has the value `none` if it is absent, which matches no condition.
    pub(in crate::firewall::rule_file) fn within_unless(
        &self,
        field: Field,
        none: u64,
        rest: &mut Words<'_>,
    ) -> Parsed<Within> {
        if !comes(rest, 0) {
            return Ok(Within::new(field, self.read(rest)?));
        }
        let made = self.made(rest)?;
        // The mask has no bits beyond those of the numbers.
        let (mask, last_turned) = (made.mask as u64 & self.bits(), made.last_turned as u64);
        let turned = made.turned as u64 ^ last_turned;
        let mut ranges = self.read_turned(rest, last_turned)?;
        // The bits of a number outside the mask must be as they result from the inversion.
        ranges.retain(|(first, last)| first != last || (first ^ turned) & !mask == 0);
        if ranges.is_empty() {
            return nothing_left("write bits of the mask");
        }
        let mask = if mask == self.bits() { u64::MAX } else { mask | none };
        Ok(Within::under(field, mask, ranges).turned(turned))
    }

    /// Reads a condition on a field that is looked up by its values, and returns the values that match.
    pub(in crate::firewall::rule_file) fn fitting(&self, rest: &mut Words<'_>) -> Parsed<Vec<(u64, u64)>> {
        if !comes(rest, 0) {
            return self.read(rest);
        }
        // The field does not matter; the caller decides whose values these are.
        let within = self.within(Field::Length, rest)?;
        let left: Vec<_> = (0..=self.last).filter(|value| within.holds(*value)).map(|value| (value, value)).collect();
        if left.is_empty() { nothing_left("write what the mask leaves") } else { Ok(left) }
    }

    /// Reads what is computed from a field before the comparison: `& 0x0f`, `& (1 | 4)`, `^ 1`, `| 2`.
    fn made(&self, rest: &mut Words<'_>) -> Parsed<Made<()>> {
        let one = |rest: &mut Words<'_>| Ok(Made::constant(self.number(&rest.word())?.into()));
        let made = Reckoner::new(one).behind(Made::all(()), rest)?;
        match rest.peek() {
            "<<" | ">>" => shifted(rest),
            _ => Ok(made),
        }
    }

    /// All bits that a number may have.
    fn bits(&self) -> u64 {
        u64::MAX.checked_shr(self.last.leading_zeros()).unwrap_or_default()
    }

    /// Reads what comes next as inclusive ranges of numbers, at least one.
    pub(in crate::firewall::rule_file) fn read(&self, rest: &mut Words<'_>) -> Parsed<Vec<(u64, u64)>> {
        self.read_turned(rest, 0)
    }

    /// Like [`read`](Self::read), with these bits of all numbers inverted.
    pub(in crate::firewall::rule_file) fn read_turned(
        &self,
        rest: &mut Words<'_>,
        turned: u64,
    ) -> Parsed<Vec<(u64, u64)>> {
        let sign = rest.peek();
        let left = match sign {
            "<<" | ">>" => return shifted(rest),
            sign if is_comparison(sign) => {
                rest.word();
                let number = self.constant(rest)? ^ turned;
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
            _ if comes(rest, 1 + usize::from(is_sign(sign))) => {
                let is_negated = rest.negated();
                let number = self.constant(rest)? ^ turned;
                if is_negated { except(vec![(number, number)], self.last) } else { vec![(number, number)] }
            }
            _ => {
                let (texts, is_negated) = rest.set(self.what)?;
                let ranges = texts.iter().map(|text| self.range(text, turned)).collect::<Parsed<Vec<_>>>()?;
                if is_negated { except(ranges, self.last) } else { ranges }
            }
        };
        if left.is_empty() {
            return nothing_left(&format!("write {}, and not all of them", self.what));
        }
        Ok(left)
    }

    fn range(&self, text: &str, turned: u64) -> Parsed<(u64, u64)> {
        if let Some(number) = self.parse(text) {
            return Ok((number ^ turned, number ^ turned));
        }
        match self.ends(text).or_else(|| self.prefix(text)).map(|(first, last)| (first ^ turned, last ^ turned)) {
            Some((first, last)) if first <= last => Ok((first, last)),
            Some(_) => wrong(format!("`{text}` ends before it begins"), "write the smaller end first"),
            None => self.refuse(text),
        }
    }

    /// The ends of a range, as written. They may themselves contain a `-`.
    pub(in crate::firewall::rule_file) fn ends(&self, text: &str) -> Option<(u64, u64)> {
        text.match_indices('-').find_map(|(at, _)| Some((self.parse(&text[..at])?, self.parse(&text[at + 1..])?)))
    }

    /// The ends of a prefix, `01:80:c2:00:00:00/40`: the numbers with the same first bits.
    fn prefix(&self, text: &str) -> Option<(u64, u64)> {
        let (number, len) = text.split_once('/')?;
        let (number, len) = (self.parse(number)?, len.parse::<u32>().ok()?);
        let behind = self.bits().checked_shr(len).unwrap_or_default();
        (len <= self.bits().count_ones()).then_some((number & !behind, number | behind))
    }

    /// Reads one number, or an expression of several: `80 | 1`.
    fn constant(&self, rest: &mut Words<'_>) -> Parsed<u64> {
        let one = |rest: &mut Words<'_>| Ok(Made::<()>::constant(self.number(&rest.word())?.into()));
        Ok(Reckoner::new(one).whole(rest)?.turned as u64)
    }

    /// Parses one number.
    pub(in crate::firewall::rule_file) fn number(&self, text: &str) -> Parsed<u64> {
        self.parse(text).map_or_else(|| self.refuse(text), Ok)
    }

    fn parse(&self, text: &str) -> Option<u64> {
        (self.named)(text).or_else(|| number(text)).filter(|number| *number <= self.last)
    }

    fn refuse<T>(&self, text: &str) -> Parsed<T> {
        wrong(format!("`{text}` is not {}", self.what), format!("write {}", self.what))
    }
}

/// The error for a condition that nftables accepts but no packet matches.
pub(in crate::firewall::rule_file) fn nothing_left<T>(instead: &str) -> Parsed<T> {
    let reason = "nothing is left that could fit".to_owned();
    Err(Wrong { reason, instead: instead.to_owned(), kind: Kind::Excluded })
}

/// Whether a word means "equal" or "not equal".
pub(in crate::firewall::rule_file) fn is_sign(word: &str) -> bool {
    matches!(word, "==" | "eq" | "!=" | "ne")
}

/// Whether a word is a comparison by size.
pub(in crate::firewall::rule_file) fn is_comparison(word: &str) -> bool {
    matches!(word, "<" | "lt" | ">" | "gt" | "<=" | "le" | ">=" | "ge")
}

/// Refuses a shift, which comes next.
pub(in crate::firewall::rule_file) fn shifted<T>(rest: &Words<'_>) -> Parsed<T> {
    let is_joined = matches!(rest.peek_at(2), "." | "{" | "vmap" | "map") || rest.peek_at(2).starts_with('@');
    wrong(
        "numbers are not shifted here",
        if is_joined {
            "leave the shift out: so nft 1.0.6 lists what it reads of a field in a concatenation, and takes it for another shift when it reads \
             its own listing"
        } else {
            "write the number as it stands in the packet"
        },
    )
}

/// Parses a number as nftables writes it: `10`, `0x0a`.
pub(in crate::firewall::rule_file) fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

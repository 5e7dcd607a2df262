//! Bit arithmetic on a value: `& 0x38`, `^ 1`, `| (1 | 4)`, with any number of constants. As in nftables, `&` binds tighter
//! than `^`, and `^` tighter than `|`.

use std::cell::Cell;

use crate::firewall::rule_file::reader::Words;
use crate::firewall::rule_file::{Parsed, wrong};

/// The result of an expression: `(source & mask) ^ turned`, or without a source the constant `turned`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::firewall::rule_file) struct Made<V> {
    pub(in crate::firewall::rule_file) from: Option<V>,
    pub(in crate::firewall::rule_file) mask: u128,
    pub(in crate::firewall::rule_file) turned: u128,
    /// The bits of `turned` that a final `^` inverts. nftables instead inverts them in the values compared with, including both
    /// ends of a range.
    pub(in crate::firewall::rule_file) last_turned: u128,
}

impl<V> Made<V> {
    /// All bits of a source.
    pub(in crate::firewall::rule_file) fn all(from: V) -> Made<V> {
        Made { from: Some(from), mask: u128::MAX, turned: 0, last_turned: 0 }
    }

    pub(in crate::firewall::rule_file) fn constant(bits: u128) -> Made<V> {
        Made { from: None, mask: 0, turned: bits, last_turned: 0 }
    }

    /// Splits two operands into the one that has a source, and the constant that the other one is.
    fn apart(self, other: Made<V>) -> Parsed<(Made<V>, u128)> {
        match (&self.from, &other.from) {
            (_, None) => Ok((self, other.turned)),
            (None, _) => Ok((other, self.turned)),
            _ => wrong("two marks in one", "write one mark, and numbers"),
        }
    }
}

/// Whether an operator comes next, that is, whether the preceding value is part of an expression.
pub(in crate::firewall::rule_file) fn comes(rest: &Words<'_>, at: usize) -> bool {
    matches!(rest.peek_at(at), "&" | "and" | "^" | "xor" | "|" | "or")
}

/// The number of tokens in the expression that continues at `at`; 0 if there is none.
pub(in crate::firewall::rule_file) fn len(words: &Words<'_>, at: usize) -> usize {
    let mut len = 0;
    while comes(words, at + len) {
        len += 1;
        let mut depth = 0;
        loop {
            match words.peek_at(at + len) {
                "" => return len,
                "(" => depth += 1,
                ")" => depth -= 1,
                _ => {}
            }
            len += 1;
            if depth <= 0 {
                break;
            }
        }
    }
    len
}

/// The deepest nesting of parentheses.
const DEPTH_MAX: u32 = 64;

/// Reads expressions, one operand after another.
pub(in crate::firewall::rule_file) struct Reckoner<F> {
    /// Reads an operand that is not in parentheses.
    one: F,
    /// How many parentheses are open.
    depth: Cell<u32>,
}

impl<V, F: Fn(&mut Words<'_>) -> Parsed<Made<V>>> Reckoner<F> {
    /// Creates a reader whose operands `one` reads.
    pub(in crate::firewall::rule_file) fn new(one: F) -> Reckoner<F> {
        Reckoner { one, depth: Cell::new(0) }
    }

    /// Reads the rest of an expression whose first operand has been read.
    pub(in crate::firewall::rule_file) fn behind(&self, first: Made<V>, rest: &mut Words<'_>) -> Parsed<Made<V>> {
        let mut all = self.unlike(first, rest)?;
        while rest.take("|") || rest.take("or") {
            let next = self.operand(rest)?;
            let (some, bits) = all.apart(self.unlike(next, rest)?)?;
            all = Made { mask: some.mask & !bits, turned: some.turned | bits, last_turned: 0, ..some };
        }
        Ok(all)
    }

    /// Reads a whole expression.
    pub(in crate::firewall::rule_file) fn whole(&self, rest: &mut Words<'_>) -> Parsed<Made<V>> {
        let first = self.operand(rest)?;
        self.behind(first, rest)
    }

    fn unlike(&self, first: Made<V>, rest: &mut Words<'_>) -> Parsed<Made<V>> {
        let mut all = self.both(first, rest)?;
        while rest.take("^") || rest.take("xor") {
            let next = self.operand(rest)?;
            let (some, bits) = all.apart(self.both(next, rest)?)?;
            all = Made { turned: some.turned ^ bits, last_turned: some.last_turned ^ bits, ..some };
        }
        Ok(all)
    }

    fn both(&self, first: Made<V>, rest: &mut Words<'_>) -> Parsed<Made<V>> {
        let mut all = first;
        while rest.take("&") || rest.take("and") {
            let (some, bits) = all.apart(self.operand(rest)?)?;
            all = Made { mask: some.mask & bits, turned: some.turned & bits, last_turned: 0, ..some };
        }
        Ok(all)
    }

    fn operand(&self, rest: &mut Words<'_>) -> Parsed<Made<V>> {
        if !rest.take("(") {
            return (self.one)(rest);
        }
        if self.depth.get() >= DEPTH_MAX {
            return wrong(
                format!("parentheses stand more than {DEPTH_MAX} deep in one another"),
                "write fewer of them",
            );
        }
        self.depth.set(self.depth.get() + 1);
        let within = self.whole(rest)?;
        self.depth.set(self.depth.get() - 1);
        if rest.take(")") { Ok(within) } else { wrong("a parenthesis without its end", "write )") }
    }
}

//! Numbers that are made from something: `& 0x38`, `^ 1`, `| (1 | 4)`, with as many constants as one likes. `&` binds before `^`, and that
//! before `|`, as in nftables.

use std::cell::Cell;

use super::reader::Words;
use super::{Parsed, wrong};

/// What comes out: of what it is made from these bits, and then others turned over; of nothing a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Made<V> {
    pub(super) from: Option<V>,
    pub(super) mask: u128,
    pub(super) turned: u128,
    /// Of these the ones that a last `^` turns over. nftables turns over what is compared instead, both ends of a range as well.
    pub(super) last_turned: u128,
}

impl<V> Made<V> {
    /// Something, all of it.
    pub(super) fn all(from: V) -> Made<V> {
        Made { from: Some(from), mask: u128::MAX, turned: 0, last_turned: 0 }
    }

    pub(super) fn constant(bits: u128) -> Made<V> {
        Made { from: None, mask: 0, turned: bits, last_turned: 0 }
    }

    /// Of two the one that is made from something, and the constant that the other one is.
    fn apart(self, other: Made<V>) -> Parsed<(Made<V>, u128)> {
        match (&self.from, &other.from) {
            (_, None) => Ok((self, other.turned)),
            (None, _) => Ok((other, self.turned)),
            _ => wrong("two marks in one", "write one mark, and numbers"),
        }
    }
}

/// Whether something is made from what stands before.
pub(super) fn comes(rest: &Words<'_>, at: usize) -> bool {
    matches!(rest.peek_at(at), "&" | "and" | "^" | "xor" | "|" | "or")
}

/// How many tokens it takes to make something from what stands before the token at `at`; 0 if nothing is made.
pub(super) fn len(words: &Words<'_>, at: usize) -> usize {
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

/// How deep parentheses may stand in one another.
const DEPTH_MAX: u32 = 64;

/// Reads one operand after another.
pub(super) struct Reckoner<F> {
    /// Reads an operand that stands in no parentheses.
    one: F,
    /// How many parentheses are open.
    depth: Cell<u32>,
}

impl<V, F: Fn(&mut Words<'_>) -> Parsed<Made<V>>> Reckoner<F> {
    /// A reader of what `one` reads one of.
    pub(super) fn new(one: F) -> Reckoner<F> {
        Reckoner { one, depth: Cell::new(0) }
    }

    /// Reads all that is made from a first operand, which has been read.
    pub(super) fn behind(&self, first: Made<V>, rest: &mut Words<'_>) -> Parsed<Made<V>> {
        let mut all = self.unlike(first, rest)?;
        while rest.take("|") || rest.take("or") {
            let next = self.operand(rest)?;
            let (some, bits) = all.apart(self.unlike(next, rest)?)?;
            all = Made { mask: some.mask & !bits, turned: some.turned | bits, last_turned: 0, ..some };
        }
        Ok(all)
    }

    /// Reads an operand, and all that is made from it.
    pub(super) fn whole(&self, rest: &mut Words<'_>) -> Parsed<Made<V>> {
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

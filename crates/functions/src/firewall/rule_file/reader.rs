//! What is left of a statement: its next word, a set, a list of values of one kind.

use super::words::Word;
use super::{Defined, Parsed, wrong};
use crate::firewall::values::{NameOrNumber, PortRange};
use crate::parts::Many;

/// The words of a statement that are still to be read.
pub(super) struct Words<'a> {
    pub(super) words: &'a [Word],
    pub(super) defined: &'a Defined,
}

impl Words<'_> {
    pub(super) fn peek(&self) -> &str {
        self.words.first().map_or("", |Word(text)| text)
    }

    /// Takes the next word if it is this one.
    pub(super) fn take(&mut self, word: &str) -> bool {
        let is_next = self.peek() == word;
        if is_next {
            self.word();
        }
        is_next
    }

    /// The next word; empty at the end.
    pub(super) fn word(&mut self) -> String {
        let word = self.peek().to_owned();
        self.words = self.words.get(1..).unwrap_or_default();
        word
    }

    pub(super) fn end(&self) -> Parsed<()> {
        match self.peek() {
            "" => Ok(()),
            more => wrong(format!("`{more}` comes behind the end of the rule"), "remove it, or begin a new line"),
        }
    }

    /// A value, a set in braces or one that is defined; and whether `!=` stands before it.
    pub(super) fn set(&mut self, of: &str) -> Parsed<(Vec<String>, bool)> {
        let is_negated = self.peek() == "!=";
        if is_negated || self.peek() == "==" {
            self.word();
        }
        let word = self.word();
        if word.is_empty() {
            return wrong(format!("nothing stands behind `{of}`"), "write a value or { a, set }");
        }
        if let Some(name) = word.strip_prefix(['$', '@']) {
            return match self.defined.iter().rev().find(|(known, _)| known == name) {
                Some((_, values)) => Ok((values.clone(), is_negated)),
                None => wrong(format!("`{name}` is not defined"), format!("write define {name} = {{ … }} before")),
            };
        }
        if word != "{" {
            return Ok((vec![word], is_negated));
        }
        let mut values = Vec::new();
        loop {
            match self.word().as_str() {
                "}" => break,
                "," => {}
                "" => return wrong("a set without its end", "write } behind it"),
                value => values.push(value.to_owned()),
            }
        }
        if values.is_empty() {
            return wrong("a set with nothing in it", "write one value or more");
        }
        Ok((values, is_negated))
    }

    /// A set of values of one kind.
    pub(super) fn list<T>(&mut self, what: &str, parse: impl Fn(&str) -> Option<T>) -> Parsed<Many<T>> {
        let (texts, is_negated) = self.set(what)?;
        if is_negated {
            return wrong("`!=` is for addresses and ports only", "name what shall fit");
        }
        let mut values = Vec::new();
        for text in texts {
            match parse(&text) {
                Some(value) => values.push(value),
                None => return wrong(format!("`{text}` is not {what}"), format!("write {what}")),
            }
        }
        Ok(Many(values))
    }

    /// A set of ports, or what it leaves of all of them.
    pub(super) fn ports(&mut self) -> Parsed<Many<PortRange>> {
        let is_negated = self.peek() == "!=";
        if is_negated {
            self.word();
        }
        let Many(mut ranges) = self.list("a port, a range or a name such as 80, 6000-6063 or ssh", |text| {
            NameOrNumber::Name(text.to_owned()).try_into().ok()
        })?;
        if is_negated {
            ranges = PortRange::except(ranges);
        }
        if ranges.is_empty() { wrong("no port is left", "write != and less than all ports") } else { Ok(Many(ranges)) }
    }
}

//! Reads the rest of a statement: its next word, a set, ports; and resolves the names in it.

use braid_nf::packet::services;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

use super::conditions::numbers::Numbers;
use super::file::set_declarations::ADDED;
use super::file::syntax::apart;
use super::file::tokens::{Kind, Place, Token};
use super::statement::amounts::Pool;
use super::{Around, Note, Parsed, Ports, wrong};
use crate::firewall::conditions::payload;
use crate::firewall::conditions::values::PortRange;
use crate::firewall::effects::dynamic_sets::Dynamic;
use crate::firewall::rules::Direction;

/// Named sets and maps: the tokens between their braces.
pub(super) type Sets = Vec<(String, Vec<Token>)>;

/// The context in which statements are read.
pub(super) struct Scope<'a> {
    pub(super) ports: Ports,
    /// What the plan says about the firewall's surroundings.
    pub(super) around: &'a Around,
    pub(super) sets: &'a Sets,
    /// Family and name of the table.
    pub(super) table: &'a str,
    /// Sets that packets change.
    pub(super) dynamic: &'a [Arc<Dynamic>],
    /// Named limits and quotas.
    pub(super) pools: &'a [Pool],
    /// The names of counters.
    pub(super) counters: &'a [String],
    /// Whether this is within a table, where words have the meaning that they have in nftables.
    pub(super) in_table: bool,
    /// Whether the chain comes before connection tracking.
    pub(super) is_early: bool,
    /// Whether packets come to the chain before their hops are counted.
    pub(super) has_all_hops: bool,
    /// Whether ARP packets come to the chain.
    pub(super) arp: bool,
    /// Whether a translator redirects packets to other destinations than those to which their connections were opened.
    pub(super) translates: bool,
    /// The direction of the packets that come to the chain, if all have the same; the chain is then for the hosts inside.
    pub(super) direction: Option<Direction>,
    /// The place that was read last, which locates errors.
    pub(super) at: &'a Cell<Place>,
    /// What is not supported, and why.
    pub(super) notes: &'a RefCell<Vec<Note>>,
    /// The places in packets that conditions use, in the order of the fields that hold them.
    pub(super) places: &'a RefCell<Vec<payload::Place>>,
    /// The names of the files that are read.
    pub(super) files: &'a [Arc<str>],
}

impl Scope<'_> {
    /// Notes, once per line, that something in the line is ignored.
    pub(super) fn note(&self, text: &str) {
        let at = self.at.get();
        let note = Note { line: at.line, file: self.file(at), text: text.to_owned() };
        let mut notes = self.notes.borrow_mut();
        if !notes.contains(&note) {
            notes.push(note);
        }
    }

    /// Notes that a condition on the type of a frame is about IPv6 only, although it names ARP, or does not exclude it.
    pub(super) fn note_of_arp(&self) {
        if self.arp {
            self.note("only IPv6 is meant here, and not ARP: write a rule of its own for it, ether type arp");
        }
    }

    /// The file that contains a place; `None` for the rule file itself.
    pub(super) fn file(&self, at: Place) -> Option<Arc<str>> {
        self.files.get(usize::from(at.file)).filter(|_| at.file > 0).cloned()
    }
}

/// The words of a statement that are still to be read.
#[derive(Clone, Copy)]
pub(super) struct Words<'a> {
    pub(super) words: &'a [Token],
    pub(super) scope: &'a Scope<'a>,
}

impl<'a> Words<'a> {
    pub(super) fn peek(&self) -> &'a str {
        self.peek_at(0)
    }

    /// The word after the next `n`; empty beyond the end.
    pub(super) fn peek_at(&self, n: usize) -> &'a str {
        self.words.get(n).map_or("", |token| &token.text)
    }

    /// Takes the next word if it is this one.
    pub(super) fn take(&mut self, word: &str) -> bool {
        let is_next = self.peek() == word;
        if is_next {
            self.word();
        }
        is_next
    }

    /// Takes the next word; empty at the end.
    pub(super) fn word(&mut self) -> String {
        self.token().map_or_else(String::new, |token| token.text.to_string())
    }

    pub(super) fn token(&mut self) -> Option<&'a Token> {
        let (first, rest) = self.words.split_first()?;
        self.scope.at.set(first.at);
        self.words = rest;
        Some(first)
    }

    /// Whether a statement ends here.
    pub(super) fn at_end(&self) -> bool {
        self.words.first().is_some_and(|token| token.kind == Kind::End)
    }

    /// Takes the next `n` tokens, or all that are left.
    pub(super) fn tokens(&mut self, n: usize) -> &'a [Token] {
        let (taken, rest) = self.words.split_at(n.min(self.words.len()));
        self.words = rest;
        taken
    }

    pub(super) fn end(&mut self) -> Parsed<()> {
        match self.word().as_str() {
            "" => Ok(()),
            more => wrong(format!("`{more}` comes behind the end of the rule"), "remove it, or begin a new line"),
        }
    }

    /// Takes `!=`, `==` (or `ne`, `eq`) or nothing, and returns whether it was `!=`.
    pub(super) fn negated(&mut self) -> bool {
        let is_negated = self.take("!=") || self.take("ne");
        if !is_negated && !self.take("==") {
            self.take("eq");
        }
        is_negated
    }

    /// Takes the elements of the set that comes next, in braces or by name, or a single value.
    pub(super) fn elements(&mut self, of: &str) -> Parsed<Vec<Token>> {
        let Some(first) = self.token() else {
            return wrong(format!("nothing stands behind `{of}`"), "write a value or { a, set }");
        };
        if let Some(name) = first.text.strip_prefix('@') {
            if self.scope.dynamic.iter().any(|set| set.name == name) {
                return wrong(
                    format!("packets change the set `{name}`, and `{of}` only knows what the file puts into it"),
                    "ask for the field that packets add, as in ip saddr @banned",
                );
            }
            return match self.scope.sets.iter().rev().find(|(known, _)| known == name) {
                Some((_, elements)) => Ok(elements.clone()),
                None => wrong(
                    format!("there is no set `{name}`"),
                    format!("write set {name} {{ type ipv4_addr; elements = {{ … }} }}"),
                ),
            };
        }
        if &*first.text != "{" {
            let mut value = vec![first.clone()];
            // A range with blanks in it, or one between quotes.
            if self.peek().starts_with('-') {
                let is_apart = self.peek() == "-";
                value.extend(self.token().cloned());
                value.extend(if is_apart { self.token().cloned() } else { None });
            }
            return Ok(value);
        }
        let (mut depth, mut elements) = (1u32, Vec::new());
        loop {
            let Some(token) = self.token() else { return wrong("a set without its end", "write } behind it") };
            match &*token.text {
                "{" if token.kind == Kind::Word => depth += 1,
                "}" if token.kind == Kind::Word => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                break;
            }
            if token.kind != Kind::End {
                elements.push(token.clone());
            }
        }
        let elements = apart(elements);
        if elements.is_empty() {
            return wrong("a set with nothing in it", "write one value or more");
        }
        Ok(elements)
    }

    /// Reads a value, a set in braces or a named set, and whether `!=` precedes it.
    pub(super) fn set(&mut self, of: &str) -> Parsed<(Vec<String>, bool)> {
        let is_negated = self.negated();
        let mut values = Vec::new();
        for element in self.elements(of)?.split(|token| &*token.text == "," && token.kind != Kind::Quoted) {
            values.extend(value(element)?);
        }
        Ok((values, is_negated))
    }

    /// Reads a set of ports; if it is negated, all others.
    pub(super) fn ports(&mut self) -> Parsed<Vec<PortRange>> {
        let ranges = PORT.read(self)?.into_iter();
        Ok(ranges.map(|(first, last)| PortRange { first: first as u16, last: last as u16 }).collect())
    }
}

pub(super) const PORT: Numbers = Numbers {
    what: "a port, a range or a name such as 80, 6000-6063 or ssh",
    last: u16::MAX as u64,
    named: |name| services::port(name).map(u64::from),
};

/// Whether what accompanies an element begins here: a comment, a counter with its current count, or when it was met last.
pub(super) fn accompanies(token: &Token) -> bool {
    token.kind == Kind::Word && matches!(&*token.text, "comment" | "counter" | "last")
}

/// The value of an element: a word, or a range with blanks in it; `None` if there is nothing between two commas.
fn value(element: &[Token]) -> Parsed<Option<String>> {
    let mut text = String::new();
    for token in element {
        match &*token.text {
            _ if accompanies(token) && !text.is_empty() => break,
            "limit" | "quota" | "ct" if token.kind == Kind::Word && !text.is_empty() => {
                return wrong(format!("no rule adds `{text}`, and only what rules add has limits of its own"), ADDED);
            }
            "timeout" | "expires" if token.kind == Kind::Word => {
                return wrong(
                    "elements do not go by themselves here",
                    "remove the timeout, or the element: nft -t list ruleset leaves elements out",
                );
            }
            word if text.is_empty() || text.ends_with('-') || word.starts_with('-') => text += word,
            "." => {
                return wrong("a concatenation is not expected here", "write the fields with . between them before it");
            }
            word => return wrong(format!("`{word}` comes behind `{text}` without a comma"), "write { one, two }"),
        }
    }
    Ok((!text.is_empty()).then_some(text))
}

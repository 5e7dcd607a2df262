//! Conditions that stand together: fields joined by `.`, sets and verdict maps of them, and sets that packets change. Each element is a
//! way in which a rule fits.

use std::cell::Cell;

use super::conditions::{Fits, condition, selector};
use super::keyed::{dynamic, key_of};
use super::reader::{Scope, Words};
use super::statement::{Clause, Reading};
use super::tokens::{Kind, Token};
use super::verdict::{Verdict, verdict};
use super::{Parsed, wrong};
use crate::firewall::keyed::{Act, Keyed};
use crate::firewall::rules::{Action, Rule};

/// Reads a condition, one of several fields together, or a verdict map, of which the ways and verdicts are returned.
pub(super) fn conditions(rest: &mut Words<'_>, reading: &mut Reading) -> Parsed<Option<Vec<(Fits, Verdict)>>> {
    let mut fields = Vec::new();
    let mut look = *rest;
    while let Some(n) = selector(&look) {
        fields.push(look.tokens(n));
        if !look.take(".") {
            break;
        }
    }
    let is_map = look.peek() == "vmap";
    if let Some(keyed) = asked_set(look, &fields, reading)? {
        reading.close(Verdict::Continue);
        reading.does.keyed = Some(keyed);
        look.negated();
        look.word();
        *rest = look;
        return Ok(None);
    }
    if !is_map && fields.len() < 2 {
        let (begin, left) = (*rest, Cell::new(rest.words));
        reading.narrow(&[()], |fits, ()| {
            let mut words = begin;
            condition(fits, &mut words)?;
            left.set(words.words);
            Ok(())
        })?;
        rest.words = left.get();
        return Ok(None);
    }
    *rest = look;
    if is_map {
        rest.word();
        return verdicts(rest, reading, &fields).map(Some);
    }
    if rest.negated() {
        return wrong("`!=` is for single fields only", "write what shall fit");
    }
    let elements = rest.elements("a set")?;
    let ways: Vec<_> = listed(&elements).map(|key| sayings(&fields, key)).collect();
    reading.narrow(&ways, |fits, said| say(fits, said, rest.scope))?;
    Ok(None)
}

/// A rule that ends with a verdict map: what it does besides comes first, for whatever fits so far.
pub(super) fn verdict_map(verdicts: Vec<(Fits, Verdict)>, mut reading: Reading) -> Parsed<Vec<Clause>> {
    let comment = std::mem::take(&mut reading.does.comment);
    reading.close(Verdict::Continue);
    for (fits, verdict) in verdicts {
        let does = Rule { comment: comment.clone(), ..Rule::new(Action::Continue) };
        reading.clauses.push(Clause { fits: vec![fits], does, verdict });
    }
    Ok(reading.clauses)
}

/// `ip saddr @banned`, if packets change that set.
fn asked_set(mut look: Words<'_>, fields: &[&[Token]], reading: &mut Reading) -> Parsed<Option<Keyed>> {
    let not = look.negated();
    let Some(set) = look.peek().strip_prefix('@').and_then(|name| dynamic(&look, name)) else { return Ok(None) };
    let key = key_of(fields, &look, &mut reading.fits)?;
    Ok(Some(Keyed { set, key, act: Act::Has { not }, refreshes: false, timeout_s: None }))
}

/// What fits each element of a verdict map, and its verdict.
fn verdicts(rest: &mut Words<'_>, reading: &Reading, fields: &[&[Token]]) -> Parsed<Vec<(Fits, Verdict)>> {
    let (elements, scope) = (rest.elements("vmap")?, rest.scope);
    let mut verdicts = Vec::new();
    for element in listed(&elements) {
        let Some(colon) = element.iter().position(|token| token.text == ":") else {
            Words { words: element, scope }.token();
            return wrong("an element of a verdict map without its verdict", "write { 22 : accept, 23 : drop }");
        };
        let (key, value) = element.split_at(colon);
        let mut one = Reading { fits: reading.fits.clone(), does: Rule::new(Action::Continue), clauses: Vec::new() };
        one.narrow(&[sayings(fields, key)], |fits, said| say(fits, said, scope))?;
        let mut value = Words { words: value, scope };
        value.take(":");
        let Some(verdict) = verdict(&mut value, &mut one.fits)? else {
            return wrong(format!("`{}` is no verdict", value.word()), "write { 22 : accept, 23 : drop }");
        };
        value.end()?;
        verdicts.extend(one.fits.into_iter().map(|fits| (fits, verdict.clone())));
    }
    Ok(verdicts)
}

/// The elements of a set or map.
fn listed(elements: &[Token]) -> impl Iterator<Item = &[Token]> {
    elements.split(|token| token.text == "," && token.kind != Kind::Quoted).filter(|element| !element.is_empty())
}

/// Each field with its part of a key, as a condition of its own: `ip saddr . tcp dport` and `10.0.0.1 . 22`.
fn sayings(fields: &[&[Token]], key: &[Token]) -> Vec<Vec<Token>> {
    let parts = key.split(|token| token.text == ".");
    let say = |(field, part): (&&[Token], &[Token])| {
        // In a key flags are all that is set, as behind `==`.
        let equal = part.first().map(|first| Token { text: "==".to_owned(), kind: Kind::Word, ..first.clone() });
        [*field, equal.as_slice(), part].concat()
    };
    fields.iter().zip(parts.chain(std::iter::repeat(&[][..]))).map(say).collect()
}

/// Narrows by several conditions.
fn say(fits: &mut Fits, said: &[Vec<Token>], scope: &Scope<'_>) -> Parsed<()> {
    said.iter().try_for_each(|words| {
        let mut words = Words { words, scope };
        condition(fits, &mut words)?;
        words.end()
    })
}

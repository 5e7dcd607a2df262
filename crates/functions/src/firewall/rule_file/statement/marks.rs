//! Marks: `meta mark & 0xff == 1`, `ct mark vmap { 1 : accept }`, `ct mark set meta mark | 0x10`,
//! `meta mark set ip dscp map { ef : 1 }`, `ct mark set meta mark map { 1 : 10 }`.
//!
//! If no rule of a file tests a mark, none is set, and the report says so ([`unless_asked`]).

use super::verdict::{Verdict, verdict};
use super::{Clause, Reading};
use crate::firewall::effects::marks::{Asked, Given, Value, Whose};
use crate::firewall::rule_file::conditions::Fits;
use crate::firewall::rule_file::conditions::arithmetic::{Made, Reckoner};
use crate::firewall::rule_file::conditions::concatenation::{alone, listed, map_values, verdict_of};
use crate::firewall::rule_file::conditions::numbers::{Numbers, nameless, number};
use crate::firewall::rule_file::reader::Words;
use crate::firewall::rule_file::{Kind, Note, Parsed, Wrong, wrong};
use crate::firewall::rules::{Action, Rule};

const MARK: Numbers = Numbers { what: "a mark such as 7, 0x10 or 1-15", last: u32::MAX as u64, named: nameless };

/// Reads the test of a value that is computed from a mark.
fn asked(made: Value, rest: &mut Words<'_>) -> Parsed<Asked> {
    let ranges = MARK.read(rest)?.into_iter().map(|(first, last)| (first as u32, last as u32)).collect();
    Ok(Asked { made, ranges })
}

/// Whose mark comes next, and how many words name it.
fn named(rest: &Words<'_>) -> Option<(Whose, usize)> {
    match (rest.peek(), rest.peek_at(1)) {
        ("mark", _) => Some((Whose::Packet, 1)),
        ("meta", "mark") => Some((Whose::Packet, 2)),
        ("ct", "mark") => Some((Whose::Connection, 2)),
        _ => None,
    }
}

/// Takes the words that say whose mark comes next.
fn take(rest: &mut Words<'_>) -> Option<Whose> {
    let (whose, words) = named(rest)?;
    (0..words).for_each(|_| drop(rest.word()));
    Some(whose)
}

/// Whether a mark comes next.
pub(in crate::firewall::rule_file) fn is_next(rest: &Words<'_>) -> bool {
    named(rest).is_some()
}

/// Reads a statement that sets a mark, a condition on one, or a verdict map, whose clauses it returns.
pub(in crate::firewall::rule_file) fn mark(rest: &mut Words<'_>, reading: &mut Reading) -> Parsed<Option<Vec<Clause>>> {
    let Some(whose) = take(rest) else { return Ok(None) };
    if rest.take("set") {
        return set(whose, rest, reading);
    }
    let made = value(&reckoner().behind(Made::all(whose), rest)?);
    match rest.peek() {
        "vmap" => return verdicts(made, rest, reading).map(Some),
        "." => return wrong("marks cannot be concatenated", "write meta mark 1 before the other fields"),
        _ => {}
    }
    // Effects that precede it in the rule do not depend on it.
    reading.close(Verdict::Continue);
    let names_set = rest.peek().starts_with('@') || rest.peek_at(1).starts_with('@');
    match asked(made, rest) {
        Ok(asked) => reading.does.asks.push(asked),
        // A set that is empty so far matches nothing.
        Err(Wrong { kind: Kind::Excluded, reason, .. }) if names_set => reading.exclude(reason),
        Err(error) => return Err(error),
    }
    Ok(None)
}

/// Removes the setting of marks if no rule tests one: it would decide nothing, but every packet would have to be examined for
/// it. Returns a note for each line concerned.
pub(in crate::firewall::rule_file) fn unless_asked(rules: &mut [Rule]) -> Vec<Note> {
    let mut notes = Vec::new();
    if rules.iter().any(|rule| !rule.asks.is_empty()) {
        return notes;
    }
    for rule in rules.iter_mut().filter(|rule| !rule.gives.is_empty()) {
        rule.gives.clear();
        let text = "marks are not set: no rule asks for one, and no route and no translation here goes by them";
        let note = Note { line: rule.line, file: rule.file.clone(), text: text.to_owned() };
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    notes
}

/// Reads `vmap { 1 : accept, 2-3 : jump two }`: a packet that does not match an element goes on to the next one.
fn verdicts(made: Value, rest: &mut Words<'_>, reading: &Reading) -> Parsed<Vec<Clause>> {
    let elements = elements(made, rest, ("verdict", reading.fits.as_slice(), verdict_of))?.into_iter();
    let clause = |(asked, fits, verdict)| {
        let does = Rule { asks: vec![asked], ..Rule::new(Action::Continue) };
        Clause { fits, does, verdict, is_one_of_several: true }
    };
    Ok(elements.map(clause).collect())
}

/// Reads a map or verdict map on a mark: what each element asks for, the other conditions so far, and its value.
fn elements<T: PartialEq>(
    made: Value,
    rest: &mut Words<'_>,
    (what, fits, read): (&str, &[Fits], impl Fn(&mut Words<'_>, &mut [Fits]) -> Parsed<T>),
) -> Parsed<Vec<(Asked, Vec<Fits>, T)>> {
    rest.word();
    let (all, scope) = (rest.elements("map")?, rest.scope);
    let mut elements: Vec<(Asked, Vec<Fits>, T)> = Vec::new();
    for element in listed(&all) {
        let colon = element.iter().position(|token| &*token.text == ":").unwrap_or(element.len());
        let (key, value) = element.split_at(colon);
        let (mut key, mut value) = (Words { words: alone(key), scope }, Words { words: value, scope });
        let asked = asked(made, &mut key)?;
        key.end()?;
        value.take(":");
        let mut fits = fits.to_vec();
        let read = read(&mut value, &mut fits)?;
        if value.take("comment") {
            value.word();
        }
        value.end()?;
        if elements.iter().any(|(other, _, before)| *before != read && other.overlaps(&asked)) {
            scope.at.set(element.first().map(|first| first.at).unwrap_or_default());
            return wrong(format!("the map gives the mark another {what} before"), "write each mark once");
        }
        elements.push((asked, fits, read));
    }
    Ok(elements)
}

/// Reads what follows `set`. Returns the clauses of a map on a mark, which end the rule.
fn set(whose: Whose, rest: &mut Words<'_>, reading: &mut Reading) -> Parsed<Option<Vec<Clause>>> {
    if let Some(made) = mapped(rest)? {
        return by_mark((whose, made), rest, reading).map(Some);
    }
    let Some(values) = map_values(rest, reading, either)? else {
        let value = either(rest)?;
        reading.does.gives.push(Given { whose, value });
        return Ok(None);
    };
    let gives = |value| Rule { gives: vec![Given { whose, value }], ..Rule::new(Action::Continue) };
    reading.by_map(values.into_iter().map(|(fits, value)| (fits, gives(value))).collect());
    Ok(None)
}

/// Takes the mark that a map goes by, as in `meta mark & 0xff map { … }`, up to the word `map`.
fn mapped(rest: &mut Words<'_>) -> Parsed<Option<Value>> {
    let mut look = *rest;
    let Some(whose) = take(&mut look) else { return Ok(None) };
    let made = value(&reckoner().behind(Made::all(whose), &mut look)?);
    let is_mapped = look.peek() == "map";
    if is_mapped {
        *rest = look;
    }
    Ok(is_mapped.then_some(made))
}

/// Reads `map { 1 : 10, 2 : 20 }`, and the verdict behind it, if there is one. The map is looked up once: a packet that meets an element
/// meets no other, though its mark may be another one by then. One that meets none goes on to the next rule.
fn by_mark((whose, made): (Whose, Value), rest: &mut Words<'_>, reading: &mut Reading) -> Parsed<Vec<Clause>> {
    let elements = elements(made, rest, ("value", &[], |value, _| either(value)))?;
    let verdict = verdict(rest, &mut reading.fits)?.filter(|it| *it != Verdict::Continue).unwrap_or(Verdict::Past);
    if !matches!(rest.peek(), "" | "comment") {
        return wrong(
            "a map of marks ends its rule, but for a verdict",
            "write what comes behind it into another rule",
        );
    }
    let clause = |(asked, _, value)| {
        let does = Rule { asks: vec![asked], gives: vec![Given { whose, value }], ..Rule::new(Action::Continue) };
        Clause { fits: reading.fits.clone(), does, verdict: verdict.clone(), is_one_of_several: true }
    };
    Ok(elements.into_iter().map(clause).collect())
}

/// Reads a value such as `meta mark & 0xffff0000 | 0x10`, with at most one mark, and numbers.
fn either(rest: &mut Words<'_>) -> Parsed<Value> {
    Ok(value(&reckoner().whole(rest)?))
}

/// Reads marks and numbers.
fn reckoner() -> Reckoner<impl Fn(&mut Words<'_>) -> Parsed<Made<Whose>>> {
    Reckoner::new(|rest: &mut Words<'_>| match take(rest) {
        Some(whose) => Ok(Made::all(whose)),
        None => Ok(Made::constant(single(rest)?.into())),
    })
}

fn value(made: &Made<Whose>) -> Value {
    Value { from: made.from, mask: made.mask as u32, bits: made.turned as u32 }
}

fn single(rest: &mut Words<'_>) -> Parsed<u32> {
    let word = rest.word();
    match number(&word).and_then(|number| u32::try_from(number).ok()) {
        Some(number) => Ok(number),
        None => wrong(format!("`{word}` is no mark"), "write a number, meta mark, ct mark, or ip dscp map { ef : 1 }"),
    }
}

//! Combined conditions: fields joined by `.`, sets and verdict maps of them, and sets that packets change. Each element is one
//! way in which a rule can match.

use std::cell::Cell;
use std::collections::HashMap;

use super::addresses::family;
use super::arp::only;
use super::fib::Ways;
use super::joined::joined;
use super::numbers::shifted;
use super::payload::{is_header, is_place, reaches};
use super::transport::{has_ports, narrow_types};
use super::{Fits, condition, narrow_family, narrow_field, narrow_protocol, protocol, selector};
use crate::firewall::conditions::fields::{Field, NO_STATION, UNTAGGED};
use crate::firewall::effects::dynamic_sets::{Act, Keyed};
use crate::firewall::rule_file::file::overlaps;
use crate::firewall::rule_file::file::tokens::{Kind, Token};
use crate::firewall::rule_file::reader::{Scope, Words, accompanies};
use crate::firewall::rule_file::statement::dynamic_sets::{dynamic, key_of};
use crate::firewall::rule_file::statement::verdict::{Verdict, verdict};
use crate::firewall::rule_file::statement::{Clause, Reading, ways};
use crate::firewall::rule_file::{Parsed, wrong};
use crate::firewall::rules::{Action, Rule};

/// Reads a condition, a condition on several fields together, or a verdict map, whose clauses it returns.
pub(in crate::firewall::rule_file) fn conditions(
    rest: &mut Words<'_>,
    reading: &mut Reading,
) -> Parsed<Option<Vec<Clause>>> {
    if let Some(keyed) = asked_set(rest, reading)? {
        reading.does.keyed = Some(keyed);
        return Ok(None);
    }
    let mut look = *rest;
    let fields = fields(&mut look);
    let is_map = look.peek() == "vmap";
    if !is_map && fields.len() < 2 {
        let (begin, left) = (*rest, Cell::new(None));
        reading.narrow(&[()], |fits, ()| {
            let mut words = begin;
            let read = condition(fits, &mut words);
            if read.is_ok() {
                left.set(Some(words.words));
            }
            read
        })?;
        rest.words = left.get().unwrap_or_else(|| {
            // A reading that excludes what was said before may stop within; one that nothing contradicts comes to the end.
            let mut words = begin;
            let _ = condition(&mut Fits::all(), &mut words);
            words.words
        });
        return Ok(None);
    }
    *rest = look;
    if matches!(rest.peek(), "<<" | ">>") {
        return shifted(rest);
    }
    if is_map {
        rest.word();
        return verdicts(rest, reading, &narrowing(&fields, rest.scope)).map(Some);
    }
    let is_negated = rest.negated();
    let mut elements = rest.elements("a set")?;
    // One key without braces.
    while rest.peek() == "." {
        elements.extend(rest.tokens(1).iter().cloned());
        elements.extend(rest.elements("a set")?);
    }
    let said: Vec<_> = listed(&elements).map(|element| sayings(&fields, alone(element))).collect();
    if is_negated {
        // Packets that match an element skip the rule; of the others the rule matches those that have all of the fields.
        reading.close(Verdict::Continue);
        let mut past = Reading::of(reading.fits.clone());
        // Elements excluded by the rest of the rule are no exceptions; an element that can never match is refused.
        let mut apart = Reading::of(vec![Fits::all()]);
        alternatives(&mut apart, (&elements, &said), rest.scope)?;
        if alternatives(&mut past, (&elements, &said), rest.scope).is_ok()
            && past.excluded.is_none()
            && !said.is_empty()
        {
            past.close(Verdict::Past);
            reading.clauses.append(&mut past.clauses);
        }
        let scope = rest.scope;
        return reading
            .narrow(&[()], |fits, ()| fields.iter().try_for_each(|field| has(fits, field, scope)))
            .map(|()| None);
    }
    alternatives(reading, (&elements, &said), rest.scope)?;
    Ok(None)
}

/// What an element of a concatenation says of each field, in words.
type Said = Vec<Vec<Token>>;

/// Narrows by the elements of a set; by an empty one, which a file may declare and fill later, so that nothing matches.
fn alternatives(reading: &mut Reading, (elements, said): (&[Token], &[Said]), scope: &Scope<'_>) -> Parsed<()> {
    match said {
        [] if elements.is_empty() => ways(Ways::new(), reading),
        _ => reading.narrow(said, |fits, said| say(fits, said, scope)),
    }
}

/// Restricts to packets that have a field at all, whatever its value.
pub(in crate::firewall::rule_file) fn has(fits: &mut Fits, field: &[Token], scope: &Scope<'_>) -> Parsed<()> {
    let [first, second] = [0, 1].map(|at| field.get(at).map_or("", |token| &token.text));
    let rule = &mut fits.rule;
    match (first, second) {
        ("ip" | "ip6", _) => narrow_family(rule, family(first)),
        ("arp", _) => {
            only(fits);
            Ok(())
        }
        ("icmp" | "icmpv6", number) if !matches!(number, "type" | "code") => {
            narrow_protocol(rule, protocol(first).into_iter().collect())?;
            narrow_types(rule, (first, number))
        }
        ("sctp", "sport" | "dport") => narrow_protocol(rule, protocol(first).into_iter().collect()),
        (of, _) if is_place(of) || is_header(of) => reaches(rule, &Words { words: field, scope }),
        ("tcp" | "udp" | "icmp" | "icmpv6", _) => narrow_protocol(rule, protocol(first).into_iter().collect()),
        ("th", _) if has_ports(rule) => Ok(()),
        ("th", _) => reaches(rule, &Words { words: field, scope }),
        ("ether", "saddr") => narrow_field(rule, Field::EtherSource, vec![(0, NO_STATION - 1)]),
        ("ether", "daddr") => narrow_field(rule, Field::EtherDestination, vec![(0, NO_STATION - 1)]),
        ("vlan", _) => narrow_field(rule, Field::Vlan, vec![(0, UNTAGGED - 1)]),
        ("meta" | "ct" | "iif" | "oif" | "iifname" | "oifname" | "pkttype" | "l4proto" | "nfproto", _) => Ok(()),
        _ => wrong(format!("`{first} {second}` is not known behind `!=`"), "write what shall fit"),
    }
}

/// Takes the fields that come next, separated by `.`, each with what is made of it: `ip saddr & 255.255.255.0`.
fn fields<'a>(rest: &mut Words<'a>) -> Vec<&'a [Token]> {
    let mut fields = Vec::new();
    while let Some(n) = selector(rest) {
        fields.push(rest.tokens(n));
        if !rest.take(".") {
            break;
        }
    }
    fields
}

/// The elements of a map: the conditions of each, and its value.
pub(in crate::firewall::rule_file) type Elements<T> = Vec<(Vec<Fits>, T)>;

/// Reads a map such as `ip dscp map { ef : 1, cs1 : 2 }`, if one comes next: the conditions of each element, and its value.
pub(in crate::firewall::rule_file) fn map_values<T>(
    rest: &mut Words<'_>,
    reading: &mut Reading,
    read: impl Fn(&mut Words<'_>) -> Parsed<T>,
) -> Parsed<Option<Elements<T>>> {
    let mut look = *rest;
    let fields = fields(&mut look);
    if fields.is_empty() || !look.take("map") {
        return Ok(None);
    }
    *rest = look;
    reading.close(Verdict::Continue);
    let (elements, scope) = (rest.elements("map")?, rest.scope);
    if listed(&elements).any(is_rest) {
        return wrong("what a map does not hold has no value here", "write a rule behind it for the rest");
    }
    let by_fields = narrowing(&fields, scope);
    let one = |element| element_of(element, &reading.fits, scope, &by_fields, |value, _| read(value));
    let values: Elements<T> = listed(&elements).map(one).collect::<Parsed<_>>()?;
    overlaps::check(listed(&elements).zip(values.iter().map(|(fits, _)| fits.as_slice())), scope)?;
    Ok(Some(values))
}

/// An element of a set without what accompanies it: a comment, a counter with its current count, or when it was met last.
pub(in crate::firewall::rule_file) fn alone(element: &[Token]) -> &[Token] {
    element.split(accompanies).next().unwrap_or_default()
}

/// Whether an element of a map is the default, for packets that match no other: `* : drop`.
pub(in crate::firewall::rule_file) fn is_rest(element: &[Token]) -> bool {
    element.first().is_some_and(|token| &*token.text == "*" && token.kind == Kind::Word)
}

/// Narrows by the key of an element of a map; without one, for the default.
type Narrowing<'a> = Box<dyn Fn(&mut Reading, Option<&[Token]>) -> Parsed<()> + 'a>;

/// Narrows fields to their parts of a key.
fn narrowing<'a>(fields: &'a [&'a [Token]], scope: &'a Scope<'a>) -> Narrowing<'a> {
    Box::new(move |one, key| match key {
        None => one.narrow(&[()], |fits, ()| fields.iter().try_for_each(|field| has(fits, field, scope))),
        Some(key) => one.narrow(&[sayings(fields, key)], |fits, said| say(fits, said, scope)),
    })
}

/// Reads an element of a map: its conditions, and the value after its `:`.
fn element_of<T>(
    element: &[Token],
    fits: &[Fits],
    scope: &Scope<'_>,
    narrowing: &Narrowing<'_>,
    read: impl Fn(&mut Words<'_>, &mut [Fits]) -> Parsed<T>,
) -> Parsed<(Vec<Fits>, T)> {
    let Some(colon) = element.iter().position(|token| &*token.text == ":") else {
        Words { words: element, scope }.token();
        return wrong("an element of a map without its value", "write { 22 : accept, 23 : drop } or { ef : 1 }");
    };
    let (key, value) = element.split_at(colon);
    let key = alone(key);
    let mut one = Reading::of(fits.to_vec());
    narrowing(&mut one, Some(key).filter(|_| !is_rest(element)))?;
    let mut value = Words { words: value, scope };
    value.take(":");
    let read = read(&mut value, &mut one.fits)?;
    if value.take("comment") {
        value.word();
    }
    value.end()?;
    one.tell(scope);
    Ok((one.fits, read))
}

/// Reads `ip saddr @banned` or `ip saddr & 255.255.255.0 @nets`, if packets change that set.
fn asked_set(rest: &mut Words<'_>, reading: &mut Reading) -> Parsed<Option<Keyed>> {
    let mut look = *rest;
    let fields = fields(&mut look);
    let not = look.negated();
    let Some(set) = look.peek().strip_prefix('@').and_then(|name| dynamic(&look, name)) else { return Ok(None) };
    look.word();
    // What was counted or marked before it is not held back by it.
    reading.close(Verdict::Continue);
    let key = key_of(&fields, &look, &mut reading.fits, &set)?;
    *rest = look;
    Ok(Some(Keyed { set, key, act: Act::Has { not }, refreshes: false, timeout_s: None }))
}

/// Reads a verdict map on what is known of packets besides their fields, such as `fib daddr type vmap { local : accept }`; `read` reads
/// a key.
pub(in crate::firewall::rule_file) fn verdicts_by(
    rest: &mut Words<'_>,
    reading: &Reading,
    read: impl Fn(&mut Words<'_>) -> Parsed<Ways>,
) -> Parsed<Vec<Clause>> {
    let scope = rest.scope;
    let narrowing: Narrowing<'_> = Box::new(move |one, key| {
        let Some(words) = key else { return Ok(()) };
        let mut words = Words { words, scope };
        ways(read(&mut words)?, one)?;
        words.end()
    });
    verdicts(rest, reading, &narrowing)
}

/// Returns the clauses of a verdict map, one for each verdict.
fn verdicts(rest: &mut Words<'_>, reading: &Reading, narrowing: &Narrowing<'_>) -> Parsed<Vec<Clause>> {
    let (elements, scope) = (rest.elements("vmap")?, rest.scope);
    let goes_on = !matches!(rest.peek(), "" | "comment");
    // The default comes last, wherever it is written.
    let (others, apart): (Vec<_>, Vec<_>) = listed(&elements).partition(|element| is_rest(element));
    let has_rest = !others.is_empty();
    let in_order: Vec<_> = apart.into_iter().chain(others).collect();
    let one = |element: &&[Token]| element_of(element, &reading.fits, scope, narrowing, verdict_of);
    let read: Elements<Verdict> = in_order.iter().map(one).collect::<Parsed<_>>()?;
    overlaps::check(in_order.iter().copied().zip(read.iter().map(|(fits, _)| fits.as_slice())), scope)?;
    let mut groups: Vec<(Verdict, Vec<Fits>)> = Vec::new();
    let mut known = HashMap::new();
    for (element, (fits, verdict)) in in_order.into_iter().zip(read) {
        let is_before_default = has_rest && !is_rest(element);
        if verdict == Verdict::Continue && is_before_default && goes_on {
            return wrong("what continues goes on behind the map here, and past the default", "write two rules");
        }
        // Keys do not overlap, so elements with one verdict may come together; the default stays last.
        let new = groups.len();
        let group = if is_rest(element) { new } else { *known.entry(verdict.clone()).or_insert(new) };
        match groups.get_mut(group) {
            Some((_, all)) => all.extend(fits),
            None => groups.push((verdict, fits)),
        }
    }
    let last = groups.len().saturating_sub(usize::from(has_rest));
    let clause = |fits, verdict| Clause { fits, does: Rule::new(Action::Continue), verdict, is_one_of_several: true };
    let mut clauses = Vec::with_capacity(groups.len());
    for (number, (verdict, fits)) in groups.into_iter().enumerate() {
        let fits = joined(fits);
        // A packet that continues after an element, or returns from its chain, must not match the default too.
        if matches!(verdict, Verdict::Continue | Verdict::Jump(_)) && number < last && has_rest {
            clauses.extend([clause(fits.clone(), verdict), clause(fits, Verdict::Past)]);
        } else {
            clauses.push(clause(fits, verdict));
        }
    }
    Ok(clauses)
}

/// Reads the verdict of an element.
pub(in crate::firewall::rule_file) fn verdict_of(value: &mut Words<'_>, fits: &mut [Fits]) -> Parsed<Verdict> {
    match verdict(value, fits)? {
        Some(verdict) => Ok(verdict),
        None => wrong(format!("`{}` is no verdict", value.word()), "write { 22 : accept, 23 : drop }"),
    }
}

/// The elements of a set or map.
pub(in crate::firewall::rule_file) fn listed(elements: &[Token]) -> impl Iterator<Item = &[Token]> {
    elements.split(|token| &*token.text == "," && token.kind != Kind::Quoted).filter(|element| !element.is_empty())
}

/// Combines each field with its part of a key into a condition of its own: `ip saddr . tcp dport` and `10.0.0.1 . 22`.
fn sayings(fields: &[&[Token]], key: &[Token]) -> Vec<Vec<Token>> {
    let parts = key.split(|token| &*token.text == ".");
    let say = |(field, part): (&&[Token], &[Token])| {
        // In a key, flags are the exact set, as after `==`.
        let equal = part.first().map(|first| Token { text: "==".into(), kind: Kind::Word, ..first.clone() });
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

//! Elements of a map that give one packet different values: `{ 10.0.0.0/8 : accept, 10.6.6.0/24 : drop }`. nftables refuses them
//! (`conflicting intervals specified`); here the first one written would decide. The default of a map, `*`, is for the others
//! alone and contradicts none.

use super::tokens::Token;
use crate::firewall::conditions::masked::Masked;
use crate::firewall::rule_file::conditions::Fits;
use crate::firewall::rule_file::conditions::concatenation::is_rest;
use crate::firewall::rule_file::reader::Scope;
use crate::firewall::rule_file::{Parsed, wrong};
use crate::firewall::rules::Rule;

/// An element of a map: its words, and the conditions of its key.
pub(in crate::firewall::rule_file) type Read<'a> = (&'a [Token], &'a [Fits]);

/// The fields of which [`Extent`] tells the values.
const FIELDS: usize = 8;

/// The smallest and the largest value of each field that the key of an element admits.
type Extent = [(u128, u128); FIELDS];

/// An element, ready to be compared.
struct Element<'a> {
    words: &'a [Token],
    rule: &'a Rule,
    value: String,
    extent: Extent,
}

/// Refuses a map with two elements that match the same packets and have other values.
pub(in crate::firewall::rule_file) fn check<'a>(
    elements: impl Iterator<Item = Read<'a>>,
    scope: &Scope<'_>,
) -> Parsed<()> {
    let mut elements: Vec<Element<'_>> = elements.filter_map(Element::of).collect();
    // Compared by the field that tells most of them apart, only neighbours have to be compared in full.
    let distinct = |field: usize| {
        let mut begins: Vec<u128> = elements.iter().map(|element| element.extent[field].0).collect();
        begins.sort_unstable();
        begins.dedup();
        begins.len()
    };
    let field = (0..FIELDS).max_by_key(|field| distinct(*field)).unwrap_or_default();
    elements.sort_by_key(|element| element.extent[field].0);
    let mut near: Vec<&Element<'_>> = Vec::new();
    for element in &elements {
        near.retain(|other| other.extent[field].1 >= element.extent[field].0);
        if let Some(other) = near.iter().find(|other| other.value != element.value && other.overlaps(element)) {
            return other.refuse(element, scope);
        }
        near.push(element);
    }
    Ok(())
}

impl<'a> Element<'a> {
    /// `None` for the default of a map, and for an element that nothing matches.
    fn of((words, fits): Read<'a>) -> Option<Element<'a>> {
        let rule = &fits.iter().find(|fits| !fits.never).filter(|_| !is_rest(words))?.rule;
        let colon = words.iter().position(|token| &*token.text == ":")?;
        let value: Vec<&str> = words[colon + 1..].iter().map(|token| &*token.text).collect();
        let value = value.split(|word| *word == "comment").next().unwrap_or_default().join(" ");
        Some(Element { words, rule, value, extent: extent(rule) })
    }

    fn overlaps(&self, other: &Element<'_>) -> bool {
        let are_apart = |one: &Masked| other.rule.masked.iter().any(|it| one.is_apart_from(it));
        if self.rule.masked.iter().any(are_apart) {
            return false;
        }
        let met = self.rule.meet(other.rule);
        met.is_some_and(|met| met.tcp_flags.is_empty() || (0..=u8::MAX).any(|flags| met.fits_flags(flags)))
    }

    fn refuse(&self, other: &Element<'_>, scope: &Scope<'_>) -> Parsed<()> {
        let place = |element: &Element<'_>| element.words.first().map(|first| first.at).unwrap_or_default();
        let order = |element: &Element<'_>| (place(element).file, place(element).line, place(element).column);
        let (first, second) = if order(self) <= order(other) { (self, other) } else { (other, self) };
        scope.at.set(place(second));
        let text = |element: &Element<'_>| {
            let words: Vec<&str> = element.words.iter().map(|token| &*token.text).collect();
            words.join(" ")
        };
        wrong(
            format!("`{}` contradicts `{}` before it: packets match both", text(second), text(first)),
            "write each key once, and the wider one without what the narrower one has",
        )
    }
}

/// What the conditions of a rule admit of each field; everything where they do not say.
fn extent(rule: &Rule) -> Extent {
    let of = |ranges: &mut dyn Iterator<Item = (u128, u128)>| {
        let within = ranges.reduce(|all, one| (all.0.min(one.0), all.1.max(one.1)));
        within.unwrap_or((0, u128::MAX))
    };
    let field = rule.fields.first().map(|within| within.ranges.as_slice()).unwrap_or_default();
    let masked = rule.masked.first().and_then(Masked::ranges).unwrap_or_default();
    [
        of(&mut rule.source.0.iter().map(|range| (range.first, range.last))),
        of(&mut rule.destination.0.iter().map(|range| (range.first, range.last))),
        of(&mut rule.source_ports.0.iter().map(|range| (range.first.into(), range.last.into()))),
        of(&mut rule.destination_ports.0.iter().map(|range| (range.first.into(), range.last.into()))),
        of(&mut rule.protocol.0.iter().map(|protocol| (protocol.0.into(), protocol.0.into()))),
        of(&mut rule.icmp.0.iter().map(|kind| (kind.first.into(), kind.last.into()))),
        of(&mut field.iter().map(|(first, last)| ((*first).into(), (*last).into()))),
        of(&mut masked.iter().copied()),
    ]
}

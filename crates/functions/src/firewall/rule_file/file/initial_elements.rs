//! Elements that a file gives to sets that packets change, or whose elements expire: `192.0.2.9 timeout 4h expires 3h59m`.

use braid_nf::packet::IpVersion;
use std::sync::Arc;

use braid_nf::packet::services;

use super::tokens::{Kind, Token};
use super::types;
use crate::firewall::conditions::values::Addresses;
use crate::firewall::effects::dynamic_sets::{Dynamic, PARTS_MAX};
use crate::firewall::effects::initial_elements::Given;
use crate::firewall::rule_file::conditions::concatenation::listed;
use crate::firewall::rule_file::conditions::ether::station;
use crate::firewall::rule_file::conditions::protocol;
use crate::firewall::rule_file::reader::{PORT, Words};
use crate::firewall::rule_file::statement::dynamic_sets::{constant, duration, seconds};
use crate::firewall::rule_file::{Parsed, wrong};

/// Gives a set the elements in the file. Returns `None` if these are permanent and packets do not change the set.
pub(in crate::firewall::rule_file) fn with_elements(
    mut set: Dynamic,
    elements: &[Token],
    rest: &Words<'_>,
    file: &[Token],
) -> Parsed<Option<Arc<Dynamic>>> {
    if elements.iter().all(|token| token.kind == Kind::End) {
        return Ok(Some(set.into()));
    }
    let is_changed = is_changed(file, &set.name);
    if !is_changed && set.timeout_s.is_none() && !elements.iter().any(leaves) {
        return Ok(None);
    }
    if !is_changed {
        // Nothing is ever added.
        set.size = 1;
    }
    set.given = listed(elements).map(|element| given(element, &set, rest)).collect::<Parsed<_>>()?;
    if !set.order() {
        return wrong(
            format!(
                "ranges of the set `{}`, whose elements leave it or packets change, have addresses in common",
                set.name
            ),
            "write each address once: the wider range, or what the narrower one leaves of it",
        );
    }
    Ok(Some(set.into()))
}

/// Reads one element: `192.0.2.9 timeout 4h expires 3h59m`, `10.0.0.0/8`, `192.0.2.9 . 22 limit rate 5/second`.
fn given(element: &[Token], set: &Dynamic, rest: &Words<'_>) -> Parsed<Given> {
    let besides = ["timeout", "expires", "comment", "counter", "limit", "quota", "ct", "last"];
    let is_besides = |token: &Token| token.kind == Kind::Word && besides.contains(&&*token.text);
    let (key, said) = element.split_at(element.iter().position(is_besides).unwrap_or(element.len()));
    let mut lives_s = set.timeout_s;
    let mut said = Words { words: said, scope: rest.scope };
    while !said.words.is_empty() {
        // The remaining time follows the total.
        if said.take("timeout") {
            lives_s = Some(duration(&mut said)?);
        } else if said.take("expires") {
            let text = said.word();
            let Some(left) = seconds(&text) else {
                return wrong(format!("`{text}` is no time"), "write expires 59m12s");
            };
            lives_s = Some(left.max(1));
        } else {
            // A word of a limit, or the text of a comment.
            said.take("comment");
            said.token();
        }
    }
    let (mut first, mut last) = ([0; PARTS_MAX], 0);
    let parts: Vec<_> = key.split(|token| &*token.text == ".").collect();
    for (at, part) in parts.iter().enumerate() {
        let text: String = part.iter().map(|token| &*token.text).collect();
        Words { words: part, scope: rest.scope }.token();
        let Some(place) = first.get_mut(at) else {
            return wrong(format!("an element of more than {PARTS_MAX} fields"), "write fewer of them");
        };
        let range = match set.types.get(at) {
            Some(kind) => range(&text, kind),
            None => return wrong(of_fields(set, parts.len()), types::AS_DECLARED),
        };
        match range {
            Some((begins, ends)) if begins == ends || parts.len() == 1 => {
                *place = begins;
                last = if at == 0 { ends } else { last };
            }
            Some(_) => {
                return wrong(
                    format!(
                        "`{text}` is a range among joined fields of a set whose elements leave it, or that packets change"
                    ),
                    "write its values one by one, or the set without timeouts",
                );
            }
            None => {
                return wrong(
                    format!("`{text}` is no {} as an element of the set `{}`", set.types[at], set.name),
                    "write addresses, ports, protocols or Ethernet addresses, as its type says; and what stays into a set without timeouts",
                );
            }
        }
    }
    if parts.len() < set.types.len() {
        return wrong(of_fields(set, parts.len()), types::AS_DECLARED);
    }
    Ok(Given { first, last, lives_s })
}

/// Says that an element has another number of fields than its set.
fn of_fields(set: &Dynamic, has: usize) -> String {
    format!("an element with {has} of the {} fields of the set `{}`", set.types.len(), set.name)
}

/// Parses a part of an element as a value or range of its type.
fn range(text: &str, kind: &str) -> Option<(u128, u128)> {
    let ports = || PORT.ends(text).map(|(first, last)| (first.into(), last.into()));
    let one = |value: Option<u128>| value.map(|value| (value, value));
    match kind {
        types::V4 | types::V6 => {
            let range = text
                .parse::<Addresses>()
                .ok()
                .filter(|range| (range.version() == IpVersion::V4) == (kind == types::V4));
            range.map(|range| (range.first, range.last))
        }
        types::STATION => one(station(text).map(u128::from)),
        types::PROTOCOL => one(protocol(text).map(|protocol| protocol.0.into())).or_else(ports),
        types::PORT => {
            one(text.parse().ok().or_else(|| services::port(text)).map(|port: u16| port.into())).or_else(ports)
        }
        // What no field of a packet is compared with, but a rule may give itself.
        _ => one(constant(text).map(|(number, _)| number)).or_else(ports),
    }
}

/// Whether this word gives an element a lifetime of its own.
pub(in crate::firewall::rule_file) fn leaves(word: &Token) -> bool {
    word.kind == Kind::Word && matches!(&*word.text, "timeout" | "expires")
}

/// Whether a rule among these tokens changes a set of that name.
pub(in crate::firewall::rule_file) fn is_changed(tokens: &[Token], name: &str) -> bool {
    tokens.windows(2).any(|pair| match &*pair[0].text {
        "add" | "update" | "delete" => pair[1].text.strip_prefix('@') == Some(name),
        "meter" => &*pair[1].text == name,
        _ => false,
    })
}

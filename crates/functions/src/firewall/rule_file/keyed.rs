//! Statements and conditions about sets that packets change: `add @floods { ip saddr limit rate over 10/second } drop`, `update`, `meter`,
//! `ct count over 20`, and `ip saddr @banned` where rules add to `banned`.

use std::sync::Arc;

use super::amounts::rate;
use super::conditions::{Fits, any_protocol_with_ports, narrow_family, narrow_protocol, protocol};
use super::ether::some_station;
use super::reader::Words;
use super::tokens::{Kind, Token};
use super::{Parsed, wrong};
use crate::firewall::fields::Field;
use crate::firewall::keyed::{Act, Dynamic, Key, Keyed, PARTS_MAX, Part, SIZE};
use crate::firewall::names;
use crate::firewall::rules::Direction;
use crate::firewall::values::Addresses;

const FORM: &str =
    "write add @floods { ip saddr limit rate over 10/second } drop, with set floods { type ipv4_addr; flags dynamic; }";

/// A statement that begins with `add`, `update`, `meter` or `ct count`, if one comes next.
pub(super) fn keyed(rest: &mut Words<'_>, fits: &mut [Fits]) -> Parsed<Option<Keyed>> {
    match rest.peek() {
        "add" | "update" if rest.peek_at(1).starts_with('@') => {
            let refreshes = rest.word() == "update";
            let name = rest.word();
            let Some(set) = dynamic(rest, name.trim_start_matches('@')) else {
                return wrong(
                    format!("`{name}` is no set that packets change"),
                    "write set floods { type ipv4_addr; flags dynamic; } in the same table",
                );
            };
            element(rest, fits, set, refreshes).map(Some)
        }
        "meter" => {
            rest.word();
            let name = rest.word();
            let size = if rest.take("size") { number(rest)? } else { SIZE };
            // A set of the table, which it makes if it is not there.
            let set = dynamic(rest, &name).unwrap_or_else(|| own(rest, name, size));
            // An element that a meter knows lives on with each packet.
            element(rest, fits, set, true).map(Some)
        }
        "ct" if rest.peek_at(1) == "count" => {
            rest.word();
            let at = rest.scope.at.get();
            let set = own(rest, format!("ct count {}:{}:{}", at.file, at.line, at.column), 1);
            let act = count(rest)?;
            Ok(Some(Keyed { set, key: Key::new(), act, refreshes: false, timeout_s: None }))
        }
        _ => Ok(None),
    }
}

/// A set that a statement has for itself.
fn own(rest: &Words<'_>, name: String, size: u32) -> Arc<Dynamic> {
    Dynamic { table: rest.scope.table.to_owned(), name, size, timeout_s: None }.into()
}

/// Whether a set is one that packets change.
pub(super) fn dynamic(rest: &Words<'_>, name: &str) -> Option<Arc<Dynamic>> {
    rest.scope.dynamic.iter().find(|set| set.name == name).cloned()
}

/// `{ ip saddr timeout 1h limit rate over 10/second }`.
fn element(rest: &mut Words<'_>, fits: &mut [Fits], set: Arc<Dynamic>, refreshes: bool) -> Parsed<Keyed> {
    if !rest.take("{") {
        return wrong("a set without what is put into it", FORM);
    }
    let (key, mut timeout_s, mut act) = (key(rest, fits)?, set.timeout_s, Act::Add);
    loop {
        match rest.peek() {
            "}" => {
                rest.word();
                return Ok(Keyed { set, key, act, refreshes, timeout_s });
            }
            "timeout" => {
                rest.word();
                timeout_s = Some(duration(rest)?);
                if set.timeout_s.is_some_and(|of_set| timeout_s != Some(of_set)) {
                    return wrong("another timeout than that of the set", "write the timeout of the set");
                }
            }
            "limit" => {
                rest.word();
                act = Act::Limit(rate(rest)?);
            }
            "ct" if rest.peek_at(1) == "count" => {
                rest.word();
                if key.iter().any(|part| matches!(part, Part::Station(_))) {
                    return wrong("connections are not counted by stations", "count them by addresses and ports");
                }
                act = count(rest)?;
            }
            // How much an element has counted nobody asks.
            "counter" => drop(rest.word()),
            _ => return wrong(format!("`{}` is not said of an element", rest.word()), FORM),
        }
    }
}

/// `count over 20`, `count 20`.
fn count(rest: &mut Words<'_>) -> Parsed<Act> {
    rest.word();
    let over = rest.take("over");
    Ok(Act::Count { most: number(rest)?, over })
}

/// `ip saddr . tcp dport`: from whom, to whom, by which ports, as far as they are said.
fn key(rest: &mut Words<'_>, fits: &mut [Fits]) -> Parsed<Key> {
    let mut key = Key::new();
    loop {
        field(rest, fits, &mut key)?;
        if !rest.take(".") {
            return Ok(key);
        }
    }
}

/// The key of a condition `ip saddr . tcp dport @banned`.
pub(super) fn key_of(fields: &[&[Token]], rest: &Words<'_>, fits: &mut [Fits]) -> Parsed<Key> {
    let mut key = Key::new();
    for words in fields {
        let mut words = Words { words, scope: rest.scope };
        field(&mut words, fits, &mut key)?;
        words.end()?;
    }
    Ok(key)
}

fn field(rest: &mut Words<'_>, fits: &mut [Fits], key: &mut Key) -> Parsed<()> {
    if key.len() == PARTS_MAX {
        return wrong(format!("an element of more than {PARTS_MAX} fields"), "write fewer of them");
    }
    if let Some(number) = constant(rest.peek()) {
        rest.word();
        key.push(Part::Constant(number));
        return Ok(());
    }
    let (of, what) = (rest.word(), rest.word());
    let is_outbound = rest.scope.direction == Some(Direction::Outbound);
    let mut narrow = |by: &dyn Fn(&mut Fits) -> Parsed<()>| fits.iter_mut().try_for_each(by);
    match (of.as_str(), what.as_str()) {
        ("ip" | "ip6", "saddr" | "daddr") => {
            let v4 = of == "ip";
            narrow(&|fits| narrow_family(&mut fits.rule, v4))?;
            let mask = mask(rest, v4)?;
            key.push(if what == "saddr" { Part::Source(mask) } else { Part::Destination(mask) });
        }
        ("tcp" | "udp" | "sctp" | "th", "sport" | "dport") => {
            match of.as_str() {
                "th" => narrow(&|fits| any_protocol_with_ports(&mut fits.rule))?,
                name => narrow(&|fits| narrow_protocol(&mut fits.rule, protocol(name).into_iter().collect()))?,
            }
            key.push(if what == "sport" { Part::SourcePort } else { Part::DestinationPort });
        }
        ("meta", "l4proto") | ("ip", "protocol") => key.push(Part::Protocol),
        ("ether", "saddr" | "daddr") => {
            let station = if what == "saddr" { Field::EtherSource } else { Field::EtherDestination };
            narrow(&|fits| some_station(fits, station, is_outbound))?;
            key.push(Part::Station(station));
        }
        _ => {
            return wrong(
                format!("elements are not made of `{of} {what}`"),
                "write ip saddr, ip daddr, ip6 saddr, tcp dport, meta l4proto, ether saddr, or several with . between them",
            );
        }
    }
    Ok(())
}

/// A part of an element that a rule writes itself: an address, the number or name of a port.
fn constant(word: &str) -> Option<u128> {
    let address = || word.parse::<Addresses>().ok().filter(|one| one.first == one.last).map(|one| one.first);
    let port = word.parse::<u16>().ok().or_else(|| names::service(word));
    port.map(u128::from).or_else(address)
}

/// `& 255.255.255.0`, `and ffff:ffff::`; all of an address without.
fn mask(rest: &mut Words<'_>, v4: bool) -> Parsed<u128> {
    if !rest.take("&") && !rest.take("and") {
        return Ok(u128::MAX);
    }
    let text = rest.word();
    match text.parse::<Addresses>() {
        Ok(one) if one.is_v4() == v4 && one.first == one.last => {
            Ok(if v4 { one.first | u128::MAX << 32 } else { one.first })
        }
        _ => wrong(format!("`{text}` is no mask"), "write & 255.255.255.0, or & ffff:ffff:ffff:ffff::"),
    }
}

fn number(rest: &mut Words<'_>) -> Parsed<u32> {
    let text = rest.word();
    match text.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => wrong(format!("`{text}` is no number from 1 on"), "write a number such as 20"),
    }
}

/// `1d2h3m4s`, in seconds.
pub(super) fn duration(rest: &mut Words<'_>) -> Parsed<u32> {
    let text = rest.word();
    let (mut seconds, mut digits) = (Some(0u32), String::new());
    for letter in text.chars() {
        if letter.is_ascii_digit() {
            digits.push(letter);
            continue;
        }
        let unit = [('d', 86_400), ('h', 3600), ('m', 60), ('s', 1)].into_iter().find(|(name, _)| *name == letter);
        let part = digits.parse::<u32>().ok().zip(unit).and_then(|(number, (_, unit))| number.checked_mul(unit));
        seconds = seconds.zip(part).and_then(|(all, part)| all.checked_add(part));
        digits.clear();
    }
    match seconds {
        Some(seconds) if seconds > 0 && digits.is_empty() => Ok(seconds),
        _ => wrong(format!("`{text}` is no time"), "write 30s, 10m, 1h or 1d"),
    }
}

/// What of a set's declaration says that packets change it: its flags, how long elements live, how many there may be.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Declared {
    is_dynamic: bool,
    timeout_s: Option<u32>,
    size: Option<u32>,
}

impl Declared {
    /// Reads a line of the declaration, if it says something about that.
    pub(super) fn read(&mut self, rest: &mut Words<'_>) -> Parsed<bool> {
        match rest.peek() {
            "flags" => {
                while !rest.at_end() && !matches!(rest.peek(), "" | "}") {
                    self.is_dynamic |= matches!(rest.word().as_str(), "dynamic" | "timeout");
                }
            }
            "timeout" => {
                rest.word();
                self.timeout_s = Some(duration(rest)?);
                self.is_dynamic = true;
            }
            "size" => {
                rest.word();
                self.size = Some(number(rest)?);
            }
            // How soon dead elements are taken out.
            "gc-interval" => drop(rest.tokens(2)),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The set, if packets change it: not where `file` says its elements and no rule adds to it, whatever its flags say.
    pub(super) fn made(
        self,
        table: &str,
        (name, elements): &(String, Vec<Token>),
        file: &[Token],
    ) -> Parsed<Option<Arc<Dynamic>>> {
        if !self.is_dynamic {
            return Ok(None);
        }
        let (table, size) = (table.to_owned(), self.size.unwrap_or(SIZE));
        let set = Dynamic { table, name: name.clone(), size, timeout_s: self.timeout_s };
        Ok(if keeps(&set, elements, file)? { None } else { Some(set.into()) })
    }
}

/// Whether a set has elements and keeps them: no rule of the file adds to it, and none of them leaves it.
pub(super) fn keeps(set: &Dynamic, elements: &[Token], file: &[Token]) -> Parsed<bool> {
    let name = &set.name;
    if elements.iter().all(|token| token.kind == Kind::End) {
        return Ok(false);
    }
    if is_changed(file, name) {
        return wrong(
            format!("the set `{name}` has elements, and packets change it"),
            "write two sets: one that packets change, and one with elements; nft -t list ruleset leaves out what packets have put in",
        );
    }
    if set.timeout_s.is_some() || elements.iter().any(leaves) {
        return wrong(
            format!("the set `{name}` has elements that leave it after a while"),
            "write them without timeout and expires, into a set without timeout, or leave them out",
        );
    }
    Ok(true)
}

/// Whether an element that has this word leaves its set after a time of its own.
fn leaves(word: &Token) -> bool {
    word.kind == Kind::Word && matches!(&*word.text, "timeout" | "expires")
}

/// Whether one of these tokens has rules put elements into a set of that name.
fn is_changed(tokens: &[Token], name: &str) -> bool {
    tokens.windows(2).any(|pair| match &*pair[0].text {
        "add" | "update" | "delete" => pair[1].text.strip_prefix('@') == Some(name),
        "meter" => &*pair[1].text == name,
        _ => false,
    })
}

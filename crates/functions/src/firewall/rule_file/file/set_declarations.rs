//! Declarations of sets and maps: `set blocked { type ipv4_addr; flags interval; elements = { 192.0.2.0/28 } }`, and the elements
//! that a file adds to them later. Each word must be one that nftables has there. A set that is declared again keeps its
//! elements, and gets those of the new declaration, as in the kernel (`nf_tables_newset`).

use std::sync::Arc;

use braid_nf::suggest::nearest;

use super::initial_elements::{is_changed, leaves, with_elements};
use super::syntax::{apart, replace, statement, within_braces};
use super::tokens::{Kind, Place, Token};
use super::types;
use crate::firewall::effects::dynamic_sets::{Act, Dynamic, SIZE};
use crate::firewall::rule_file::reader::{Sets, Words};
use crate::firewall::rule_file::statement::amounts::rate;
use crate::firewall::rule_file::statement::dynamic_sets::{count, duration, number};
use crate::firewall::rule_file::unsupported::{NO_QUOTAS, begins};
use crate::firewall::rule_file::{Parsed, wrong};

/// What a declaration says, line by line.
const WORDS: &[&str] = &[
    "type",
    "typeof",
    "flags",
    "elements",
    "timeout",
    "size",
    "limit",
    "ct",
    "counter",
    "comment",
    "auto-merge",
    "policy",
    "gc-interval",
    "last",
];
const FLAGS: [&str; 4] = ["constant", "interval", "timeout", "dynamic"];
/// Data types of nftables, and what maps of objects give.
const TYPES: &[&str] = &[
    "ipv4_addr",
    "ipv6_addr",
    "ether_addr",
    "inet_proto",
    "inet_service",
    "mark",
    "verdict",
    "ifname",
    "iface_index",
    "iface_type",
    "ether_type",
    "arp_op",
    "nf_proto",
    "icmp_type",
    "icmp_code",
    "icmpv6_type",
    "icmpv6_code",
    "icmpx_code",
    "igmp_type",
    "tcp_flag",
    "dccp_pkttype",
    "mh_type",
    "dscp",
    "ecn",
    "time",
    "hour",
    "day",
    "ct_state",
    "ct_dir",
    "ct_status",
    "ct_label",
    "ct_event",
    "ct_id",
    "pkt_type",
    "fib_addrtype",
    "boolean",
    "integer",
    "string",
    "lladdr",
    "bitmask",
    "uid",
    "gid",
    "cgroupsv2",
    "devgroup",
    "realm",
    "classid",
    "interval",
    "counter",
    "limit",
    "quota",
    "secmark",
    "synproxy",
];

const FORM: &str =
    "write set admins { type ipv4_addr; elements = { 192.0.2.0/28 } }, or define admins = { 192.0.2.0/28 }";
/// What to write instead of a limit for elements that no rule adds.
pub(in crate::firewall::rule_file) const ADDED: &str = "write flags dynamic, and a rule that adds what it limits: add @floods { ip saddr limit rate over 10/second } drop; or \
     the limit into the rule, for all elements together";

/// The sets and maps of a table, or those outside tables; none has the name of another.
#[derive(Debug, Default)]
pub(in crate::firewall::rule_file) struct Declarations {
    pub(in crate::firewall::rule_file) elements: Sets,
    /// What the declaration of each says besides.
    said: Vec<Declared>,
}

impl Declarations {
    /// Reads a declaration from its name on; `what` is `set` or `map`. `create` refuses a set that is there already.
    pub(in crate::firewall::rule_file) fn declare(
        &mut self,
        verb: &str,
        what: &str,
        defined: &Sets,
        rest: &mut Words<'_>,
    ) -> Parsed<()> {
        let (name, place) = (rest.word(), rest.scope.at.get());
        let mut new = Declared { is_map: what == "map", at: place, ..Declared::default() };
        let elements = new.read(&name, defined, rest)?;
        let Some(known) = self.place(&name) else {
            if !new.has_type {
                rest.scope.at.set(place);
                return wrong(format!("the {what} `{name}` has no type"), "write type ipv4_addr, or typeof ip saddr");
            }
            self.elements.push((name, elements));
            self.said.push(new);
            return Ok(());
        };
        let line = self.said[known].at.line;
        if verb == "create" {
            rest.scope.at.set(place);
            let instead = format!("write add {what}, or remove one of them");
            return wrong(format!("the set `{name}` is there already, since line {line}"), instead);
        }
        if let Err(other) = self.said[known].join(new) {
            rest.scope.at.set(place);
            return wrong(
                format!("`{name}` is declared again with other {other} than in line {line}"),
                "write the same in both, or another name",
            );
        }
        append(&mut self.elements[known].1, elements);
        Ok(())
    }

    /// Adds elements to a set.
    pub(in crate::firewall::rule_file) fn add(&mut self, name: &str, elements: Vec<Token>) -> Parsed<()> {
        let Some(known) = self.place(name) else {
            return wrong(format!("there is no set `{name}`"), "add the set before its elements");
        };
        append(&mut self.elements[known].1, apart(elements));
        Ok(())
    }

    /// Removes all elements of a set, as `flush set` does, or the set, as `delete set` does. Returns whether it was there.
    pub(in crate::firewall::rule_file) fn clear(&mut self, verb: &str, name: &str) -> bool {
        let Some(known) = self.place(name) else { return false };
        if verb == "flush" {
            self.elements[known].1.clear();
        } else {
            self.elements.remove(known);
            self.said.remove(known);
        }
        true
    }

    /// The sets that packets change, or whose elements expire.
    pub(in crate::firewall::rule_file) fn dynamic(
        &self,
        table: &str,
        rest: &Words<'_>,
        file: &[Token],
    ) -> Parsed<Vec<Arc<Dynamic>>> {
        let made = self.elements.iter().zip(&self.said).map(|(set, said)| said.made(table, set, rest, file));
        made.filter_map(Result::transpose).collect()
    }

    fn place(&self, name: &str) -> Option<usize> {
        self.elements.iter().position(|(known, _)| known == name)
    }
}

/// Appends elements to those of a set.
fn append(elements: &mut Vec<Token>, more: Vec<Token>) {
    if let Some(last) = elements.last().filter(|_| !more.is_empty()).cloned() {
        elements.push(Token { text: ",".into(), kind: Kind::Word, ..last });
    }
    elements.extend(more);
}

/// What a declaration says besides the elements.
#[derive(Clone, Debug, Default)]
struct Declared {
    is_map: bool,
    /// Where its name is.
    at: Place,
    has_type: bool,
    /// The words behind `type`; none if it has `typeof`.
    types: Vec<Arc<str>>,
    /// The [types](types::declared) of the fields of its elements.
    keys: Vec<Arc<str>>,
    /// Which of [`FLAGS`] it has.
    flags: [bool; FLAGS.len()],
    /// The lifetime of its elements.
    timeout_s: Option<u32>,
    /// The maximum number of elements that packets add.
    size: Option<u32>,
    /// What each element is asked, and where that is said.
    act: Option<(Act, Place)>,
}

impl Declared {
    /// Reads what is between the braces of the set of this name, and returns its elements.
    fn read(&mut self, name: &str, defined: &Sets, rest: &mut Words<'_>) -> Parsed<Vec<Token>> {
        if !rest.take("{") {
            return wrong(format!("the set `{name}` has no braces"), FORM);
        }
        let mut elements = Vec::new();
        loop {
            if rest.at_end() {
                rest.token();
                continue;
            }
            match rest.word().as_str() {
                "}" => return Ok(elements),
                "" => return wrong(format!("the set `{name}` has no end"), "write } behind it"),
                "elements" => {
                    if !rest.take("=") {
                        return wrong("elements without `=`", FORM);
                    }
                    let Some(within) = within_braces(replace(defined, statement(rest), rest.scope)?) else {
                        return wrong("more than a set", FORM);
                    };
                    // Sets within the set, referred to by name.
                    append(&mut elements, apart(within));
                }
                word => self.line(word, rest)?,
            }
        }
    }

    /// Reads the rest of a line that begins with this word.
    fn line(&mut self, word: &str, rest: &mut Words<'_>) -> Parsed<()> {
        match word {
            "type" => {
                self.types = self.fields(rest, |word| known(word, "type", TYPES))?;
                self.keys = types::declared(&self.types, false);
            }
            "typeof" => {
                let words = self.fields(rest, |word| match word {
                    "verdict" | "integer" => Ok(()),
                    word if word.starts_with('@') || begins(word) => Ok(()),
                    word => wrong(format!("`{word}` is no field"), "write typeof ip saddr . tcp dport"),
                })?;
                self.keys = types::declared(&words, true);
            }
            "flags" => loop {
                let flag = rest.word();
                known(&flag, "flag of a set", &FLAGS)?;
                FLAGS.iter().zip(&mut self.flags).for_each(|(it, is_set)| *is_set |= *it == flag);
                if !rest.take(",") {
                    break;
                }
            },
            "timeout" => {
                self.timeout_s = Some(duration(rest)?);
                self.flags[2] = true;
            }
            "size" => self.size = Some(number(rest)?),
            // How soon expired elements are removed.
            "gc-interval" => drop(duration(rest)?),
            "policy" => known(&rest.word(), "policy of a set", &["performance", "memory"])?,
            "auto-merge" => {}
            "comment" => drop(rest.word()),
            // How much an element has counted, and when it was asked for, is not used.
            "counter" => while (rest.take("packets") || rest.take("bytes")) && rest.token().is_some() {},
            "last" => drop(rest.take("used").then(|| rest.word()).or_else(|| rest.take("never").then(String::new))),
            "limit" | "ct" => {
                let at = rest.scope.at.get();
                if self.act.is_some() {
                    return wrong("two limits or counts in one set", "write two rules, with a set each");
                }
                let act = match word {
                    "limit" => Act::Limit(rate(rest)?),
                    _ if rest.peek() == "count" => count(rest)?,
                    _ => return wrong("only connections are counted by a set", "write ct count over 20"),
                };
                self.act = Some((act, at));
            }
            "quota" => return wrong("elements have no quotas of their own", NO_QUOTAS),
            word => known(word, "line of a set's declaration", WORDS)?,
        }
        Ok(())
    }

    /// Takes the fields up to the end of the line, of which `check` tells whether a word may begin one.
    fn fields(&mut self, rest: &mut Words<'_>, check: impl Fn(&str) -> Parsed<()>) -> Parsed<Vec<Arc<str>>> {
        let (mut words, mut begins, mut gives) = (Vec::new(), true, false);
        self.has_type = true;
        while !rest.at_end() && !matches!(rest.peek(), "" | "}") {
            let Some(token) = rest.token() else { break };
            let joins = matches!(&*token.text, "." | ":");
            gives |= &*token.text == ":";
            if begins {
                check(&token.text)?;
            }
            begins = joins;
            words.push(token.text.clone());
        }
        if begins {
            return wrong("a type without its end", "write type ipv4_addr . inet_service, or type ipv4_addr : verdict");
        }
        match (self.is_map, gives) {
            (true, false) => wrong("a map without what it gives", "write type ipv4_addr : verdict, or a set"),
            (false, true) => wrong("a set gives nothing", "write map instead of set"),
            _ => Ok(words),
        }
    }

    /// Takes over what a later declaration says of the same set, or returns what differs: the kernel refuses that (`EEXIST`).
    fn join(&mut self, new: Declared) -> Result<(), &'static str> {
        let act = |it: &Declared| it.act.as_ref().map(|(act, _)| act.clone());
        let differ = |one: &[Arc<str>], other: &[Arc<str>]| one != other && !one.is_empty() && !other.is_empty();
        if self.is_map != new.is_map || differ(&self.types, &new.types) || differ(&self.keys, &new.keys) {
            return Err("types");
        }
        if self.flags != new.flags {
            return Err("flags");
        }
        if act(self) != act(&new) {
            return Err("limits");
        }
        self.timeout_s = new.timeout_s.or(self.timeout_s);
        self.size = new.size.or(self.size);
        Ok(())
    }

    /// Returns the set, if packets change it or its elements expire. A set is not such a set, whatever its flags say, if the
    /// file gives its elements, none of which expires, and no rule adds to it.
    fn made(
        &self,
        table: &str,
        (name, elements): &(String, Vec<Token>),
        rest: &Words<'_>,
        file: &[Token],
    ) -> Parsed<Option<Arc<Dynamic>>> {
        if let Some((_, at)) = self.act.as_ref().filter(|_| self.is_map || !is_changed(file, name)) {
            rest.scope.at.set(*at);
            return wrong(format!("no rule adds to `{name}`, and only what rules add has limits of its own"), ADDED);
        }
        let [.., leave, change] = self.flags;
        if !leave && !change && !elements.iter().any(leaves) {
            return Ok(None);
        }
        let set = Dynamic {
            table: table.to_owned(),
            name: name.clone(),
            types: self.keys.clone(),
            size: self.size.unwrap_or(SIZE),
            timeout_s: self.timeout_s,
            act: self.act.as_ref().map(|(act, _)| act.clone()),
            given: Vec::new(),
        };
        with_elements(set, elements, rest, file)
    }
}

/// Refuses a word that is none of those known in its place.
fn known(word: &str, what: &str, known: &[&str]) -> Parsed<()> {
    if known.contains(&word) {
        return Ok(());
    }
    let instead = match nearest(word, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("write one of {}", known.join(", ")),
    };
    wrong(format!("`{word}` is no {what}"), instead)
}

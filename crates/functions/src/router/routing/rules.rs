//! Several tables of routes, and the rules that say which of them a packet is looked up in, as `ip rule` of Linux (RFC 1104,
//! RFC 8043).
//!
//! Rules are tried in the order in which they are written. One that a packet meets, and whose table has a route to the
//! destination, decides; behind the last one comes the main table. A packet set is a pair of addresses (at least) and
//! remembers its link of arrival, and a rule knows nothing else, so only the first packet of a set asks the rules.

use braid_nf::Port;
use braid_nf::packet::IpAddress;
use serde::Deserialize;

use super::lpm::{Lpm, Prefixed};
use crate::config::ConfigError;
use crate::parts::config::prefix::{self, Prefix};
use crate::router::config::{self, Config, Way};
use crate::router::interface::Interface;
use crate::router::links::Link;

/// The table of routes that name none, and of packets that meet no rule.
pub(in crate::router) const MAIN: &str = "main";
/// The most tables and rules.
const TABLES_MAX: usize = 64;
const RULES_MAX: usize = 4096;

/// A rule, as written in a plan.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleConfig {
    /// The source network; `None`: any.
    #[serde(default, deserialize_with = "prefix::some_network")]
    pub from: Option<Prefix>,
    /// The destination network; `None`: any.
    #[serde(default, deserialize_with = "prefix::some_network")]
    pub to: Option<Prefix>,
    /// The port of arrival; `None`: any.
    #[serde(rename = "in")]
    pub port: Option<Port>,
    /// The VLAN of arrival on that port; `None`: untagged frames.
    pub vlan: Option<u16>,
    /// The table whose routes apply.
    pub table: String,
    /// Routes of at most so many bits do not apply; 0: no default route does.
    pub suppress_prefixlength: Option<u8>,
}

/// A checked rule.
#[derive(Clone, Debug)]
struct Rule {
    from: Option<Prefix>,
    to: Option<Prefix>,
    link: Option<Link>,
    table: usize,
    suppressed: Option<u8>,
}

impl Rule {
    fn is_met(&self, from: IpAddress, to: IpAddress, link: Option<Link>) -> bool {
        let has = |range: &Option<Prefix>, address| range.is_none_or(|range| range.contains(address));
        has(&self.from, from) && has(&self.to, to) && (self.link.is_none() || self.link == link)
    }
}

/// A way with the length of the prefix that leads there.
#[derive(Clone, Copy, Debug)]
struct Entry {
    way: Way,
    bits: u8,
}

/// All tables, and the rules.
#[derive(Clone, Debug)]
pub struct Tables {
    /// Of each table, for IPv4 and for IPv6; the main one first.
    lookups: Vec<[Lpm; 2]>,
    entries: Vec<Entry>,
    rules: Vec<Rule>,
    names: Vec<String>,
}

braid_nf::plain!(Tables);

impl Tables {
    /// Where a packet between two addresses goes that arrives by a link (none: made here), and the number of the table that says so.
    pub(in crate::router) fn way(&self, (from, to): (IpAddress, IpAddress), link: Option<Link>) -> Option<(&Way, u8)> {
        for rule in self.rules.iter().filter(|rule| rule.is_met(from, to, link)) {
            let counts = |found: &&Entry| {
                matches!(found.way, Way::Nowhere(_)) || rule.suppressed.is_none_or(|bits| found.bits > bits)
            };
            if let Some(found) = self.look(rule.table, to).filter(counts) {
                return Some((&found.way, rule.table as u8));
            }
        }
        self.main(to).map(|way| (way, 0))
    }

    /// Where the main table leads.
    pub(in crate::router) fn main(&self, to: IpAddress) -> Option<&Way> {
        self.look(0, to).map(|entry| &entry.way)
    }

    /// What a table is called; nothing for the main one.
    pub(in crate::router) fn name(&self, table: u8) -> Option<&str> {
        self.names.get(usize::from(table)).filter(|_| table > 0).map(String::as_str)
    }

    fn look(&self, table: usize, to: IpAddress) -> Option<&Entry> {
        let entry = self.lookups[table][usize::from(!to.is_v4())].get(config::key(to))?;
        self.entries.get(entry as usize)
    }
}

/// Tables that are being filled.
pub(in crate::router) struct Filling {
    names: Vec<String>,
    prefixes: Vec<[Vec<Prefixed>; 2]>,
    entries: Vec<Entry>,
}

impl Filling {
    /// The tables that routes name, each with the networks of the interfaces, to which packets go straight.
    pub(in crate::router) fn new(config: &Config, interfaces: &[Option<Interface>]) -> Result<Filling, ConfigError> {
        let mut names = vec![MAIN.to_owned()];
        for (number, name) in config.routes.iter().enumerate().filter_map(|(n, route)| Some((n, route.table.as_ref()?)))
        {
            let wrong =
                |reason: &str, instead: &str| Err(ConfigError::new("route.table", reason, instead).of("route", number));
            if name.is_empty() {
                return wrong("it has no name", "write for example table = \"guests\"");
            }
            if !names.contains(name) {
                names.push(name.clone());
            }
            if names.len() > TABLES_MAX {
                return wrong("there are more than 63 besides the main one", "put some routes into another router");
            }
        }
        let mut filling =
            Filling { prefixes: names.iter().map(|_| Default::default()).collect(), names, entries: Vec::new() };
        for table in 0..filling.names.len() {
            filling.add_networks(table, interfaces);
        }
        Ok(filling)
    }

    fn add_networks(&mut self, table: usize, interfaces: &[Option<Interface>]) {
        for (link, interface) in interfaces.iter().enumerate() {
            for (address, bits) in interface.iter().flat_map(Interface::routed) {
                self.put(table, Prefix::new(address, bits), Way::To(link as Link, None));
            }
        }
    }

    /// Adds the way to a destination to the table of this name; of two equal destinations the later one counts.
    pub(in crate::router) fn add(&mut self, table: Option<&str>, to: Prefix, way: Way) {
        let number = table.and_then(|table| self.names.iter().position(|name| name == table)).unwrap_or(0);
        self.put(number, to, way);
    }

    fn put(&mut self, table: usize, to: Prefix, way: Way) {
        let (first, bits, value) = (to.first(), to.bits(), self.entries.len() as u32);
        self.entries.push(Entry { way, bits });
        let family = usize::from(!first.is_v4());
        self.prefixes[table][family].push(Prefixed { bits: config::key(first), len: bits.into(), value });
    }

    /// Checks the rules and builds the tables.
    pub(in crate::router) fn build(
        self,
        rules: &[RuleConfig],
        interfaces: &[Option<Interface>],
    ) -> Result<Tables, ConfigError> {
        let Filling { names, prefixes, entries } = self;
        if rules.len() > RULES_MAX {
            let reason = format!("{} rules", rules.len());
            return Err(ConfigError::new("rule", reason, format!("write {RULES_MAX} at most")));
        }
        let checked = rules.iter().enumerate();
        let checked = checked.map(|(n, rule)| rule.checked(&names, interfaces).map_err(|error| error.of("rule", n)));
        let checked: Vec<Rule> = checked.collect::<Result<_, _>>()?;
        if let Some(name) = (1..names.len()).find(|table| checked.iter().all(|rule| rule.table != *table)) {
            let reason = format!("no rule leads to the table {}", names[name]);
            return Err(ConfigError::new("rule", reason, format!("write one with table = \"{}\"", names[name])));
        }
        let lookups = prefixes.into_iter().map(|families| families.map(|prefixes| Lpm::new(&prefixes))).collect();
        Ok(Tables { lookups, entries, rules: checked, names })
    }
}

impl RuleConfig {
    fn checked(&self, names: &[String], interfaces: &[Option<Interface>]) -> Result<Rule, ConfigError> {
        let wrong = |key: &str, reason: String, instead: &str| Err(ConfigError::new(key, reason, instead));
        let Some(table) = names.iter().position(|name| *name == self.table) else {
            let instead = "write the `table` of a [[route]], or \"main\"";
            return wrong("rule.table", format!("no route is in the table {}", self.table), instead);
        };
        if let (Some(from), Some(to)) = (self.from, self.to)
            && from.is_v4() != to.is_v4()
        {
            return wrong("rule.to", format!("{to} is of the other family than {from}"), "write two rules");
        }
        let link = match (self.port, self.vlan) {
            (None, None) => None,
            (None, Some(vlan)) => return wrong("rule.vlan", format!("VLAN {vlan} of no port"), "write `in` too"),
            (Some(port), vlan) => match config::link(interfaces, port, vlan) {
                Some(link) => Some(link),
                None => {
                    let reason = format!("{} has no interface", config::place(port, vlan));
                    return wrong("rule.in", reason, "write the `port` of an [[interface]], and its `vlan`");
                }
            },
        };
        if self.suppress_prefixlength.is_none()
            && table == 0
            && self.from.is_none()
            && self.to.is_none()
            && link.is_none()
        {
            let reason = "the main table follows behind the last rule".to_owned();
            return wrong("rule.table", reason, "leave the rule out, or write suppress_prefixlength = 0");
        }
        Ok(Rule { from: self.from, to: self.to, link, table, suppressed: self.suppress_prefixlength })
    }
}

//! `fib`: what a machine knows of addresses from its routes and interfaces.
//!
//! Here the plan says which networks are behind which port (`networks`), and a chain's hook says whose addresses are local:
//! none at `forward`, those of the hosts inside with `rules_hook = "host"`.

use braid_nf::Port;
use braid_nf::packet::IpVersion;

use super::addresses::addresses_of;
use super::numbers::number;
use crate::firewall::conditions::values::Addresses;
use crate::firewall::connection::states;
use crate::firewall::rule_file::reader::{Scope, Words};
use crate::firewall::rule_file::{Parsed, wrong};
use crate::firewall::rules::{Action, Direction, Rule};
use crate::parts::Many;

/// Mutually exclusive conditions, one of which must hold.
pub(in crate::firewall::rule_file) type Ways = Vec<Rule>;

/// A condition for [`Ways`] that matches all packets so far.
pub(in crate::firewall::rule_file) fn way() -> Rule {
    Rule { states: states::ALL, ..Rule::new(Action::Continue) }
}

/// The source of a host that has no address yet, and the destinations that it may send to: valid on any port (`nft_fib4_eval`
/// of Linux).
const NOBODY: &str = "0.0.0.0/8";
const ANYBODY: [&str; 2] = ["255.255.255.255", "224.0.0.0/24"];
/// Present on every link.
const LINK: &str = "fe80::/64";

/// What is looked up: `fib daddr`, `fib saddr . iif`.
pub(in crate::firewall::rule_file) struct Route {
    /// `saddr` or `daddr`.
    end: String,
    /// Whether the port of arrival belongs to it.
    is_strict: bool,
}

impl Route {
    /// Reads `fib saddr . iif`.
    pub(in crate::firewall::rule_file) fn read(rest: &mut Words<'_>) -> Parsed<Route> {
        rest.word();
        let end = rest.word();
        if !matches!(end.as_str(), "saddr" | "daddr") {
            return wrong("`fib` without an address", "write fib saddr . iif oif missing, or fib daddr type local");
        }
        let mut is_strict = false;
        while rest.take(".") {
            match rest.word().as_str() {
                "iif" => is_strict = true,
                // Routes do not depend on marks here.
                "mark" => {}
                other => return wrong(format!("routes do not go by `{other}`"), "write saddr, daddr, iif or mark"),
            }
        }
        Ok(Route { end, is_strict })
    }

    /// Takes `type vmap`, whose keys are [kinds of addresses](Self::by_type), if that comes next.
    pub(in crate::firewall::rule_file) fn is_mapped(&self, rest: &mut Words<'_>) -> bool {
        let is_next = rest.peek() == "type" && rest.peek_at(1) == "vmap";
        if is_next {
            rest.tokens(2);
        }
        is_next
    }

    /// Reads the rest of a condition: `type local`, `oif missing`.
    pub(in crate::firewall::rule_file) fn condition(&self, rest: &mut Words<'_>) -> Parsed<Ways> {
        match rest.word().as_str() {
            "type" => self.by_type(rest),
            "oif" | "check" if self.end == "saddr" => {
                // Interfaces are numbered from 1 on.
                let is_above = rest.take(">") || rest.take("gt");
                let is_negated = is_above || rest.negated();
                match rest.word().as_str() {
                    "0" => reverse_path(rest.scope, self.is_strict, is_negated),
                    "missing" if !is_above => reverse_path(rest.scope, self.is_strict, is_negated),
                    "exists" if !is_above => reverse_path(rest.scope, self.is_strict, !is_negated),
                    _ => wrong("only whether there is a route is known", "write oif missing or oif exists"),
                }
            }
            other => wrong(
                format!("`fib {} {other}` is decided by routes behind the firewall", self.end),
                "write fib saddr . iif oif missing, fib daddr type local, or oifname",
            ),
        }
    }

    /// Reads `local`, `{ broadcast, multicast }` or `!= unicast`, also as numbers. An address that is neither a group nor broadcast belongs
    /// to one machine; no route of a plan is a black hole or says that nobody is there.
    pub(in crate::firewall::rule_file) fn by_type(&self, rest: &mut Words<'_>) -> Parsed<Ways> {
        let (kinds, is_negated) = rest.set("fib type")?;
        let own = if rest.scope.direction == Some(Direction::Inbound) { "daddr" } else { "saddr" };
        let is_own = rest.scope.direction.is_some() && own == self.end;
        // With the numbers of `linux/rtnetlink.h`, as `nft -n` prints them.
        let all = [
            (1, "unicast", !is_own),
            (2, "local", is_own),
            (3, "broadcast", true),
            (4, "anycast", false),
            (5, "multicast", true),
            (6, "blackhole", false),
            (7, "unreachable", false),
            (8, "prohibit", false),
        ];
        let names = |kind: &str, (of, known): (u64, &str)| kind == known || number(kind) == Some(of);
        if let Some(other) = kinds.iter().find(|kind| !all.iter().any(|(of, known, _)| names(kind, (*of, *known)))) {
            return wrong(
                format!("which addresses are `{other}` is not known"),
                "write local, unicast, broadcast, multicast or anycast",
            );
        }
        let is_wanted = |of: u64, known: &str| kinds.iter().any(|kind| names(kind, (of, known))) != is_negated;
        let wanted = all.into_iter().filter(|(of, known, is_there)| *is_there && is_wanted(*of, known));
        let ranges: Vec<Addresses> = wanted.flat_map(|(_, kind, _)| addresses_of(kind)).collect();
        if ranges.is_empty() {
            rest.scope.note("no packet that comes here fits: those from and to the machine itself do not, and no route of the plan is a black hole");
            return Ok(Ways::new());
        }
        let (mut way, ranges) = (way(), Many::of(ranges));
        *(if self.end == "saddr" { &mut way.source } else { &mut way.destination }) = ranges;
        Ok(vec![way])
    }
}

/// The reverse-path check: whether a packet arrives from where answers to it would go. If strict, by that port; otherwise there
/// only has to be such a port.
fn reverse_path(scope: &Scope<'_>, is_strict: bool, exists: bool) -> Parsed<Ways> {
    if scope.around.networks.is_empty() {
        return wrong(
            "the plan says nothing about routes",
            "write networks = [[\"10.0.0.0/8\"], [\"0.0.0.0/0\", \"::/0\"]] in the plan: what is behind each port, in their order",
        );
    }
    let behind = behind(&scope.around.networks, scope.ports.count);
    let by_port: Vec<(Option<Port>, Vec<Addresses>)> = if is_strict {
        (0..scope.ports.count).zip(behind).map(|(port, networks)| (Some(port), networks)).collect()
    } else {
        vec![(None, behind.concat())]
    };
    let range = |text: &&str| text.parse::<Addresses>().ok();
    let (nobody, anybody): (Vec<_>, Vec<_>) =
        (range(&NOBODY).into_iter().collect(), ANYBODY.iter().filter_map(range).collect());
    let mut ways = Ways::new();
    for (port, networks) in by_port {
        let sources = if exists { networks } else { without(&all(), &networks) };
        let (of_nobody, of_others) = (meet(&sources, &nobody), without(&sources, &nobody));
        let ports = Many::of(port);
        if !of_others.is_empty() {
            ways.push(Rule { ports: ports.clone(), source: Many::of(of_others), ..way() });
        }
        if !of_nobody.is_empty() {
            let destination = Many::of(without(&all()[..1], &anybody));
            ways.push(Rule { ports, source: Many::of(of_nobody), destination, ..way() });
        }
    }
    if exists {
        ways.push(Rule { source: Many::of(nobody), destination: Many::of(anybody), ..way() });
    }
    Ok(ways)
}

/// All of IPv4, and all of IPv6.
fn all() -> [Addresses; 2] {
    IpVersion::BOTH.map(Addresses::all)
}

/// The addresses behind each port. An address in several networks belongs to the smallest.
fn behind(networks: &[Vec<Addresses>], ports: Port) -> Vec<Vec<Addresses>> {
    let on_link = (0..ports).flat_map(|port| Some((LINK.parse().ok()?, port)));
    let known = (0..ports).zip(networks).flat_map(|(port, networks)| networks.iter().map(move |range| (*range, port)));
    let mut all: Vec<(Addresses, Port)> = on_link.chain(known).collect();
    let size = |range: &Addresses| range.last - range.first;
    all.sort_by_key(|(range, _)| size(range));
    let (mut taken, mut behind) = (Vec::new(), vec![Vec::new(); usize::from(ports)]);
    for same in all.chunk_by(|(one, _), (other, _)| size(one) == size(other)) {
        for (range, port) in same {
            behind[usize::from(*port)].extend(without(&[*range], &taken));
        }
        taken.extend(same.iter().map(|(range, _)| *range));
    }
    behind
}

fn meet(these: &[Addresses], those: &[Addresses]) -> Vec<Addresses> {
    these.iter().flat_map(|one| those.iter().filter_map(|other| one.meet(other))).collect()
}

/// The addresses that are in `these` and not in `those`.
fn without(these: &[Addresses], those: &[Addresses]) -> Vec<Addresses> {
    let left = IpVersion::BOTH.map(|version| {
        Addresses::except(version, those.iter().filter(|range| range.version() == version).copied().collect())
    });
    meet(these, &left.concat())
}

//! Which chains of a file are evaluated, given their hooks and what is known of a packet at that point.

use super::DEPTH_MAX;
use super::base::Base;
use crate::firewall::rule_file::file::tokens::{Kind, Token};
use crate::firewall::rule_file::file::{Chain, File, Table};
use crate::firewall::rule_file::reader::Scope;
use crate::firewall::rule_file::{Hooks, Note, Parsed, wrong};
use crate::firewall::rules::Direction;

/// Chains of this priority or a lower one come before connection tracking (`NF_IP_PRI_CONNTRACK`).
const BEFORE_TRACKING: i32 = -200;

/// Whether packets come to a chain before their connection is known.
pub(in crate::firewall::rule_file) fn is_early(table: &Table<'_>, base: &Base) -> bool {
    base.hook == "ingress" || (table.family != "bridge" && base.priority <= BEFORE_TRACKING)
}

/// Whether packets come to a chain before their hops are counted: `ip_forward` of Linux counts behind prerouting. What the hosts inside
/// send has not been forwarded yet where their own chains see it, and what comes to them has.
pub(in crate::firewall::rule_file) fn has_all_hops(base: &Base, direction: Option<Direction>) -> bool {
    match direction {
        Some(direction) => direction == Direction::Outbound,
        None => base.place() < Base::ON_ITS_WAY,
    }
}

/// What to write instead of what is asked too early.
const OF_CONNECTIONS: &str = "write its rules into a chain of priority mangle, or of hook forward";
const OF_ADDRESSES: &str = "write its rules into a chain of priority mangle, with inside addresses; or leave it out if it drops what goes to those untranslated, as \
     Docker's does: a nat in the chain lets nobody outside reach them (\"allow-direct-routing\": true has Docker leave it out)";

/// A chain that is asked, in its table, and for which direction.
pub(in crate::firewall::rule_file) type Asked<'a> = (&'a Table<'a>, &'a Chain<'a>, Option<Direction>);

/// Whether a chain does nothing: it has no rules, except jumps to chains that do nothing either.
fn is_silent(table: &Table<'_>, chain: &Chain<'_>, depth: usize) -> bool {
    depth <= DEPTH_MAX
        && chain.rules.iter().all(|rule| {
            let at = rule.iter().position(|token| matches!(&*token.text, "jump" | "goto"));
            let name = at.and_then(|at| rule.get(at + 1)).map(|token| &*token.text);
            let conditions = rule.iter().take(at.unwrap_or_default());
            let does = ["counter", "log", "limit", "quota", "add", "update", "set", "meter", "vmap"];
            let does_nothing = !conditions.into_iter().any(|token| does.contains(&&*token.text));
            let named = name.and_then(|name| table.chains.iter().find(|chain| chain.name == name));
            does_nothing && named.is_some_and(|chain| is_silent(table, chain, depth + 1))
        })
}

/// Returns a word of a chain, or of one to which it jumps, whose meaning depends on connection tracking or translation when
/// packets come to the chain before those. The destination is translated later; the source is not.
fn unknown_so_early<'a>(
    table: &'a Table<'_>,
    chain: &'a Chain<'_>,
    (hook, translates): (&str, bool),
    depth: usize,
) -> Option<&'a str> {
    let words: &[&str] = match hook {
        "prerouting" | "ingress" if translates => &["ct", "daddr", "dport", "@nh", "@th"],
        "prerouting" | "output" | "ingress" => &["ct"],
        _ => &[],
    };
    let mut tokens = chain.rules.iter().flat_map(|rule| rule.iter()).filter(|token| token.kind == Kind::Word);
    let own = tokens.clone().find(|token| words.contains(&&*token.text)).map(|token| &*token.text);
    own.or_else(|| {
        let named = |token: &'a Token| table.chains.iter().find(|chain| *chain.name == *token.text);
        let mut jumps = tokens.by_ref().filter_map(named).filter(|_| depth <= DEPTH_MAX);
        jumps.find_map(|chain| unknown_so_early(table, chain, (hook, translates), depth + 1))
    })
}

/// Whether the file, or what the plan says about a translator, redirects packets to other destinations.
pub(in crate::firewall::rule_file) fn translates(file: &File<'_>, scope: &Scope<'_>) -> bool {
    let mut chains = file.awake().flat_map(|table| &table.chains);
    let is_one =
        |chain: &Chain<'_>| chain.base.as_ref().is_some_and(|base| base.kind == "nat") && !chain.rules.is_empty();
    chains.any(is_one) || scope.around.forwards.as_ref().is_some_and(|forwards| !forwards.is_empty())
}

/// Whether packets between ports come to a chain, and of which direction (`None`: both). `translates` says that destinations
/// may be translated, so that they differ before and after translation; `arp` that the file speaks of ARP.
pub(in crate::firewall::rule_file) fn asked(
    table: &Table<'_>,
    chain: &Chain<'_>,
    hooks: Hooks,
    (translates, arp): (bool, bool),
    (scope, notes): (&Scope<'_>, &mut Vec<Note>),
) -> Parsed<Option<Option<Direction>>> {
    let Some(base) = &chain.base else { return Ok(None) };
    let says_nothing = base.accepts && is_silent(table, chain, 1);
    if says_nothing && (base.kind != "filter" || base.hook != "forward") {
        return Ok(None);
    }
    let mut tell = |text: String| notes.push(Note { line: chain.at.line, file: scope.file(chain.at), text });
    let not_asked = |why: &str| format!("chain {} is not asked: {why}", chain.name);
    let of_others = match (table.family.as_str(), hooks) {
        ("arp", Hooks::Forward | Hooks::Bridge) => Some(
            "it is for ARP to and from the machine itself; what is said between ports comes to chains of tables bridge and netdev",
        ),
        ("bridge", Hooks::Forward | Hooks::Host) => {
            Some("it is for frames between ports of a bridge, and is with rules_hook = \"bridge\"")
        }
        ("ip" | "ip6" | "inet", Hooks::Bridge) => Some("with rules_hook = \"bridge\" those of tables bridge are"),
        _ => None,
    };
    if let Some(why) = of_others {
        tell(not_asked(why));
        return Ok(None);
    }
    let direction = match (base.kind.as_str(), base.hook.as_str(), hooks) {
        ("filter", "forward" | "prerouting" | "postrouting" | "ingress" | "egress", Hooks::Forward | Hooks::Bridge) => {
            Some(None)
        }
        ("filter", "input" | "prerouting" | "ingress", Hooks::Host) => Some(Some(Direction::Inbound)),
        ("filter", "output" | "postrouting" | "egress", Hooks::Host) => Some(Some(Direction::Outbound)),
        _ => None,
    };
    if direction.is_some()
        && is_early(table, base)
        && let Some(word) = unknown_so_early(table, chain, (&base.hook, translates), 1)
    {
        let what =
            format!("`{word}` in the chain `{}`, before connections are told and packets translated", chain.name);
        return wrong(what, if word == "ct" { OF_CONNECTIONS } else { OF_ADDRESSES });
    }
    match (base.kind.as_str(), base.hook.as_str(), hooks) {
        _ if direction.is_some() => {
            if !base.accepts && !arp && matches!(table.family.as_str(), "bridge" | "netdev") {
                tell(format!(
                    "the policy of chain {} is for IP packets: about ARP and all else `non_ip` decides",
                    chain.name
                ));
            }
            Ok(direction)
        }
        ("filter" | "route", "input" | "output" | "forward", _) => {
            let whose = match hooks {
                Hooks::Forward | Hooks::Bridge => "packets to and from the machine itself do not come here",
                Hooks::Host => "with rules_hook = \"host\" input and output are asked",
            };
            tell(not_asked(whose));
            Ok(None)
        }
        ("nat", ..) => {
            tell(not_asked("translating is for nat, behind the firewall in the plan"));
            Ok(None)
        }
        (_, hook, _) => wrong(
            format!("there is no hook `{hook}` here"),
            "write its rules into a chain of hook forward, of a lower priority",
        ),
    }
}

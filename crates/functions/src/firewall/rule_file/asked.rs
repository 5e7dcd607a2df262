//! Which chains of a file are asked: by their hooks, and by what is known where they stand.

use super::file::{Chain, File, Table};
use super::flatten::DEPTH_MAX;
use super::reader::Scope;
use super::tokens::{Kind, Token};
use super::{Hooks, Note, Parsed, wrong};
use crate::firewall::rules::Direction;

/// Chains of this priority and before it come before connection tracking (`NF_IP_PRI_CONNTRACK`).
pub(super) const BEFORE_TRACKING: i32 = -200;

/// A chain that is asked, in its table, and for which direction.
pub(super) type Asked<'a> = (&'a Table<'a>, &'a Chain<'a>, Option<Direction>);

/// Whether nothing stands in a chain and in those to which it jumps.
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

/// What a chain, or one to which it jumps, asks that is not yet what it is here if packets come to it before connections are told: to whom
/// they go is translated later, from whom they come is not.
fn unknown_so_early<'a>(
    table: &'a Table<'_>,
    chain: &'a Chain<'_>,
    (hook, translates): (&str, bool),
    depth: usize,
) -> Option<&'a str> {
    let words: &[&str] = match hook {
        "prerouting" if translates => &["ct", "daddr", "dport"],
        "prerouting" | "output" => &["ct"],
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

/// Whether a file, or what its plan says of a translator, has packets go elsewhere than to where they say.
pub(super) fn translates(file: &File<'_>, scope: &Scope<'_>) -> bool {
    let mut chains = file.tables.iter().flat_map(|table| &table.chains);
    let is_one =
        |chain: &Chain<'_>| chain.base.as_ref().is_some_and(|base| base.kind == "nat") && !chain.rules.is_empty();
    chains.any(is_one) || scope.around.forwards.as_ref().is_some_and(|forwards| !forwards.is_empty())
}

/// Whether packets between ports come to a chain, and of which direction: none for both. `translates`: what they say of where they go may be
/// something else before that.
pub(super) fn asked(
    table: &Table<'_>,
    chain: &Chain<'_>,
    hooks: Hooks,
    translates: bool,
    (scope, notes): (&Scope<'_>, &mut Vec<Note>),
) -> Parsed<Option<Option<Direction>>> {
    let Some(base) = &chain.base else { return Ok(None) };
    let says_nothing = base.accepts && is_silent(table, chain, 1);
    if says_nothing && (base.kind != "filter" || base.hook != "forward") {
        return Ok(None);
    }
    if matches!(table.family.as_str(), "arp" | "bridge" | "netdev") {
        return wrong(
            format!("the table `{}` is not for IP packets", table.name),
            "remove it: rules are for IP packets",
        );
    }
    let direction = match (base.kind.as_str(), base.hook.as_str(), hooks) {
        ("filter", "forward" | "prerouting" | "postrouting", Hooks::Forward) => Some(None),
        ("filter", "input" | "prerouting", Hooks::Host) => Some(Some(Direction::Inbound)),
        ("filter", "output" | "postrouting", Hooks::Host) => Some(Some(Direction::Outbound)),
        _ => None,
    };
    if direction.is_some()
        && base.priority <= BEFORE_TRACKING
        && let Some(word) = unknown_so_early(table, chain, (&base.hook, translates), 1)
    {
        let what =
            format!("`{word}` in the chain `{}`, before connections are told and packets translated", chain.name);
        return wrong(what, "write its rules into a chain of priority mangle, with inside addresses");
    }
    match (base.kind.as_str(), base.hook.as_str(), hooks) {
        _ if direction.is_some() => Ok(direction),
        ("filter" | "route", "input" | "output" | "forward", _) => {
            let whose = match hooks {
                Hooks::Forward => "packets to and from the machine itself do not come here",
                Hooks::Host => "with rules_hook = \"host\" input and output are asked",
            };
            let text = format!("chain {} is not asked: {whose}", chain.name);
            notes.push(Note { line: chain.at.line, file: scope.file(chain.at), text });
            Ok(None)
        }
        ("nat", ..) => {
            let text =
                format!("chain {} is not asked: translating is for nat, behind the firewall in the plan", chain.name);
            notes.push(Note { line: chain.at.line, file: scope.file(chain.at), text });
            Ok(None)
        }
        (_, hook, _) => wrong(
            format!("there is no hook `{hook}` here"),
            "write its rules into a chain of hook forward, of a lower priority",
        ),
    }
}

//! `ct state`, `ct direction` and `ct status`: what a packet is of a connection.

use super::conditions::Fits;
use super::reader::Words;
use super::{Parsed, wrong};
use crate::firewall::states::{
    ALL, ESTABLISHED, INVALID, NEW, ORIGINAL, RELATED, RELATED_ORIGINAL, RELATED_REPLY, REPLY, States,
};

/// Nothing is so here.
const UNTRACKED: States = 64;

const NAMES: [(&str, States); 5] =
    [("new", NEW), ("established", ESTABLISHED), ("related", RELATED), ("invalid", INVALID), ("untracked", UNTRACKED)];

/// Reads what stands behind `ct`.
pub(super) fn ct(fits: &mut Fits, rest: &mut Words<'_>) -> Parsed<()> {
    let states = match rest.word().as_str() {
        "state" => states(rest)?,
        "direction" => {
            match (rest.negated(), rest.word().as_str()) {
                // What is invalid has no connection.
                (false, "original") | (true, "reply") => NEW | ORIGINAL | RELATED_ORIGINAL,
                (true, "original") | (false, "reply") => REPLY | RELATED_REPLY,
                _ => return wrong("no such direction of a connection", "write ct direction original"),
            }
        }
        "count" => {
            return wrong(
                "connections are not counted by rules",
                "set host_connections_max, or put connection_limiter before it",
            );
        }
        "status" => return wrong("translations are not known here", "write ip daddr and the port instead"),
        "mark" | "label" | "zone" => {
            return wrong("connections have no marks here, and nothing would ask for them", "leave it out");
        }
        _ => return wrong("only state and direction of a connection are known", "write ct state new, or leave it out"),
    };
    fits.rule.states &= states;
    fits.never |= fits.rule.states == 0;
    Ok(())
}

/// `new`, `established,related`, `{ new, untracked }`, `!= invalid`, `! invalid`, `& (new | related) != 0`.
fn states(rest: &mut Words<'_>) -> Parsed<States> {
    if rest.take("&") {
        return masked(rest);
    }
    if rest.take("!") {
        return Ok(ALL & !listed(rest)?);
    }
    let (names, is_negated) = rest.set("ct state")?;
    let (mut states, mut goes_on) = (0, false);
    for name in &names {
        states |= state(name)?;
    }
    while rest.take(",") || rest.take("|") {
        states |= state(&rest.word())?;
        goes_on = true;
    }
    if is_negated && goes_on {
        // To nftables that is so of every packet, for none is in two states.
        return wrong("no packet is in two states, so all are in others", "write ct state != { new, established }");
    }
    Ok(if is_negated { ALL & !states } else { states & ALL })
}

/// Which states, as bits, are such as `& mask` with its comparison says.
fn masked(rest: &mut Words<'_>) -> Parsed<States> {
    let (mask, not) = (listed(rest)?, rest.negated());
    let wanted = if rest.take("0") || rest.take("0x0") { 0 } else { listed(rest)? };
    let fits = |one: &u8| (one & mask == wanted) != not;
    Ok([NEW, ESTABLISHED, RELATED, INVALID].into_iter().filter(fits).fold(0, |all, one| all | one))
}

/// Names of states with `,` or `|` between them, perhaps in parentheses.
fn listed(rest: &mut Words<'_>) -> Parsed<States> {
    let in_parentheses = rest.take("(");
    let mut states = state(&rest.word())?;
    while rest.take(",") || rest.take("|") {
        states |= state(&rest.word())?;
    }
    if in_parentheses && !rest.take(")") {
        return wrong("a parenthesis without its end", "write ) behind the states");
    }
    Ok(states)
}

fn state(name: &str) -> Parsed<States> {
    match NAMES.iter().find(|(known, _)| *known == name) {
        Some((_, state)) => Ok(*state),
        None => wrong(format!("`{name}` is no state"), "write new, established, related or invalid"),
    }
}

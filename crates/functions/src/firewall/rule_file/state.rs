//! States of connections. Rules are asked about packets that would open one, so a rule is about `new`, or says what happens anyway.

use super::conditions::Fits;
use super::reader::Words;
use super::{Parsed, wrong};

/// States of a connection. Nothing is untracked here.
pub(super) const NEW: u8 = 1;
pub(super) const ESTABLISHED: u8 = 2;
pub(super) const RELATED: u8 = 4;
pub(super) const INVALID: u8 = 8;
const UNTRACKED: u8 = 16;
pub(super) const STATES: u8 = 15;

const NAMES: [(&str, u8); 5] =
    [("new", NEW), ("established", ESTABLISHED), ("related", RELATED), ("invalid", INVALID), ("untracked", UNTRACKED)];

/// Reads what stands behind `ct`.
pub(super) fn ct(fits: &mut Fits, rest: &mut Words<'_>) -> Parsed<()> {
    let other =
        "write ct state new, or leave it out: rules are for packets that would open a connection, the others follow it";
    let states = match rest.word().as_str() {
        "state" => states(rest)?,
        "direction" => {
            fits.one_direction = true;
            match (rest.negated(), rest.word().as_str()) {
                (false, "original") | (true, "reply") => STATES,
                (true, "original") | (false, "reply") => ESTABLISHED | RELATED,
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
        _ => return wrong("only state and direction of a connection are known", other),
    };
    fits.states &= states;
    Ok(())
}

/// `new`, `established,related`, `{ new, untracked }`, `!= invalid`, `! invalid`, `& (new | related) != 0`.
fn states(rest: &mut Words<'_>) -> Parsed<u8> {
    if rest.take("&") {
        return masked(rest);
    }
    if rest.take("!") {
        return Ok(STATES & !listed(rest)?);
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
    Ok(if is_negated { STATES & !states } else { states })
}

/// Which states, as bits, are such as `& mask` with its comparison says.
fn masked(rest: &mut Words<'_>) -> Parsed<u8> {
    let (mask, not) = (listed(rest)?, rest.negated());
    let wanted = if rest.take("0") || rest.take("0x0") { 0 } else { listed(rest)? };
    let fits = |one: &u8| (one & mask == wanted) != not;
    Ok([NEW, ESTABLISHED, RELATED, INVALID].into_iter().filter(fits).fold(0, |all, one| all | one))
}

/// Names of states with `,` or `|` between them, perhaps in parentheses.
fn listed(rest: &mut Words<'_>) -> Parsed<u8> {
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

fn state(name: &str) -> Parsed<u8> {
    match NAMES.iter().find(|(known, _)| *known == name) {
        Some((_, state)) => Ok(*state),
        None => wrong(format!("`{name}` is no state"), "write new, established, related or invalid"),
    }
}

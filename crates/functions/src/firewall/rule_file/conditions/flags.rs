//! TCP flags in all the notations of nftables. The sign before the same words changes their meaning: `syn,ack` means either of
//! them, `== syn,ack` exactly both, `! syn,ack` neither; in sets and maps each element is the exact set of flags.

use super::arithmetic::len as made_len;
use super::narrow_within;
use super::numbers::{Numbers, is_comparison, is_sign, nothing_left, number};
use crate::firewall::conditions::fields::Field;
use crate::firewall::conditions::values::{Bits, flag};
use crate::firewall::rule_file::file::tokens::{Kind, Token};
use crate::firewall::rule_file::reader::Words;
use crate::firewall::rule_file::{Parsed, wrong};
use crate::firewall::rules::Rule;
use crate::parts::Many;

const FORM: &str = "write syn,ack or syn / fin,syn,rst,ack or == syn | ack or { syn, syn | ack }";
const ALL: u8 = 0xff;

const NUMBER: Numbers =
    Numbers { what: "TCP flags: syn, 0x12 or < 16", last: ALL as u64, named: |name| flag(name).map(u64::from) };

/// Reads what follows `tcp flags`.
pub(in crate::firewall::rule_file) fn tcp_flags(rule: &mut Rule, rest: &mut Words<'_>) -> Parsed<()> {
    if is_number(rest) {
        return narrow_within(rule, NUMBER.within(Field::TcpFlags, rest)?);
    }
    rule.tcp_flags.extend(flags(rest)?);
    Ok(())
}

/// Whether flags are treated as a number: after `^` and `|`, and where a range or a comparison follows.
fn is_number(rest: &Words<'_>) -> bool {
    let made = made_len(rest, 0);
    let behind = made + usize::from(is_sign(rest.peek_at(made)));
    let is_range = |word: &str| NUMBER.ends(word).is_some();
    let has_range = match rest.peek_at(behind) {
        "{" => (behind..).map(|at| rest.peek_at(at)).take_while(|word| !matches!(*word, "}" | "")).any(is_range),
        word => is_range(word),
    };
    let mut depth = 0;
    let turns = (0..made).map(|at| rest.peek_at(at)).any(|word| {
        depth += i32::from(word == "(") - i32::from(word == ")");
        depth == 0 && matches!(word, "^" | "xor" | "|" | "or")
    });
    turns || is_comparison(rest.peek_at(behind)) || has_range
}

/// Reads them as flags. All the returned lists must match, each by one of its elements.
fn flags(rest: &mut Words<'_>) -> Parsed<Vec<Many<Bits>>> {
    let mask = if rest.take("&") { Some(listed(rest)?) } else { None };
    let sign = match rest.peek() {
        "==" | "eq" => "==",
        "!=" | "ne" => "!=",
        "!" => "!",
        _ => "",
    };
    if !sign.is_empty() {
        rest.word();
    }
    let not = sign == "!=";
    if matches!(rest.peek(), "{") || rest.peek().starts_with('@') {
        return several(&rest.elements("tcp flags")?, mask.unwrap_or(ALL), not);
    }
    let one = match (mask, sign) {
        // As older versions of nftables write it: one of them.
        (Some(mask), "") if !continues(rest) => Bits { set: mask, of: 0, not: false },
        (Some(of), _) => Bits { set: listed(rest)?, of, not },
        (None, sign) => {
            let set = listed(rest)?;
            match (rest.take("/"), sign) {
                (true, _) => Bits { set, of: listed(rest)?, not },
                (false, "!") => Bits { set: 0, of: set, not: false },
                // As in nftables, one of no flags is never set.
                (false, "") if set == 0 => {
                    return nothing_left("write tcp flags == 0x0 for segments without flags");
                }
                (false, "") => Bits { set, of: 0, not: false },
                (false, _) => Bits { set, of: ALL, not },
            }
        }
    };
    Ok(vec![Many::of([checked(one)?])])
}

/// Reads the elements of a set: each is the flags set under the mask.
fn several(elements: &[Token], of: u8, not: bool) -> Parsed<Vec<Many<Bits>>> {
    let mut each = Vec::new();
    for element in elements.split(|token| &*token.text == "," && token.kind != Kind::Quoted) {
        let mut set = 0;
        for token in element.iter().take_while(|token| &*token.text != "comment") {
            if !matches!(&*token.text, "|" | "(" | ")") {
                set |= bits(&token.text)?;
            }
        }
        each.push(checked(Bits { set, of, not })?);
    }
    // One element of a set must match; of a negated set, each must differ.
    Ok(if not { each.into_iter().map(|one| Many::of([one])).collect() } else { vec![Many::of(each)] })
}

fn checked(bits: Bits) -> Parsed<Bits> {
    let fits_never = bits.set & !bits.of != 0 && bits.of != 0 || bits.set == 0 && bits.of == 0;
    if fits_never { wrong(format!("no segment has the flags `{bits}`"), FORM) } else { Ok(bits) }
}

/// Whether a flag comes next.
fn continues(rest: &Words<'_>) -> bool {
    rest.peek() == "(" || flag(rest.peek()).is_some() || number(rest.peek()).is_some()
}

/// Reads names of flags or numbers, separated by `,` or `|`, perhaps in parentheses.
fn listed(rest: &mut Words<'_>) -> Parsed<u8> {
    let mut set = 0;
    loop {
        rest.take("(");
        set |= bits(&rest.word())?;
        rest.take(")");
        if !rest.take(",") && !rest.take("|") {
            return Ok(set);
        }
    }
}

fn bits(text: &str) -> Parsed<u8> {
    match flag(text).or_else(|| number(text).and_then(|number| u8::try_from(number).ok())) {
        Some(bits) => Ok(bits),
        None => wrong(format!("`{text}` is no TCP flag"), FORM),
    }
}

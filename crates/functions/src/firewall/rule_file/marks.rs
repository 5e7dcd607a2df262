//! Marks: `meta mark set 7`, `ct mark set meta mark`. They choose routes and what to translate, of which nothing is decided here, so they
//! are not set, and the report says so. A rule that asks for one is refused: what it would decide is not known.

use super::numbers::number;
use super::reader::Words;
use super::{Parsed, wrong};

/// Whether a mark is set by what comes next.
pub(super) fn sets_one(rest: &Words<'_>) -> bool {
    match rest.peek() {
        "mark" => rest.peek_at(1) == "set",
        _ => rest.peek_at(1) == "mark" && rest.peek_at(2) == "set",
    }
}

/// `meta mark set meta mark & 0xffff0000 | 0x10`.
pub(super) fn set(rest: &mut Words<'_>) -> Parsed<()> {
    rest.take("meta");
    rest.take("ct");
    rest.tokens(2);
    loop {
        rest.take("(");
        value(rest)?;
        rest.take(")");
        if !["&", "|", "^", "and", "or", "xor", "<<", ">>"].into_iter().any(|sign| rest.take(sign)) {
            break;
        }
    }
    rest.scope.note("marks are not set: no route and no translation here goes by them");
    Ok(())
}

fn value(rest: &mut Words<'_>) -> Parsed<()> {
    let word = rest.word();
    let is_value = match word.as_str() {
        "meta" | "ct" => rest.take("mark"),
        "mark" => true,
        text => number(text).is_some(),
    };
    if is_value { Ok(()) } else { wrong(format!("`{word}` is no mark"), "write a number, or meta mark") }
}

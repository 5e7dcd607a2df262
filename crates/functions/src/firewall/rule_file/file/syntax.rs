//! The syntax of files, regardless of meaning: statements up to their ends, braces, and the names that `define` introduces.

use std::borrow::Cow;

use super::tokens::{Kind, Token};
use crate::firewall::rule_file::reader::{Scope, Sets, Words};
use crate::firewall::rule_file::{Parsed, wrong};

/// The tokens of a statement: borrowed from its file, unless names are replaced or ends of lines left out.
pub(in crate::firewall::rule_file) type Statement<'a> = Cow<'a, [Token]>;

/// Takes the tokens up to and including the end of the statement, or up to but not including a brace that closes the
/// surrounding block.
pub(in crate::firewall::rule_file) fn statement<'a>(rest: &mut Words<'a>) -> Statement<'a> {
    let (mut depth, mut ends, mut last) = (0u32, false, 0);
    let begin = rest.words;
    while let Some(token) = rest.words.first() {
        match &*token.text {
            "{" if token.kind == Kind::Word => depth += 1,
            "}" if token.kind == Kind::Word && depth == 0 => break,
            "}" if token.kind == Kind::Word => depth -= 1,
            _ => {}
        }
        rest.token();
        match token.kind {
            Kind::End if depth == 0 => break,
            Kind::End => ends = true,
            _ => {}
        }
        last = begin.len() - rest.words.len();
    }
    let within = &begin[..last];
    if ends { within.iter().filter(|token| token.kind != Kind::End).cloned().collect() } else { within.into() }
}

/// What is between the braces around a statement; `None` if there are none.
pub(in crate::firewall::rule_file) fn within_braces(tokens: Statement<'_>) -> Option<Vec<Token>> {
    match &*tokens {
        [first, within @ .., last] if &*first.text == "{" && &*last.text == "}" => Some(within.to_vec()),
        _ => None,
    }
}

/// Takes sets within a set apart: what stands behind one is said of each of its elements, so `{ eth0, eth1 } : drop` becomes
/// `eth0 : drop, eth1 : drop`.
pub(in crate::firewall::rule_file) fn apart(elements: Vec<Token>) -> Vec<Token> {
    let is = |token: &Token, sign: &str| token.kind != Kind::Quoted && &*token.text == sign;
    if !elements.iter().any(|token| is(token, "{")) {
        return elements;
    }
    let (mut apart, mut rest) = (Vec::<Token>::new(), elements.as_slice());
    while let Some(first) = rest.first() {
        let (mut depth, mut behind) = (0u32, 0);
        let end = rest.iter().position(|token| {
            depth += u32::from(is(token, "{"));
            depth = depth.saturating_sub(u32::from(is(token, "}")));
            depth == 0 && is(token, ",")
        });
        let (element, more) = rest.split_at(end.unwrap_or(rest.len()));
        rest = more.get(1..).unwrap_or_default();
        if is(first, "{") {
            behind = element.iter().rposition(|token| is(token, "}")).map_or(0, |at| at + 1);
        }
        let (keys, said) = if behind > 0 { element.split_at(behind) } else { (element, &[][..]) };
        for key in keys.split(|token| is(token, ",")) {
            let before = apart.len();
            apart.extend(key.iter().filter(|token| !is(token, "{") && !is(token, "}")).cloned());
            if apart.len() > before {
                apart.extend(said.iter().cloned());
                apart.push(Token { text: ",".into(), kind: Kind::Word, ..first.clone() });
            }
        }
    }
    apart
}

/// Replaces names by what `define` says about them.
pub(in crate::firewall::rule_file) fn replace<'a>(
    defined: &Sets,
    tokens: Statement<'a>,
    scope: &Scope<'_>,
) -> Parsed<Statement<'a>> {
    if !tokens.iter().any(|token| token.text.starts_with('$')) {
        return Ok(tokens);
    }
    let mut replaced = Vec::new();
    for token in tokens.iter() {
        let Some(name) = token.text.strip_prefix('$') else {
            replaced.push(token.clone());
            continue;
        };
        let Some((_, value)) = defined.iter().rev().find(|(known, _)| known == name) else {
            scope.at.set(token.at);
            return wrong(format!("`{name}` is not defined"), format!("write define {name} = {{ … }} before"));
        };
        replaced.extend(value.iter().map(|it| Token { at: token.at, ..it.clone() }));
    }
    Ok(replaced.into())
}

/// Skips a block that has no meaning here, and its name; its lines begin with some of these words, or with a comment.
pub(in crate::firewall::rule_file) fn block(words: &[&str], rest: &mut Words<'_>) -> Parsed<()> {
    let name = rest.word();
    if !rest.take("{") {
        return Ok(());
    }
    loop {
        if rest.at_end() {
            rest.token();
            continue;
        }
        let line = statement(rest);
        match line.first() {
            None if rest.take("}") => return Ok(()),
            None => return wrong(format!("`{name}` has no end"), "write } behind it"),
            Some(first) if words.contains(&&*first.text) || &*first.text == "comment" => {}
            Some(first) => {
                rest.scope.at.set(first.at);
                return wrong(
                    format!("`{}` is not said of `{name}`", first.text),
                    format!("write one of {}, comment", words.join(", ")),
                );
            }
        }
    }
}

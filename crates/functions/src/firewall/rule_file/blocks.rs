//! The syntax of files, regardless of meaning: statements up to their ends, braces, named sets, and the names that `define`
//! introduces.

use std::borrow::Cow;

use super::keyed::Declared;
use super::reader::{Scope, Sets, Words};
use super::tokens::{Kind, Token};
use super::{Parsed, wrong};

/// The tokens of a statement: borrowed from its file, unless names are replaced or ends of lines left out.
pub(super) type Statement<'a> = Cow<'a, [Token]>;

/// Takes the tokens up to and including the end of the statement, or up to but not including a brace that closes the
/// surrounding block.
pub(super) fn statement<'a>(rest: &mut Words<'a>) -> Statement<'a> {
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
pub(super) fn within_braces(tokens: Statement<'_>) -> Option<Vec<Token>> {
    match &*tokens {
        [first, within @ .., last] if &*first.text == "{" && &*last.text == "}" => Some(within.to_vec()),
        _ => None,
    }
}

/// Replaces names by what `define` says about them.
pub(super) fn replace<'a>(defined: &Sets, tokens: Statement<'a>, scope: &Scope<'_>) -> Parsed<Statement<'a>> {
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

/// Skips a block that has no meaning here, and its name.
pub(super) fn block(rest: &mut Words<'_>) -> Parsed<()> {
    rest.tokens(2);
    if rest.take("{") {
        while !rest.words.is_empty() && rest.peek() != "}" {
            drop(statement(rest));
            if rest.peek() == "{" {
                return wrong("braces within braces", "write one block");
            }
        }
        rest.take("}");
    }
    Ok(())
}

/// Reads `NAME { type ipv4_addr; flags interval; elements = { … } }`, as nftables lists sets and maps.
pub(super) fn named_set(rest: &mut Words<'_>, defined: &Sets) -> Parsed<((String, Vec<Token>), Declared)> {
    let name = rest.word();
    let form = "write set admins { type ipv4_addr; elements = { 192.0.2.0/28 } }, or define admins = { 192.0.2.0/28 }";
    if !rest.take("{") {
        return wrong(format!("the set `{name}` has no braces"), form);
    }
    let (mut elements, mut declared) = (Vec::new(), Declared::default());
    loop {
        if declared.read(rest)? {
            continue;
        }
        match rest.peek() {
            "}" => {
                rest.word();
                return Ok(((name, elements), declared));
            }
            "" => return wrong(format!("the set `{name}` has no end"), "write } behind it"),
            "elements" => {
                rest.word();
                if !rest.take("=") {
                    return wrong("elements without `=`", form);
                }
                let Some(within) = within_braces(replace(defined, statement(rest), rest.scope)?) else {
                    return wrong("more than a set", form);
                };
                elements = within;
                // Sets within the set, referred to by name.
                elements.retain(|token| !matches!(&*token.text, "{" | "}") || token.kind == Kind::Quoted);
            }
            _ => drop(statement(rest)),
        }
    }
}

//! What files are made of, whatever it says: statements up to their ends, braces, sets with names, and the names that `define` gives.

use std::borrow::Cow;

use super::keyed::Declared;
use super::reader::{Scope, Sets, Words};
use super::tokens::{Kind, Token};
use super::{Parsed, wrong};

/// The tokens of a statement: where they stand in their file, unless names or ends of lines within them are left out.
pub(super) type Statement<'a> = Cow<'a, [Token]>;

/// The tokens up to the end of the statement, which is taken, or to a brace that closes what is around it, which is not.
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

/// What stands between the braces around a statement; none if there are none.
pub(super) fn within_braces(tokens: Statement<'_>) -> Option<Vec<Token>> {
    match &*tokens {
        [first, within @ .., last] if &*first.text == "{" && &*last.text == "}" => Some(within.to_vec()),
        _ => None,
    }
}

/// Tokens with what `define` says in the places of names.
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

/// A block that says nothing here, and its name.
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

/// `NAME { type ipv4_addr; flags interval; elements = { … } }`, as nftables lists sets and maps.
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
                // Sets within the set, by their names.
                elements.retain(|token| !matches!(&*token.text, "{" | "}") || token.kind == Kind::Quoted);
            }
            _ => drop(statement(rest)),
        }
    }
}

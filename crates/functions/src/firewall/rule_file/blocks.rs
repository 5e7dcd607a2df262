//! What files are made of, whatever it says: statements up to their ends, braces, sets with names, and the names that `define` gives.

use super::keyed::Declared;
use super::reader::{Scope, Sets, Words};
use super::tokens::{Kind, Token};
use super::{Parsed, wrong};

/// The tokens up to the end of the statement, which is taken, or to a brace that closes what is around it, which is not.
pub(super) fn statement(rest: &mut Words<'_>) -> Vec<Token> {
    let (mut depth, mut tokens) = (0u32, Vec::new());
    while let Some(token) = rest.words.first() {
        match token.text.as_str() {
            "{" if token.kind == Kind::Word => depth += 1,
            "}" if token.kind == Kind::Word && depth == 0 => break,
            "}" if token.kind == Kind::Word => depth -= 1,
            _ => {}
        }
        rest.token();
        match token.kind {
            Kind::End if depth == 0 => break,
            Kind::End => {}
            _ => tokens.push(token.clone()),
        }
    }
    tokens
}

/// What stands between the braces around a statement; none if there are none.
pub(super) fn within_braces(mut tokens: Vec<Token>) -> Option<Vec<Token>> {
    let is_open = tokens.first().is_some_and(|token| token.text == "{");
    if !is_open || tokens.pop().is_none_or(|token| token.text != "}") {
        return None;
    }
    tokens.remove(0);
    Some(tokens)
}

/// Tokens with what `define` says in the places of names.
pub(super) fn replace(defined: &Sets, tokens: Vec<Token>, scope: &Scope<'_>) -> Parsed<Vec<Token>> {
    if !tokens.iter().any(|token| token.text.starts_with('$')) {
        return Ok(tokens);
    }
    let mut replaced = Vec::new();
    for token in tokens {
        let Some(name) = token.text.strip_prefix('$') else {
            replaced.push(token);
            continue;
        };
        let Some((_, value)) = defined.iter().rev().find(|(known, _)| known == name) else {
            scope.at.set(token.at);
            return wrong(format!("`{name}` is not defined"), format!("write define {name} = {{ … }} before"));
        };
        replaced.extend(value.iter().map(|it| Token { at: token.at, ..it.clone() }));
    }
    Ok(replaced)
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
                elements.retain(|token| !matches!(token.text.as_str(), "{" | "}") || token.kind == Kind::Quoted);
            }
            _ => drop(statement(rest)),
        }
    }
}

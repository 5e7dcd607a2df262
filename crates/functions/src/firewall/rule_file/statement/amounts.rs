//! Limits and quotas: `limit rate 5/second`, `limit rate over 10 mbytes/second`, `quota over 25 mbytes`, and those that a table
//! declares by name (`limit name "slow"`), which several rules may share.

use braid_nf::state::hash;

use super::Reading;
use super::verdict::Verdict;
use crate::firewall::effects::quota::Quota;
use crate::firewall::effects::rate_limit::{Often, bytes};
use crate::firewall::rule_file::conditions::concatenation::map_values;
use crate::firewall::rule_file::reader::Words;
use crate::firewall::rule_file::{Parsed, wrong};
use crate::firewall::rules::{Action, Rule};

/// A named limit or quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::firewall::rule_file) struct Pool {
    pub(in crate::firewall::rule_file) name: String,
    what: Amount,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Amount {
    Limit(Often),
    Quota(Quota),
}

impl Pool {
    pub(in crate::firewall::rule_file) fn is_quota(&self) -> bool {
        matches!(self.what, Amount::Quota(_))
    }
}

/// Reads a declaration: `limit slow { rate 5/second }`, `quota month { over 25 mbytes used 3 bytes }`.
pub(in crate::firewall::rule_file) fn pool(kind: &str, rest: &mut Words<'_>) -> Parsed<Pool> {
    let (is_quota, name) = (kind == "quota", rest.word());
    if !rest.take("{") {
        return wrong(format!("`{name}` has no braces"), "write limit slow { rate 5/second }");
    }
    skip_ends(rest);
    let what = if is_quota { Amount::Quota(of_quota(rest)?) } else { Amount::Limit(rate(rest)?) };
    skip_ends(rest);
    if rest.take("}") { Ok(Pool { name, what }) } else { wrong(format!("`{name}` has no end"), "write } behind it") }
}

/// Skips ends of lines, and a comment.
fn skip_ends(rest: &mut Words<'_>) {
    while rest.at_end() || rest.take("comment") {
        rest.token();
    }
}

/// Finds the limit or quota of that name, and the number that identifies it.
fn of_name(rest: &mut Words<'_>, is_quota: bool) -> Parsed<(Amount, u64)> {
    let (name, kind) = (rest.word(), if is_quota { "quota" } else { "limit" });
    let Some(pool) = rest.scope.pools.iter().find(|pool| pool.name == name && pool.is_quota() == is_quota) else {
        return wrong(
            format!("the table has no {kind} `{name}`"),
            format!("write {kind} {name} {{ … }} before the chains, or the {kind} into the rule"),
        );
    };
    let whose = format!("{} {kind} {name}", rest.scope.table);
    Ok((pool.what, hash::mixed(whose.as_bytes(), 0) | 1))
}

/// Reads `limit rate 5/second`, `quota over 25 mbytes`, `limit name "slow"` or
/// `quota name ip saddr map { 10.0.0.1 : "his", 10.0.0.2 : "hers" }`. Effects that precede it in the rule do not depend on it.
pub(in crate::firewall::rule_file) fn amount(rest: &mut Words<'_>, reading: &mut Reading) -> Parsed<()> {
    reading.close(Verdict::Continue);
    let is_quota = rest.word() == "quota";
    let does = |(amount, pool): (Amount, u64)| match amount {
        Amount::Limit(often) => Rule { limit: Some(often), pool, ..Rule::new(Action::Continue) },
        Amount::Quota(quota) => Rule { quota: Some(quota), pool, ..Rule::new(Action::Continue) },
    };
    let one = if !rest.take("name") {
        let amount = if is_quota { Amount::Quota(of_quota(rest)?) } else { Amount::Limit(rate(rest)?) };
        does((amount, 0))
    } else if let Some(values) = map_values(rest, reading, |value| of_name(value, is_quota))? {
        let does = values.into_iter().map(|(fits, amount)| (fits, does(amount)));
        reading.by_map(does.collect());
        return Ok(());
    } else {
        does(of_name(rest, is_quota)?)
    };
    let Rule { limit, quota, pool, .. } = one;
    reading.does = Rule { limit, quota, pool, ..std::mem::replace(&mut reading.does, Rule::new(Action::Continue)) };
    Ok(())
}

fn of_quota(rest: &mut Words<'_>) -> Parsed<Quota> {
    let over = rest.take("over");
    if !over {
        rest.take("until");
    }
    let most = number(rest)?;
    let used = if rest.take("used") { number(rest)? } else { 0 };
    Ok(Quota { bytes: most, over, used })
}

/// Reads a number of bytes, such as `25 mbytes`.
fn number(rest: &mut Words<'_>) -> Parsed<u64> {
    let (number, unit) = (rest.word(), rest.word());
    match bytes(&number, &unit) {
        Some(bytes) => Ok(bytes),
        None => wrong(format!("`{number} {unit}` is no number of bytes"), "write quota over 25 mbytes"),
    }
}

/// Reads a rate: `rate 5/second burst 10 packets`, `rate over 10 mbytes/second burst 100 kbytes`.
pub(in crate::firewall::rule_file) fn rate(rest: &mut Words<'_>) -> Parsed<Often> {
    if !rest.take("rate") {
        return wrong("a limit without its rate", "write limit rate 5/second");
    }
    let mut text = String::new();
    if rest.take("over") {
        text += "over ";
    }
    text += &rest.word();
    // Blanks around `/` mean nothing.
    while text.ends_with('/') || !text.contains('/') && (rest.peek() == "/" || rest.peek().contains("bytes")) {
        let word = rest.word();
        if word.is_empty() {
            break;
        }
        let is_joined = word == "/" || text.ends_with('/');
        text = text + if is_joined { "" } else { " " } + &word;
    }
    if rest.take("burst") {
        text += &format!(" burst {}", rest.word());
        if matches!(rest.peek(), "packets" | "bytes" | "kbytes" | "mbytes") {
            text = text + " " + &rest.word();
        }
    }
    match text.parse::<Often>() {
        Ok(often) => Ok(often),
        Err(error) => {
            let (reason, instead) = error.split_once(", expected ").unwrap_or((&error, "5/second"));
            let words = if instead.starts_with(|first: char| first.is_ascii_digit()) { "limit rate " } else { "" };
            wrong(reason, format!("write {words}{instead}"))
        }
    }
}

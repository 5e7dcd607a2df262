//! Changes to packets that pass: `ip dscp set ef`, `ip6 hoplimit set 64`, `ip dscp set tcp dport map { 22 : cs6 }`.

use super::Reading;
use crate::firewall::effects::edits::{Edit, asked_behind};
use crate::firewall::rule_file::conditions::addresses::family;
use crate::firewall::rule_file::conditions::concatenation::map_values;
use crate::firewall::rule_file::conditions::{DSCP, TTL, narrow_family};
use crate::firewall::rule_file::file::tokens::Place;
use crate::firewall::rule_file::reader::Words;
use crate::firewall::rule_file::{Parsed, Scope, wrong};
use crate::firewall::rules::{Action, Rule};
use braid_nf::packet::IpVersion;

/// Whether such a statement comes next.
pub(in crate::firewall::rule_file) fn is_next(rest: &Words<'_>) -> bool {
    matches!(rest.peek(), "ip" | "ip6") && rest.peek_at(2) == "set"
}

/// Reads such a statement.
pub(in crate::firewall::rule_file) fn edit(rest: &mut Words<'_>, reading: &mut Reading) -> Parsed<()> {
    let (version, what) = (family(&rest.word()), rest.word());
    let made: fn(u8) -> Edit = match (what.as_str(), version) {
        ("dscp", _) => Edit::Dscp,
        ("ttl", IpVersion::V4) | ("hoplimit", IpVersion::V6) if rest.scope.has_all_hops => Edit::ArrivedHops,
        ("ttl", IpVersion::V4) | ("hoplimit", IpVersion::V6) => Edit::Hops,
        _ => return wrong(format!("`{what}` of a packet is not set"), "write dscp, ttl or hoplimit, or leave it out"),
    };
    rest.word();
    if !rest.scope.in_table {
        return wrong(
            "lines without a table are about packets that would open a connection",
            "write table inet filter { chain forward { … } } around the rules",
        );
    }
    let value = |rest: &mut Words<'_>| {
        let text = rest.word();
        match if what == "dscp" { DSCP } else { TTL }.number(&text)? as u8 {
            0 if what != "dscp" => wrong("nobody takes on a packet that has no hops left", "write a number from 1 on"),
            number => Ok(made(number)),
        }
    };
    // Effects that precede it in the rule also apply to packets of the other IP version.
    reading.narrow(&[()], |fits, ()| narrow_family(&mut fits.rule, version))?;
    let Some(values) = map_values(rest, reading, value)? else {
        let edit = value(rest)?;
        reading.does.edits.push(edit);
        return Ok(());
    };
    let edits = |edit| Rule { edits: vec![edit], ..Rule::new(Action::Continue) };
    reading.by_map(values.into_iter().map(|(fits, edit)| (fits, edits(edit))).collect());
    Ok(())
}

/// Refuses rules whose conditions depend on what earlier rules have written.
pub(in crate::firewall::rule_file) fn check(rules: &[Rule], scope: &Scope<'_>) -> Parsed<()> {
    let Some((asking, writing)) = asked_behind(rules) else { return Ok(()) };
    let is_its = |name: &std::sync::Arc<str>| asking.file.as_ref() == Some(name);
    let file = scope.files.iter().position(is_its).unwrap_or_default() as u16;
    scope.at.set(Place { file, line: asking.line, column: 1 });
    wrong(
        format!(
            "it asks for what {} has set: rules are asked about packets as they came",
            rules[writing].place(writing)
        ),
        "write it before, or accept behind set",
    )
}

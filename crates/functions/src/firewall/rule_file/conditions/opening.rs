//! `ct original ip saddr`, `ct reply proto-dst`: the ends of a connection as in its first packet, whichever direction a packet
//! has.

use super::addresses::{addresses, family};
use super::any_protocol_with_ports;
use super::fib::{Ways, way};
use crate::firewall::conditions::fields::{Field, Within};
use crate::firewall::conditions::masked::{End, Masked};
use crate::firewall::connection::states::{NEW, ORIGINAL, RELATED, REPLY};
use crate::firewall::rule_file::reader::Words;
use crate::firewall::rule_file::{Parsed, wrong};
use crate::firewall::rules::Rule;
use crate::parts::Many;

/// Whether a condition on an end of a connection comes next.
pub(in crate::firewall::rule_file) fn is_next(rest: &Words<'_>) -> bool {
    let ends = ["ip", "ip6", "saddr", "daddr", "proto-src", "proto-dst", "protocol", "l3proto"];
    matches!(rest.peek_at(1), "original" | "reply") && ends.contains(&rest.peek_at(2))
}

/// Reads `ct original ip saddr 10.0.0.0/8`: the source of packets in the direction of the first one, and the destination of
/// those in reply. For ICMP errors it is that of the connection they concern.
pub(in crate::firewall::rule_file) fn opening(rest: &mut Words<'_>) -> Parsed<Ways> {
    rest.take("ct");
    // Replies go between the same ends in the other direction.
    let answers = !rest.take("original") && rest.take("reply");
    let (what, mut never) = (rest.word(), false);
    let end = if matches!(what.as_str(), "ip" | "ip6") { rest.word() } else { what.clone() };
    let is_source = matches!(end.as_str(), "saddr" | "proto-src") != answers;
    if (answers || !is_source) && rest.scope.translates {
        return wrong(
            "where the first packet went is not known where something is translated: the firewall sees inside addresses",
            "write ip daddr and ct direction original",
        );
    }
    let (mut with, mut against) = (Rule { states: NEW | ORIGINAL, ..way() }, Rule { states: REPLY, ..way() });
    let mut about = Rule { states: RELATED, ..way() };
    match (what.as_str(), end.as_str()) {
        ("ip" | "ip6", "saddr" | "daddr") => {
            let mut ends = Many::default();
            addresses(&mut ends, &mut never, rest, family(&what))?;
            let [there, back] = if is_source {
                [&mut with.source, &mut against.destination]
            } else {
                [&mut with.destination, &mut against.source]
            };
            about.masked.push(Masked::one_of(if is_source { End::Opener } else { End::Asked }, &ends.0));
            (*there, *back) = (ends.clone(), ends);
        }
        ("proto-src" | "proto-dst", _) => {
            let ports = Many::of(rest.ports()?);
            let [there, back] = if is_source {
                [&mut with.source_ports, &mut against.destination_ports]
            } else {
                [&mut with.destination_ports, &mut against.source_ports]
            };
            let ranges = ports.0.iter().map(|range| (range.first.into(), range.last.into())).collect();
            about.fields.push(Within::new(if is_source { Field::OpenerPort } else { Field::AskedPort }, ranges));
            (*there, *back) = (ports.clone(), ports);
            any_protocol_with_ports(&mut with)?;
            any_protocol_with_ports(&mut against)?;
        }
        ("saddr" | "daddr", _) => {
            return wrong(format!("`{what}` of no family"), format!("write ct original ip {what}"));
        }
        _ => {
            let instead = "write ct original ip saddr, ip6 daddr, proto-src or proto-dst; or meta l4proto and nfproto";
            return wrong(format!("`{end}` of a connection is not looked at"), instead);
        }
    }
    Ok(if never { Ways::new() } else { vec![with, against, about] })
}

//! Options of TCP and IPv4: `tcp option sack-perm missing`, `tcp option maxseg size < 536`, `ip option lsrr exists`.

use super::numbers::{Numbers, nameless, number};
use super::{narrow_family, narrow_protocol, narrow_within, protocol};
use crate::firewall::conditions::fields::{Field, NO_SIZE, Within};
use crate::firewall::conditions::rare_fields::ip_option_bit;
use crate::firewall::rule_file::reader::Words;
use crate::firewall::rule_file::{Parsed, wrong};
use crate::firewall::rules::Rule;
use braid_nf::packet::IpVersion;

/// Kinds of TCP options by name (IANA, TCP option kinds).
const KINDS: [(&str, u64); 12] = [
    ("eol", 0),
    ("nop", 1),
    ("maxseg", 2),
    ("mss", 2),
    ("window", 3),
    ("sack-perm", 4),
    ("sack-permitted", 4),
    ("sack", 5),
    ("timestamp", 8),
    ("md5sig", 19),
    ("mptcp", 30),
    ("fastopen", 34),
];
/// Kinds of IPv4 options by name.
const IP_KINDS: [(&str, u8); 4] = [("lsrr", 131), ("ssrr", 137), ("rr", 7), ("ra", 148)];

const SEGMENT: Numbers = Numbers { what: "a size such as 1460, 1-535 or < 536", last: 0xffff, named: nameless };

/// Reads what follows `tcp option`. A packet without that option, even if it is not TCP, matches `missing`, and matches no
/// size.
pub(in crate::firewall::rule_file) fn tcp_option(rule: &mut Rule, rest: &mut Words<'_>) -> Parsed<()> {
    let name = rest.word();
    let known = KINDS.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind).or_else(|| number(&name));
    let Some(kind) = known.filter(|kind| *kind < 64) else {
        return wrong(
            format!("`{name}` is no option of TCP that is looked at"),
            "write maxseg, window, sack-perm, sack, timestamp, md5sig, mptcp, fastopen, or a kind up to 63",
        );
    };
    if rest.peek() == "size" && kind == 2 {
        rest.word();
        narrow_within(rule, SEGMENT.within_unless(Field::SegmentSize, NO_SIZE, rest)?)?;
        return narrow_protocol(rule, protocol("tcp").into_iter().collect());
    }
    let is_there = is_there(rest, "an option", OF_TCP)?;
    if is_there {
        narrow_protocol(rule, protocol("tcp").into_iter().collect())?;
    }
    narrow_within(rule, Within::bit(Field::TcpOptions, 1 << kind, is_there))
}

/// Reads what follows `ip option`.
pub(in crate::firewall::rule_file) fn ip_option(rule: &mut Rule, rest: &mut Words<'_>) -> Parsed<()> {
    let name = rest.word();
    let Some((_, kind)) = IP_KINDS.iter().find(|(known, _)| *known == name) else {
        return wrong(format!("`{name}` is no option of IPv4 that is looked at"), "write lsrr, ssrr, rr or ra");
    };
    let is_there = is_there(rest, "an option", "write exists or missing: its fields are not looked at")?;
    narrow_within(rule, Within::bit(Field::IpOptions, ip_option_bit(*kind), is_there))?;
    narrow_family(rule, IpVersion::V4)
}

/// What may be asked of an option of TCP.
const OF_TCP: &str = "write exists or missing, of maxseg size too: tcp option maxseg size < 536. Other fields are not looked at; bits are by \
                      their place, where options do not move: the first one begins at @th,160,8";

/// `exists`, `missing`, `!= exists`, `1`; else `instead`.
pub(in crate::firewall::rule_file) fn is_there(rest: &mut Words<'_>, what: &str, instead: &str) -> Parsed<bool> {
    let is_negated = rest.negated();
    match rest.word().as_str() {
        "exists" | "1" => Ok(!is_negated),
        "missing" | "0" => Ok(is_negated),
        other => wrong(format!("`{other}` is nothing that {what} is asked for"), instead),
    }
}

//! IPv6 extension headers: the first of them, whether one is present, and the type of a routing header.

use braid_nf::packet::IpVersion;
use braid_nf::packet::parse::protocol as number;

use super::numbers::{Numbers, nameless};
use super::options::is_there;
use super::{PROTOCOL, each, narrow_family, narrow_protocol, narrow_within};
use crate::firewall::conditions::fields::{Field, UNROUTED, Within};
use crate::firewall::conditions::rare_fields::extension_bit;
use crate::firewall::rule_file::reader::Words;
use crate::firewall::rule_file::{Parsed, wrong};
use crate::firewall::rules::Rule;

/// Reads `ip6 nexthdr`. If the first header is no extension, nothing follows it, so it is also the protocol, which is faster to
/// look up.
pub(in crate::firewall::rule_file) fn next_headers(rule: &mut Rule, rest: &mut Words<'_>) -> Parsed<Vec<(u64, u64)>> {
    let ranges = PROTOCOL.fitting(rest)?;
    if !each(&ranges).any(|header| number::is_extension(header.0)) {
        narrow_protocol(rule, each(&ranges).collect())?;
    }
    Ok(ranges)
}

/// Reads `exthdr rt exists` or `exthdr hbh missing`, about the whole packet.
pub(in crate::firewall::rule_file) fn exthdr(rule: &mut Rule, rest: &mut Words<'_>) -> Parsed<()> {
    let header = match rest.word().as_str() {
        "hbh" => number::HOP_BY_HOP,
        "rt" => number::ROUTING,
        "frag" => number::FRAGMENT,
        "dst" => number::DESTINATION_OPTIONS,
        "mh" => number::MOBILITY,
        other => return wrong(format!("`{other}` is no extension header"), "write exthdr hbh, rt, frag, dst or mh"),
    };
    let is_there = is_there(rest, "an extension header", "write exists or missing: exthdr rt missing")?;
    narrow_within(rule, Within::bit(Field::Extensions, extension_bit(header), is_there))?;
    narrow_family(rule, IpVersion::V6)
}

const TYPE: Numbers = Numbers { what: "a type of routing header such as 0 or 4", last: 255, named: nameless };

/// Reads `rt type 0`. A packet without a routing header does not match, not even `rt type != 0`.
pub(in crate::firewall::rule_file) fn routing(rule: &mut Rule, rest: &mut Words<'_>) -> Parsed<()> {
    match rest.word().as_str() {
        "type" => narrow_within(rule, TYPE.within_unless(Field::RoutingType, UNROUTED, rest)?)?,
        "seg-left" | "hdrlength" | "nexthdr" => {
            return wrong(
                "only the type of a routing header is looked at",
                "write rt type 0 or exthdr rt exists; or bits by their place: right behind the header of IPv6 its segments left are @nh,344,8",
            );
        }
        _ => return crate::firewall::rule_file::unsupported::unknown("rt"),
    }
    narrow_family(rule, IpVersion::V6)
}

//! Inspects the beginning of a capture before it is read, for properties that would make a run do nothing
//! or drop much and that are easily corrected.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use braid_control::report::grouped;
use braid_control::runtime::io::capture::{CaptureReader, addresses};
use braid_control::runtime::nf::packet::Link;
use braid_control::runtime::nf::packet::Prefix;

/// Number of packets that are inspected.
const LOOKED_AT: u64 = 10_000;

/// The results of the inspection.
#[derive(Default)]
struct Seen {
    packets: u64,
    /// Number of packets of which not all bytes were captured.
    cut: u64,
    /// The first unknown link type.
    unknown: Option<u32>,
    /// Whether any packet comes from inside, and the first source that is not inside.
    inside: bool,
    outside: Option<IpAddr>,
    /// Source and destination of packets between hosts that are both outside.
    pairs: HashSet<(IpAddr, IpAddr)>,
    /// Number of packets that answer a packet between such hosts, so that both directions arrive on one
    /// port; and the ends of the first such pair.
    astray: u64,
    ends: Option<(IpAddr, IpAddr)>,
}

/// Minimum share for a note: one in this many packets is between hosts outside.
const ASTRAY_OF: u64 = 10;

/// The notes on a capture; `inside` are the prefixes of the inside, if there are any.
pub fn notes(path: &Path, inside: &[Prefix]) -> Vec<String> {
    let Ok(reader) = CaptureReader::open(path) else { return Vec::new() };
    let (name, seen) = (path.display(), look(reader, inside));
    let mut notes = Vec::new();
    if let Some(number) = seen.unknown {
        notes.push(format!(
            "{name}: link type {number} is not known here: such packets are taken for ones without IP, and written as of link type 147 (user 0)"
        ));
    }
    if seen.cut > 0 {
        let (cut, packets) = (grouped(seen.cut), grouped(seen.packets));
        notes.push(format!(
            "{name}: {cut} of the first {packets} packets were cut by who captured them; tcpdump -s 0 takes whole ones"
        ));
    }
    notes.extend(of_sides(&seen, inside));
    notes
}

/// The note on packets that arrive on the outside port, although they may be from inside.
fn of_sides(seen: &Seen, inside: &[Prefix]) -> Option<String> {
    let list =
        |inside: &[Prefix], between: &str| inside.iter().map(Prefix::to_string).collect::<Vec<_>>().join(between);
    let range = |source: IpAddr| match source {
        IpAddr::V4(source) => format!("{}/24", Ipv4Addr::from_bits(source.to_bits() & !0xff)),
        IpAddr::V6(source) => format!("{}/64", Ipv6Addr::from_bits(source.to_bits() & !0 << 64)),
    };
    match (seen.outside, seen.ends) {
        (Some(source), _) if !seen.inside && !inside.is_empty() => Some(format!(
            "no packet comes from inside ({}); if {source} is inside, say so: --inside {}",
            list(inside, ", "),
            range(source)
        )),
        (_, Some((source, destination))) if seen.astray * ASTRAY_OF >= seen.packets => Some(format!(
            "{} of the first {} packets go back between addresses of which neither is inside ({}), such as {source} and {destination}: both directions \
             come by port 1; if {source} is inside, say so: --inside {},{}",
            grouped(seen.astray),
            grouped(seen.packets),
            list(inside, ", "),
            list(inside, ","),
            range(source)
        )),
        _ => None,
    }
}

fn look(mut reader: CaptureReader, inside: &[Prefix]) -> Seen {
    let mut seen = Seen::default();
    let mut is_cut = false;
    while seen.packets < LOOKED_AT {
        match reader.advance() {
            Ok(true) => {}
            Ok(false) => break,
            // The file ends within its last packet. That is reported as damage, and does not mean that the
            // capturing program truncated packets.
            Err(_) => {
                seen.cut -= u64::from(is_cut);
                break;
            }
        }
        let captured = reader.captured();
        seen.packets += 1;
        is_cut = (captured.bytes.len() as u64) < u64::from(captured.wire_len);
        seen.cut += u64::from(is_cut);
        if captured.link() == Link::Other {
            seen.unknown.get_or_insert(captured.linktype);
        }
        if let Some((source, destination)) = addresses(captured.bytes, captured.link()) {
            let is_inside = |address: IpAddr| inside.iter().any(|prefix| prefix.contains(address.into()));
            if is_inside(source) {
                seen.inside = true;
                continue;
            }
            seen.outside.get_or_insert(source);
            // A packet to a translator's own address comes from outside, as it should.
            if !inside.is_empty() && !is_inside(destination) {
                seen.pairs.insert((source, destination));
                if seen.pairs.contains(&(destination, source)) {
                    seen.astray += 1;
                    seen.ends.get_or_insert((destination, source));
                }
            }
        }
    }
    seen
}

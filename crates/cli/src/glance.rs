//! A glance at a capture before it is read: what of it would make a run do nothing, or drop much, and is easily mended.

use std::net::IpAddr;
use std::path::Path;

use braid_control::report::grouped;
use braid_control::runtime::io::capture::{CaptureReader, Prefix, source_address};
use braid_control::runtime::nf::packet::Link;

/// Packets that are looked at.
const LOOKED_AT: u64 = 10_000;

/// What was seen.
#[derive(Default)]
struct Seen {
    packets: u64,
    /// Of which not all bytes were captured.
    cut: u64,
    /// The first link type of which nothing is known.
    unknown: Option<u32>,
    /// Whether any comes from inside, and the first source that is not.
    inside: bool,
    outside: Option<IpAddr>,
}

/// What is to be said of a capture; its packets come from inside by these prefixes, if there are any.
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
    if let Some(source) = seen.outside.filter(|_| !seen.inside && !inside.is_empty()) {
        let len = if source.is_ipv4() { 24 } else { 64 };
        let inside = inside.iter().map(Prefix::to_string).collect::<Vec<_>>().join(", ");
        notes.push(format!(
            "no packet comes from inside ({inside}); if {source} is inside, say so: --inside {source}/{len}"
        ));
    }
    notes
}

fn look(mut reader: CaptureReader, inside: &[Prefix]) -> Seen {
    let mut seen = Seen::default();
    let mut is_cut = false;
    while seen.packets < LOOKED_AT {
        match reader.advance() {
            Ok(true) => {}
            Ok(false) => break,
            // The file ends within its last packet: that is told as damage, and nobody who captured has cut it.
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
        if let Some(source) = source_address(captured.bytes, captured.link()) {
            match inside.iter().any(|prefix| prefix.contains(source)) {
                true => seen.inside = true,
                false => seen.outside = seen.outside.or(Some(source)),
            }
        }
    }
    seen
}

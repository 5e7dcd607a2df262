//! What several functions are made of.
//!
//! - Configuration: which ports are inside, address ranges, endpoints and MAC addresses of a plan, kinds with names, rates and sizes with units.
//! - Packets: those that functions answer with, and how often; neighbour discovery and its answers, groups that a host reports, ICMPv6
//!   messages of a link; lengths that headers claim, code points, congestion marks, VLAN tags, segment sizes of TCP, the version that a link header names, fragments that follow their first one,
//!   DNS responses, application protocols recognised by their first bytes, output ports, and hairpins.
//! - Tables: entries that die of age, sweeps, counts of what a full table could not keep, sums of packets and bytes, tallies of numbered owners.
//! - Reports: logs of alerts, lines of syslog, which bytes of a packet count.

pub mod aged;
pub(crate) mod alerts;
pub mod answer;
pub mod answer_rate;
pub mod counted;
pub(crate) mod discovery;
pub(crate) mod dns;
pub(crate) mod dscp;
pub(crate) mod ecn;
pub(crate) mod elsewhere;
pub mod endpoints;
pub(crate) mod fragments;
pub(crate) mod hairpin;
pub(crate) mod icmpv6;
#[cfg(test)]
pub(crate) mod injective;
pub(crate) mod lengths;
pub mod many;
pub(crate) mod membership;
pub(crate) mod named;
pub mod others;
pub mod prefix;
pub mod protocols;
pub(crate) mod proxy;
#[cfg(test)]
pub(crate) mod refuse;
pub(crate) mod scope;
pub mod segment_size;
#[cfg(test)]
pub(crate) mod show;
pub mod sides;
pub(crate) mod sweep;
pub(crate) mod syslog;
pub(crate) mod tags;
pub(crate) mod tallies;
pub(crate) mod turn;
pub mod units;
pub(crate) mod unkept;
pub(crate) mod version;
pub mod volume;
pub(crate) mod way_out;
pub mod written_mac;
pub(crate) mod zone;

pub use aged::Aged;
pub(crate) use alerts::Alerts;
pub use answer_rate::AnswerRate;
pub(crate) use braid_nf::packet::time::{NS_PER_MS, NS_PER_S as SECOND};
pub(crate) use fragments::{Fate, Fragments, Lead};
pub use many::Many;
pub use prefix::{Lengths, Prefix, PrefixError, PrefixesV4};
pub use sides::{Across, Side, Sides};
pub(crate) use syslog::Syslog;
pub(crate) use unkept::Unkept;
pub use volume::Volume;
pub(crate) use way_out::WayOut;
pub use written_mac::WrittenMac;

/// Formats a time for reports: seconds, to the millisecond.
pub(crate) fn seconds(ns: u64) -> String {
    format!("{}.{:03} s", ns / SECOND, ns % SECOND / NS_PER_MS)
}

/// Formats a number of occurrences for reports: `once`, `2 times`.
pub(crate) fn times(count: u64) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}

/// Whether a TCP segment with these flags requests a new connection.
#[inline(always)]
pub(crate) fn is_opening(flags: u8) -> bool {
    use braid_nf::packet::headers::tcp_flags::{ACK, FIN, RST, SYN};
    flags & (SYN | ACK | RST | FIN) == SYN
}

/// Formats a count with its noun: `1 answer`, `2 answers`.
pub(crate) fn of_each(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

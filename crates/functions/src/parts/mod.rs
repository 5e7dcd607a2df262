//! Building blocks that several functions share.
//!
//! - Configuration: sides of the ports, address ranges, endpoints, code points, VLAN tags, rates and sizes with units, one
//!   value or several.
//! - Packets: lengths that headers claim, bytes that count against a rate, congestion marks, IP versions in link headers, DNS
//!   responses, application protocols told by their first bytes, scopes of addresses.
//! - Answers: ICMP errors and resets, how often they are sent, neighbour discovery messages, proxy answers, frames that go back
//!   where they came from.
//! - State: tables whose entries expire by age, fragments that follow their first one, sweeps of tables, tallies of numbered
//!   owners.
//! - Reports: logs of alerts, syslog, counts of what a full table could not keep, packets and bytes, kinds with names.

pub mod aged;
pub(crate) mod alerts;
pub mod answer;
pub mod answer_rate;
pub mod counted;
pub(crate) mod discovery;
pub(crate) mod dns;
pub(crate) mod dscp;
pub(crate) mod ecn;
pub mod endpoints;
pub(crate) mod fragments;
#[cfg(test)]
pub(crate) mod injective;
pub(crate) mod lengths;
pub mod many;
pub(crate) mod named;
pub mod prefix;
pub mod protocols;
pub(crate) mod proxy;
#[cfg(test)]
pub(crate) mod refuse;
pub(crate) mod scope;
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

pub use aged::Aged;
pub(crate) use alerts::Alerts;
pub use answer_rate::AnswerRate;
pub(crate) use fragments::{Fate, Fragments};
pub use many::Many;
pub use prefix::{Prefix, PrefixError, PrefixesV4};
pub use sides::{Across, Side, Sides};
pub(crate) use syslog::Syslog;
pub(crate) use unkept::Unkept;
pub use volume::Volume;

/// Formats a time for reports: seconds, to the millisecond.
pub(crate) fn seconds(ns: u64) -> String {
    format!("{}.{:03} s", ns / SECOND, ns % SECOND / MS)
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

/// Nanoseconds in a second.
pub(crate) const SECOND: u64 = 1_000_000_000;
/// Nanoseconds in a millisecond.
pub(crate) const MS: u64 = 1_000_000;

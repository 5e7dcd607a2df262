//! What several functions are made of, by room:
//!
//! - [`config`]: what plan files say. Which ports are inside, address ranges, endpoints, MAC addresses, rates and sizes with units.
//! - [`headers`]: fields that several functions read or change, and what they say about a packet.
//! - [`answers`]: packets that functions make. ICMP errors and resets, how often they are sent, and the messages of a link.
//! - [`forwarding`]: by which port a packet leaves, hairpins, and packets that a function does not handle.
//! - `fragments`: fragments that follow their first one.
//! - [`tables`]: entries that expire, sweeps, and counts that reports show.

pub mod answers;
pub mod config;
pub mod forwarding;
pub(crate) mod fragments;
pub mod headers;
pub mod tables;
#[cfg(test)]
pub(crate) mod testing;

pub use self::answers::answer_rate::AnswerRate;
pub(crate) use self::answers::syslog::Syslog;
pub use self::config::many::Many;
pub use self::config::prefix::{Lengths, Prefix, PrefixError, PrefixesV4};
pub use self::config::sides::{Across, Side, Sides};
pub use self::config::written_mac::WrittenMac;
pub(crate) use self::forwarding::way_out::WayOut;
pub use self::tables::aged::Aged;
pub(crate) use self::tables::alerts::Alerts;
pub(crate) use self::tables::unkept::Unkept;
pub use self::tables::volume::Volume;
pub(crate) use braid_nf::packet::time::{NS_PER_MS, NS_PER_S as SECOND};
pub(crate) use fragments::{Fate, Fragments, Lead};

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

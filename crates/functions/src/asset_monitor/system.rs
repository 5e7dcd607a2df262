//! Guesses a host's operating system from the SYNs it sends: initial TTL and order of TCP options, as p0f and PRADS do.
//!
//! Options are numbered as by IANA: 1 no operation, 2 maximum segment size, 3 window scale, 4 SACK permitted, 8 time
//! stamps.

use braid_nf::Packet;
use braid_nf::packet::headers::tcp_flags;

use crate::parts::config::named::named;

named! {
    /// A family of systems; a later variant is more specific.
    pub enum System;
    Unknown "system unknown", Ttl64 "TTL 64 (unix-like)", Ttl128 "TTL 128 (Windows-like)", Ttl255 "TTL 255 (network equipment)",
    Scanner "bare SYNs (a scanner)", Linux "Linux", Windows "Windows", Apple "macOS or iOS", FreeBsd "FreeBSD", OpenBsd "OpenBSD",
}

use System::*;

/// Signatures of SYNs: initial TTL and options.
const SIGNATURES: &[(u8, &[u8], System)] = &[
    (64, &[2, 4, 8, 1, 3], Linux),
    (64, &[2, 1, 3, 1, 1, 8, 4], Apple),
    (64, &[2, 1, 3, 4, 8], FreeBsd),
    (64, &[2, 1, 1, 4, 1, 3, 1, 1, 8], OpenBsd),
    (128, &[2, 1, 3, 1, 1, 4], Windows),
    (128, &[2, 1, 1, 4], Windows),
    (128, &[2, 4, 8, 1, 3], Windows),
    (64, &[2], Scanner),
    (64, &[], Scanner),
];

impl System {
    /// The system that a packet reveals of its sender; unknown if it is not a SYN.
    pub(super) fn of(packet: &Packet<'_>) -> System {
        let (Some(tcp), Some(ttl)) = (packet.tcp(), packet.ttl()) else { return Unknown };
        if !tcp.has(tcp_flags::SYN) || tcp.has(tcp_flags::ACK) {
            return Unknown;
        }
        let (initial, by_ttl) = match ttl {
            ..=64 => (64, Ttl64),
            65..=128 => (128, Ttl128),
            _ => (255, Ttl255),
        };
        let is_sent = |&&(ttl, kinds, _): &&(u8, &[u8], System)| {
            ttl == initial && tcp.options().map(|option| option.kind()).eq(kinds.iter().copied())
        };
        SIGNATURES.iter().find(is_sent).map_or(by_ttl, |(_, _, system)| *system)
    }
}

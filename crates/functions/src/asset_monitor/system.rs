//! What system a host runs, by the SYNs it sends: initial time to live and order of TCP options, as p0f and PRADS do.
//!
//! Options are numbered by IANA: 1 no operation, 2 segment size, 3 window scale, 4 selective acknowledgement, 8 time stamps.

use braid_nf::Packet;
use braid_nf::packet::headers::tcp_flags;

/// A family of systems; a later one says more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum System {
    Unknown,
    Ttl64,
    Ttl128,
    Ttl255,
    Scanner,
    Linux,
    Windows,
    Apple,
    FreeBsd,
    OpenBsd,
}

use System::*;

/// Initial time to live and options of a SYN.
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

const ALL: [System; 10] = [Unknown, Ttl64, Ttl128, Ttl255, Scanner, Linux, Windows, Apple, FreeBsd, OpenBsd];

impl System {
    /// What the packet says about its sender; nothing if it is no SYN.
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
        let header = packet.ip_payload();
        let end = (usize::from(header.get(12).map_or(0, |offset| offset >> 4)) * 4).min(header.len());
        let (kinds, count) = kinds(header.get(20..end).unwrap_or_default());
        let of = |&&(ttl, options, _): &&(u8, &[u8], System)| ttl == initial && options == &kinds[..count];
        SIGNATURES.iter().find(of).map_or(by_ttl, |(_, _, system)| *system)
    }

    /// The system with this number.
    pub(super) fn from_number(number: u8) -> System {
        ALL.get(usize::from(number)).copied().unwrap_or(Unknown)
    }

    /// As reports say it.
    pub fn name(self) -> &'static str {
        match self {
            Unknown => "system unknown",
            Ttl64 => "TTL 64 (unix-like)",
            Ttl128 => "TTL 128 (Windows-like)",
            Ttl255 => "TTL 255 (network equipment)",
            Scanner => "bare SYNs (a scanner)",
            Linux => "Linux",
            Windows => "Windows",
            Apple => "macOS or iOS",
            FreeBsd => "FreeBSD",
            OpenBsd => "OpenBSD",
        }
    }
}

/// Kinds of options up to the end of the list, at most 16.
fn kinds(mut options: &[u8]) -> ([u8; 16], usize) {
    let (mut kinds, mut count) = ([0; 16], 0);
    while let [kind, rest @ ..] = options {
        if *kind == 0 || count == kinds.len() {
            break;
        }
        kinds[count] = *kind;
        count += 1;
        let len = if *kind == 1 { 1 } else { rest.first().map_or(0, |len| usize::from(*len)) };
        match options.get(len.max(1)..) {
            Some(behind) if len > 0 => options = behind,
            _ => break,
        }
    }
    (kinds, count)
}

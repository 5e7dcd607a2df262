//! What a packet set remembers: the whole translation, so that a packet in its steady state touches nothing else.

use braid_nf::Port;
use braid_nf::packet::headers::tcp_flags::{ACK, FIN, RST, SYN};
use braid_nf::packet::parse::protocol;
use braid_nf::state::Handle;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// One direction of a translated flow.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Session {
    /// From when on a packet has to look at the mapping, in nanoseconds.
    pub(crate) look_ns: u64,
    /// The mapping.
    pub(crate) handle: Handle,
    /// Written over the source (outward) or destination (inward) address.
    pub(crate) address: [u8; 4],
    /// Written over the port beside it.
    pub(crate) port: u16,
    /// Where its packets come in.
    pub(crate) from: Port,
    /// Where they leave.
    pub(crate) to: Port,
    pub(crate) protocol: u8,
    /// A [`Phase`].
    pub(crate) phase: u8,
    /// [`OUTWARD`] or [`INWARD`].
    pub(crate) way: u8,
    pub(crate) zero: [u8; 3],
}

/// From inside: the source is rewritten.
pub(crate) const OUTWARD: u8 = 0;
/// From outside: the destination is rewritten.
pub(crate) const INWARD: u8 = 1;

/// How far one direction of a TCP connection has come, as far as timeouts need to know (RFC 5382 section 5, RFC 7857
/// section 2). Other protocols stay in the first phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// Nothing but SYNs so far.
    Opening = 0,
    /// A segment without SYN has passed.
    Established = 1,
    /// A FIN has passed; acknowledgements may follow.
    Finished = 2,
    /// A RST has passed. If it was forged, the next other segment shows that the connection lives (RFC 7857 section 2.2).
    Reset = 3,
}

impl Phase {
    #[inline(always)]
    pub(crate) fn from_bits(bits: u8) -> Phase {
        [Phase::Opening, Phase::Established, Phase::Finished, Phase::Reset][usize::from(bits & 3)]
    }

    /// The phase after a segment with these control bits.
    #[inline(always)]
    pub(crate) fn after(bits: u8, flags: u8) -> Phase {
        match Phase::from_bits(bits) {
            _ if flags & RST != 0 => Phase::Reset,
            _ if flags & SYN != 0 => Phase::Opening,
            _ if flags & FIN != 0 => Phase::Finished,
            Phase::Finished => Phase::Finished,
            _ if flags & ACK != 0 => Phase::Established,
            phase => phase,
        }
    }
}

/// How long sets live without a packet, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    /// TCP, by [`Phase`].
    pub(crate) tcp_ns: [u64; 4],
    pub(crate) udp_ns: u64,
    pub(crate) icmp_ns: u64,
}

impl Timeouts {
    #[inline]
    pub(crate) fn of(&self, session: &Session) -> u64 {
        match session.protocol {
            protocol::UDP => self.udp_ns,
            protocol::TCP => self.tcp_ns[usize::from(session.phase & 3)],
            _ => self.icmp_ns,
        }
    }

    /// Of a flow of a protocol in a phase.
    #[inline]
    pub(crate) fn after(&self, number: u8, phase: Phase) -> u64 {
        match number {
            protocol::TCP => self.tcp_ns[phase as usize],
            protocol::UDP => self.udp_ns,
            _ => self.icmp_ns,
        }
    }
}

//! What a packet set remembers of a connection, and how far TCP has come.

use braid_nf::packet::headers::tcp_flags::{ACK, FIN, RST, SYN, URG};
use braid_nf::packet::parse::protocol;
use braid_nf::packet::{IpAddress, Packet};
use braid_nf::prelude::*;

use crate::parts::Side;

/// Both directions of a connection.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Connection {
    /// The [`Side`] that sent the first packet.
    pub(super) opener: u8,
    /// Whether that packet ran against the direction in which the set's key is written.
    pub(super) reversed: u8,
    pub(super) protocol: u8,
    /// A [`Phase`].
    phase: u8,
    /// Who has sent a FIN: bit 0 the opener, bit 1 the other.
    finished: u8,
}

/// How far a TCP connection has come. Other protocols are established with their first packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Phase {
    /// The opener has sent a SYN.
    Asked = 0,
    /// It has been answered.
    Answered = 1,
    /// The opener has confirmed.
    Established = 2,
    /// Both ends have sent a FIN.
    Closing = 3,
    /// One end has sent a RST.
    Reset = 4,
}

impl Connection {
    /// A connection whose first packet came from `opener`.
    pub(super) fn open(cx: &Cx<'_>, packet: &Packet<'_>, opener: Side) -> Connection {
        let asks = packet.protocol() == protocol::TCP && packet.tcp_flags().is_some_and(is_opening);
        let phase = if asks { Phase::Asked } else { Phase::Established };
        Connection {
            opener: opener as u8,
            reversed: cx.reversed().into(),
            protocol: packet.protocol(),
            phase: phase as u8,
            finished: 0,
        }
    }

    pub(super) fn phase(&self) -> Phase {
        [Phase::Asked, Phase::Answered, Phase::Established, Phase::Closing, Phase::Reset]
            .get(usize::from(self.phase))
            .copied()
            .unwrap_or(Phase::Reset)
    }

    /// Whether a SYN would be a new connection between the same ends.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        matches!(self.phase(), Phase::Closing | Phase::Reset)
    }

    /// Goes on with a TCP segment.
    #[inline]
    pub(super) fn advance(&mut self, flags: u8, from_opener: bool) {
        if flags & FIN != 0 {
            self.finished |= if from_opener { 1 } else { 2 };
        }
        let phase = match (self.phase(), from_opener) {
            _ if flags & RST != 0 => Phase::Reset,
            _ if self.finished == 3 => Phase::Closing,
            (Phase::Asked, false) if flags & SYN != 0 => Phase::Answered,
            (Phase::Answered, true) if flags & ACK != 0 => Phase::Established,
            // The reset was forged or out of the window: the ends go on.
            (Phase::Reset, _) if flags & ACK != 0 => Phase::Established,
            (phase, _) => phase,
        };
        self.phase = phase as u8;
    }

    /// Its ends by their sides, from the key of its set.
    pub(super) fn ends(&self, key: &SetKey) -> Option<Ends> {
        let tuple = key.five_tuple()?;
        let source = (tuple.src_ip, tuple.src_port);
        let destination = (tuple.dst_ip, tuple.dst_port);
        let from_inside = (self.opener == Side::Inside as u8) == (self.reversed == 0);
        Some(Ends::new(from_inside, source, destination, tuple.protocol))
    }
}

/// Whether a segment asks for a new connection.
#[inline]
pub(super) fn is_opening(flags: u8) -> bool {
    flags & (SYN | ACK | RST | FIN) == SYN
}

/// Whether a combination of control bits occurs in TCP as it is specified; the others are scans (the list of Linux'
/// `tcp_valid_flags`). PSH and the bits of congestion notification say nothing here.
#[inline]
pub(super) fn are_valid(flags: u8) -> bool {
    const VALID: u64 = 1 << SYN
        | 1 << (SYN | URG)
        | 1 << (SYN | ACK)
        | 1 << RST
        | 1 << (RST | ACK)
        | 1 << (FIN | ACK)
        | 1 << (FIN | ACK | URG)
        | 1 << ACK
        | 1 << (ACK | URG);
    VALID >> (flags & (FIN | SYN | RST | ACK | URG)) & 1 == 1
}

/// How long connections live without a packet, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeouts {
    pub(super) opening_ns: u64,
    pub(super) established_ns: u64,
    pub(super) closing_ns: u64,
    pub(super) reset_ns: u64,
    pub(super) udp_ns: u64,
    pub(super) other_ns: u64,
}

impl Timeouts {
    pub(super) fn of(&self, connection: &Connection) -> u64 {
        match (connection.protocol, connection.phase()) {
            (protocol::TCP, Phase::Asked | Phase::Answered) => self.opening_ns,
            (protocol::TCP, Phase::Established) => self.established_ns,
            (protocol::TCP, Phase::Closing) => self.closing_ns,
            (protocol::TCP, Phase::Reset) => self.reset_ns,
            (protocol::UDP, _) => self.udp_ns,
            _ => self.other_ns,
        }
    }
}

/// The ends of a connection or query, told apart by their sides: what ICMP errors are looked up by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Ends {
    inside: IpAddress,
    outside: IpAddress,
    inside_port: u16,
    outside_port: u16,
    protocol: u8,
    /// For ICMP queries, whose identifier is both ports: the [`Side`] that asks.
    asker: u8,
    zero: [u8; 2],
}

impl Ends {
    pub(super) fn new(from_inside: bool, source: (IpAddress, u16), destination: (IpAddress, u16), number: u8) -> Ends {
        let (inside, outside) = if from_inside { (source, destination) } else { (destination, source) };
        Ends {
            inside: inside.0,
            outside: outside.0,
            inside_port: inside.1,
            outside_port: outside.1,
            protocol: number,
            ..Ends::default()
        }
    }

    /// The same, asked from a side.
    pub(super) fn asked_from(self, side: Side) -> Ends {
        Ends { asker: side as u8, ..self }
    }
}

//! What a packet set remembers of a connection, and how far TCP has come.

use std::mem::offset_of;

use braid_nf::packet::headers::tcp_flags::{ACK, FIN, RST, SYN, URG};
use braid_nf::packet::parse::protocol;
use braid_nf::packet::{IpAddress, Packet};
use braid_nf::prelude::*;

use super::permit::Permit;
use super::states::State;
use super::window::{Reopening, Segment, Windows};
use crate::parts::{Side, is_opening, lengths};

/// Both directions of a connection. With key and age it fills a cache line less eight bytes.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Connection {
    /// What the ends of a TCP connection may send.
    pub(super) windows: Windows,
    /// The [`Side`] that sent the first packet, in bit 0; above it a part of the [`Permit`].
    opener: u8,
    /// Whether that packet ran against the direction in which the set's key is written, in bit 0; above it, while it opens, how much of
    /// its time a flood takes from it: so many [`HASTE_PARTS`].
    reversed: u8,
    pub(super) protocol: u8,
    /// A [`Phase`]; then [`OF_HOST`]; of TCP in bits 4 and 5 who has sent a FIN: the opener, the other; or
    /// [`CROSSED`]; then [`HALF_OPEN`] and
    /// [`HURRIED`]; of others [`NEW`].
    progress: u8,
}

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Phase {
    /// The opener has sent a SYN; or, without TCP, a packet.
    Asked = 0,
    /// It has been answered: TCP awaits a confirmation.
    Answered = 1,
    /// The opener has confirmed; or, without TCP, both have spoken.
    Established = 2,
    /// One end has sent a FIN.
    HalfClosed = 3,
    /// Both ends have.
    Closing = 4,
    /// One end has sent a RST.
    Reset = 5,
    /// A SYN would have begun it anew and was refused: nothing is left of it but its place.
    Gone = 6,
    /// One end has sent a RST before the opener has confirmed.
    Refused = 7,
}

/// Where the bytes of the permit begin: the last one is `opener`, and behind it stands `reversed`.
const PERMIT: usize = offset_of!(Connection, windows) + offset_of!(Windows, spare);
/// Where the phase is in [`Connection::progress`].
const PHASE: u8 = 0x07;
/// It is counted for its inside host.
const OF_HOST: u8 = 0x08;
const FIN_SHIFT: u8 = 4;
/// TCP, until it is established: both ends have sent a SYN (simultaneous open, RFC 9293 section 3.5).
const CROSSED: u8 = 2 << FIN_SHIFT;
/// Not TCP, not answered, and the rules are asked about each packet until it is.
const NEW: u8 = 0x10;
/// It is counted as half open.
const HALF_OPEN: u8 = 0x40;
/// It began under a flood: it has little time to open.
const HURRIED: u8 = 0x80;
/// Of how many parts of its time a connection that opens under a flood may lose some.
const HASTE_PARTS: u64 = 128;
/// Most that it loses: a sixteenth of its time is left.
const HASTE_MAX: u64 = HASTE_PARTS - HASTE_PARTS / 16;

impl Connection {
    /// A connection whose first packet came from `opener`.
    pub(super) fn open(cx: &Cx<'_>, packet: &Packet<'_>, opener: Side, segment: Option<&Segment>) -> Connection {
        let (phase, windows) = match segment {
            None => (Phase::Asked, Windows::UNKNOWN),
            Some(segment) if is_opening(segment.flags) => (Phase::Asked, Windows::begin(packet, segment)),
            Some(_) => (Phase::Established, Windows::UNKNOWN),
        };
        Connection {
            windows,
            opener: opener as u8,
            reversed: cx.reversed().into(),
            protocol: packet.protocol(),
            progress: phase as u8,
        }
    }

    #[inline(always)]
    pub(super) fn phase(&self) -> Phase {
        match self.progress & PHASE {
            0 => Phase::Asked,
            1 => Phase::Answered,
            2 => Phase::Established,
            3 => Phase::HalfClosed,
            4 => Phase::Closing,
            5 => Phase::Reset,
            7 => Phase::Refused,
            _ => Phase::Gone,
        }
    }

    /// Marks it as counted half open. `left`: how much of the room for such ones is left, if it is so little that it has to hurry, of how
    /// much; its time is that part of [`Timeouts::hurried_ns`], at least a sixteenth.
    pub(super) fn count_half_open(&mut self, left: Option<(u64, u64)>) {
        self.progress |= HALF_OPEN;
        if let Some((left, of)) = left {
            let kept = HASTE_PARTS * left / of.max(1);
            self.progress |= HURRIED;
            self.reversed = self.reversed & 1 | (HASTE_PARTS.saturating_sub(kept).min(HASTE_MAX) as u8) << 1;
        }
    }

    /// Whether it began under a flood and has not opened since.
    pub(super) fn is_hurried(&self) -> bool {
        self.progress & HURRIED != 0
    }

    /// Whether packets from its opener run against the direction in which the set's key is written.
    pub(super) fn is_reversed(&self) -> bool {
        self.reversed & 1 != 0
    }

    /// Marks it as counted for its inside host.
    pub(super) fn count_for_host(&mut self) {
        self.progress |= OF_HOST;
    }

    /// Whether it is counted for its inside host.
    pub(super) fn is_counted_for_host(&self) -> bool {
        self.progress & OF_HOST != 0
    }

    /// Its opener's packets are for the rules until it is answered, each of them. Of TCP the phase says whether it is.
    pub(super) fn stay_new(&mut self) {
        if self.protocol != protocol::TCP {
            self.progress |= NEW;
        }
    }

    /// What a packet is of it: as long as nobody has answered one of its opener is new.
    pub(super) fn state(&self, from_opener: bool) -> State {
        let is_new = from_opener && !self.is_answered();
        if is_new { State::New } else { State::established(from_opener) }
    }

    /// Whether a segment that fits is counted as sent, as in conntrack: a SYN that comes again is not, nor is its answer.
    pub(super) fn counts(&self, flags: u8, from_opener: bool) -> bool {
        match flags & SYN != 0 {
            true => !from_opener && self.phase() == Phase::Asked,
            false => !from_opener || self.is_answered(),
        }
    }

    /// Whether both ends have sent a SYN, and it is not established yet.
    fn is_crossed(&self) -> bool {
        self.is_opening() && self.progress & CROSSED != 0
    }

    /// Whether the end that was asked has sent anything.
    pub(super) fn is_answered(&self) -> bool {
        self.phase() != Phase::Asked || self.is_crossed()
    }

    /// Whether it is counted as half open.
    pub(super) fn is_half_open(&self) -> bool {
        self.progress & HALF_OPEN != 0
    }

    /// It is not counted any more.
    pub(super) fn settle(&mut self) {
        self.progress &= !(HALF_OPEN | HURRIED);
        self.reversed &= 1;
    }

    /// Whether it waits for its confirmation.
    pub(super) fn is_opening(&self) -> bool {
        matches!(self.phase(), Phase::Asked | Phase::Answered)
    }

    /// Whether both ends have taken it up and not both have finished: then it goes from a full table behind all others.
    pub(super) fn is_assured(&self) -> bool {
        matches!(self.phase(), Phase::Established | Phase::HalfClosed)
    }

    /// Whether a SYN would be a new connection between the same ends.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.phase(), Phase::Closing | Phase::Reset | Phase::Refused)
    }

    /// Whether there is none any more: the next packet may begin one.
    pub(super) fn is_gone(&self) -> bool {
        self.phase() == Phase::Gone
    }

    /// It is none any more.
    pub(super) fn go(&mut self) {
        self.progress = Phase::Gone as u8;
    }

    /// Whether a packet moves nothing but windows: the way of nearly all packets, without detours.
    #[inline(always)]
    pub(super) fn goes_on(&mut self, packet: &Packet<'_>, from_opener: bool) -> bool {
        if self.protocol != protocol::TCP {
            let holds = match self.protocol {
                protocol::UDP => lengths::fills_its_packet(packet),
                number => lengths::leaves_room(packet, lengths::least(number)),
            };
            if !holds {
                return false;
            }
            self.answer(from_opener);
            return self.progress & NEW == 0;
        }
        self.progress & !OF_HOST == Phase::Established as u8
            && Segment::of(packet).is_some_and(|segment| {
                is_steady(segment.flags) && self.windows.accept(usize::from(!from_opener), &segment)
            })
    }

    /// Goes on with a packet that is not TCP: the first answer counts.
    #[inline(always)]
    pub(super) fn answer(&mut self, from_opener: bool) {
        if !from_opener {
            self.progress = Phase::Established as u8 | self.progress & OF_HOST;
        }
    }

    /// Whether a TCP segment may come now, by its flags, as in conntrack's table of states. Until there is an answer the opener can only repeat
    /// its SYN or give up, and the other end has nothing to finish: otherwise the opener could by itself make a connection look open, or
    /// closed. Later the opener has no SYN to answer, and the other end none to send.
    pub(super) fn expects(&self, flags: u8, from_opener: bool) -> bool {
        let (is_syn, is_answer) = (flags & (SYN | ACK) == SYN, flags & (SYN | ACK) == SYN | ACK);
        match (self.phase(), from_opener) {
            _ if flags & RST != 0 => true,
            (Phase::Asked, true) => is_syn || is_answer && self.is_crossed(),
            (Phase::Asked, false) => flags & SYN != 0 || flags & FIN == 0,
            (Phase::Answered, true) => true,
            (Phase::Refused, false) => !is_syn,
            (_, true) => !is_answer,
            (_, false) => !is_syn,
        }
    }

    /// Whether a TCP segment that may come passes and changes nothing, whatever its numbers are: they may be right, and what is known of
    /// the connection wrong. A SYN of the opener within a connection, a repeated answer to a SYN, and an acknowledgement instead of an answer
    /// ask the receiver whether it knows better; it challenges or resets (RFC 9293 section 3.5.1, RFC 5961 section 4).
    pub(super) fn ignores(&self, flags: u8, from_opener: bool) -> bool {
        match (self.phase(), from_opener) {
            _ if flags & RST != 0 => false,
            (Phase::Asked, false) => flags & (SYN | ACK) == ACK,
            (Phase::Asked, true) | (Phase::Refused, _) => false,
            (_, true) => flags & (SYN | ACK) == SYN,
            (_, false) => flags & SYN != 0,
        }
    }

    /// Its ends have begun anew: the opener by a SYN that was ignored, the other by answering it. The answer is to come.
    pub(super) fn reopen(&mut self, reopening: &Reopening) {
        self.windows.reopen(reopening);
        self.progress = Phase::Answered as u8 | self.progress & (HALF_OPEN | HURRIED | OF_HOST);
    }

    /// Goes on with a TCP segment.
    pub(super) fn advance(&mut self, flags: u8, from_opener: bool) {
        let mut crossed = if self.is_crossed() { CROSSED } else { 0 };
        let mut finished = if self.is_opening() { 0 } else { self.progress >> FIN_SHIFT & 3 };
        if flags & FIN != 0 {
            finished |= if from_opener { 1 } else { 2 };
        }
        let phase = match (self.phase(), from_opener) {
            (Phase::Asked | Phase::Answered | Phase::Refused, _) if flags & RST != 0 => Phase::Refused,
            _ if flags & RST != 0 => Phase::Reset,
            // It was never open: only the other end can say that it is.
            (Phase::Refused, true) => Phase::Refused,
            _ if finished == 3 => Phase::Closing,
            _ if flags & FIN != 0 => Phase::HalfClosed,
            (Phase::Asked, false) if flags & (SYN | ACK) == SYN => {
                crossed = CROSSED;
                Phase::Asked
            }
            (Phase::Asked | Phase::Refused, false) if flags & SYN != 0 => Phase::Answered,
            // Both SYNs have crossed, and so do both answers.
            (Phase::Asked, true) if flags & ACK != 0 => Phase::Answered,
            (Phase::Answered, true) if flags & (SYN | ACK) == ACK => Phase::Established,
            (Phase::Answered, false) if crossed != 0 && flags & ACK != 0 => Phase::Established,
            // The reset was forged or out of the window: the ends go on.
            (Phase::Reset | Phase::Refused, _) if flags & ACK != 0 => Phase::Established,
            (phase, _) => phase,
        };
        let ways = if matches!(phase, Phase::Asked | Phase::Answered) { crossed } else { finished << FIN_SHIFT };
        self.progress = phase as u8 | ways | self.progress & (HALF_OPEN | HURRIED | OF_HOST);
    }

    /// The side from which packets in a direction come, as a number.
    pub(super) fn side_of(&self, from_opener: bool) -> u8 {
        (self.opener ^ u8::from(!from_opener)) & 1
    }

    /// What packets in steady state are compared with: in the highest byte `reversed`, below it the opener's side beside the permit.
    #[inline(always)]
    pub(super) fn word(&self) -> u32 {
        const { assert!(offset_of!(Connection, opener) == PERMIT + 2 && offset_of!(Connection, reversed) == PERMIT + 3) };
        let bytes = self.as_bytes();
        u32::from_le_bytes([bytes[PERMIT], bytes[PERMIT + 1], bytes[PERMIT + 2], bytes[PERMIT + 3]])
    }

    /// What rules have said of it, and which.
    pub(super) fn permit(&self) -> Permit {
        let [low, high] = self.windows.spare;
        Permit::of_bytes([low, high, self.opener])
    }

    /// Remembers what rules have said of it.
    pub(super) fn set_permit(&mut self, permit: Permit) {
        let [low, high, opener] = permit.beside(self.opener);
        self.windows.spare = [low, high];
        self.opener = opener;
    }

    /// Its ends by their sides, from the key of its set.
    pub(super) fn ends(&self, key: &SetKey) -> Option<Ends> {
        let tuple = key.five_tuple()?;
        let source = (tuple.src_ip, tuple.src_port);
        let destination = (tuple.dst_ip, tuple.dst_port);
        let from_inside = (self.side_of(true) == Side::Inside as u8) != self.is_reversed();
        Some(Ends::new(from_inside, source, destination, tuple.protocol))
    }
}

/// Whether a segment only goes on with its connection, by its flags.
#[inline(always)]
pub(super) const fn is_steady(flags: u8) -> bool {
    flags & (SYN | FIN | RST | ACK) == ACK
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
    /// TCP, by [`Phase`].
    pub(super) tcp_ns: [u64; 8],
    /// TCP that opens under a flood, at most.
    pub(super) hurried_ns: u64,
    /// UDP that has not been answered, and that has.
    pub(super) udp_ns: [u64; 2],
    pub(super) other_ns: u64,
}

impl Timeouts {
    /// The shortest of all.
    pub(super) fn shortest_ns(&self) -> u64 {
        let hurried_ns = self.hurried_ns / HASTE_PARTS * (HASTE_PARTS - HASTE_MAX);
        let all = self.tcp_ns.iter().chain(&self.udp_ns).chain([&hurried_ns, &self.other_ns]);
        all.fold(u64::MAX, |least, ns| least.min(*ns))
    }

    #[inline(always)]
    pub(super) fn of(&self, connection: &Connection) -> u64 {
        let phase = connection.phase();
        match connection.protocol {
            protocol::TCP if connection.is_hurried() && connection.is_opening() => {
                self.hurried_ns / HASTE_PARTS * (HASTE_PARTS - u64::from(connection.reversed >> 1))
            }
            protocol::TCP => self.tcp_ns[phase as usize],
            protocol::UDP => self.udp_ns[usize::from(phase != Phase::Asked)],
            _ => self.other_ns,
        }
    }
}

/// The ends of a connection or query, told apart by their sides: what ICMP errors are looked up by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Ends {
    pub(super) inside: IpAddress,
    pub(super) outside: IpAddress,
    pub(super) inside_port: u16,
    pub(super) outside_port: u16,
    pub(super) protocol: u8,
    /// The [`Side`] that asks, of ICMP queries, whose identifier is both ports; of live connections that which opened them; else 0.
    pub(super) asker: u8,
    /// And of which type it is: queries of two types under one identifier are two.
    pub(super) kind: u8,
    zero: u8,
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

    /// The inside one.
    pub(super) fn host(&self) -> IpAddress {
        self.inside
    }

    /// The protocol, of queries too, whose number is the same for both families.
    pub(super) fn number(&self) -> u8 {
        if self.protocol == protocol::ICMP && self.inside.v4().is_none() { protocol::ICMPV6 } else { self.protocol }
    }

    /// The same of a query of a type, asked from a side.
    pub(super) fn asked_from(self, side: Side, kind: u8) -> Ends {
        Ends { kind, ..self.opened_from(side as u8) }
    }

    /// The same of a connection that was opened from a [`Side`]: so errors find out who opened it.
    #[inline(always)]
    pub(super) fn opened_from(self, side: u8) -> Ends {
        Ends { asker: side, ..self }
    }
}

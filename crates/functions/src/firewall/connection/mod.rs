//! The packet-set state of a connection, and the stage of a TCP connection.

mod association;
pub(super) mod counts;
pub(super) mod describe;
pub(super) mod ends;
pub(super) mod limits;
pub(super) mod live_connections;
pub(super) mod opening;
pub(super) mod permit;
pub(super) mod related;
pub(super) mod states;
pub(super) mod timeouts;
pub(super) mod window;

use std::mem::offset_of;

use braid_nf::packet::Packet;
use braid_nf::packet::headers::tcp_flags::{ACK, FIN, RST, SYN, URG};
use braid_nf::packet::parse::protocol;
use braid_nf::prelude::*;

use self::association::{Association, Course};
use self::ends::Ends;
use self::permit::Permit;
use self::states::{Sender, State};
use self::window::{Reopening, Segment, Windows};
use super::conditions::extensions;
use super::conditions::output_ports::Answers;
use crate::parts::headers::lengths;
use crate::parts::{Side, is_opening};

/// The state of a connection, for both directions. Together with key and age it fills a cache line except for eight
/// bytes.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Connection {
    /// What the ends of a TCP connection may send.
    pub(super) windows: Windows,
    /// Bit 0: the [`Side`] that sent the first packet. Above: a part of the [`Permit`].
    opener: u8,
    /// Bit 0: whether the first packet ran against the direction of the set's key. Above ([`HASTE`]), while the connection opens:
    /// the part of its timeout that a flood takes away, in units of 1/[`HASTE_PARTS`]. Then [`EITHER`] and [`WITHIN`].
    reversed: u8,
    /// Its protocol to rules ([`extensions`]).
    pub(super) protocol: u8,
    /// A [`Phase`]; then [`OF_HOST`]; of TCP in bits 4 and 5 who has sent a FIN: the opener, the other; or
    /// [`CROSSED`]; then [`HALF_OPEN`] and
    /// [`HURRIED`]; of others [`NEW`].
    progress: u8,
}

/// The stage of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Phase {
    /// The opener has sent a SYN, or without TCP a packet.
    Asked = 0,
    /// The other end has answered; TCP awaits the confirmation.
    Answered = 1,
    /// The opener has confirmed, or without TCP both ends have sent.
    Established = 2,
    /// One end has sent a FIN.
    HalfClosed = 3,
    /// Both ends have sent a FIN.
    Closing = 4,
    /// One end has sent a RST, or has ended an association of SCTP.
    Reset = 5,
    /// A SYN would have reused it and was refused: only its entry remains.
    Gone = 6,
    /// One end has sent a RST before the opener has confirmed.
    Refused = 7,
}

/// The offset of the permit's bytes: the last of them is in `opener`, and `reversed` follows.
const PERMIT: usize = offset_of!(Connection, windows) + offset_of!(Windows, spare);
/// The bits of the phase in [`Connection::progress`].
const PHASE: u8 = 0x07;
/// The connection is counted for its inside host.
const OF_HOST: u8 = 0x08;
const FIN_SHIFT: u8 = 4;
/// TCP, until it is established: both ends have sent a SYN (simultaneous open, RFC 9293 section 3.5).
const CROSSED: u8 = 2 << FIN_SHIFT;
/// Not TCP, not answered, and the rules are asked about each packet until it is.
const NEW: u8 = 0x10;
/// The connection is counted as half open.
const HALF_OPEN: u8 = 0x40;
/// It began during a flood and has less time to open.
const HURRIED: u8 = 0x80;
/// The number of parts that the timeout of an opening connection is divided into.
pub(super) const HASTE_PARTS: u64 = 32;
/// The fewest parts that it keeps.
pub(super) const HASTE_LEFT_MIN: u64 = HASTE_PARTS / 16;

/// The bits of those parts in [`Connection::reversed`].
const HASTE: u8 = 0x3e;
/// From which side the other end answers is not known yet.
const EITHER: u8 = 0x40;
/// Both ends are on one side.
const WITHIN: u8 = 0x80;
/// These bits in [`Connection::word`].
pub(super) const SIDES_OF_ENDS: u32 = ((EITHER | WITHIN) as u32) << 24;
/// The latter of them there.
pub(super) const WITHIN_SIDE: u32 = (WITHIN as u32) << 24;

impl Connection {
    /// A connection whose first packet came from `opener`.
    pub(super) fn open(cx: &Cx<'_>, packet: &Packet<'_>, opener: Side, segment: Option<&Segment>) -> Connection {
        let number = extensions::protocol_of(packet);
        let (phase, mut windows) = match segment {
            None => (Phase::Asked, Windows::UNKNOWN),
            Some(segment) if is_opening(segment.flags) => (Phase::Asked, Windows::begin(packet, segment)),
            Some(_) => (Phase::Established, Windows::UNKNOWN),
        };
        if number == protocol::SCTP {
            windows.set_association(Association::begin(packet).unwrap_or_else(|| Association::picked_up(packet)));
        }
        Connection {
            windows,
            opener: opener as u8,
            reversed: cx.reversed().into(),
            protocol: number,
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

    /// Marks the connection as counted half open. `left` is given if so little room is left for half-open connections
    /// that this one has to hurry: how much is left, and of how much. Its timeout is that part of
    /// [`Timeouts::hurried_ns`](timeouts::Timeouts::hurried_ns), but at least a sixteenth.
    pub(super) fn count_half_open(&mut self, left: Option<(u64, u64)>) {
        self.progress |= HALF_OPEN;
        if let Some((left, of)) = left {
            let kept = HASTE_PARTS * left / of.max(1);
            self.progress |= HURRIED;
            let taken = (HASTE_PARTS - kept.clamp(HASTE_LEFT_MIN, HASTE_PARTS)) as u8;
            self.reversed = self.reversed & !HASTE | taken << 1;
        }
    }

    /// The parts of its timeout that it keeps while it opens.
    #[inline(always)]
    pub(super) fn haste_left(&self) -> u64 {
        HASTE_PARTS - u64::from((self.reversed & HASTE) >> 1)
    }

    /// Whether it began during a flood and has not opened since.
    pub(super) fn is_hurried(&self) -> bool {
        self.progress & HURRIED != 0
    }

    /// Whether the opener's packets run against the direction of the set's key.
    pub(super) fn is_reversed(&self) -> bool {
        self.reversed & 1 != 0
    }

    /// Marks the connection as counted for its inside host.
    pub(super) fn count_for_host(&mut self) {
        self.progress |= OF_HOST;
    }

    /// Whether the connection is counted for its inside host.
    pub(super) fn is_counted_for_host(&self) -> bool {
        self.progress & OF_HOST != 0
    }

    /// Has the rules asked about each packet of the opener until it is answered. For TCP the phase implies this.
    pub(super) fn stay_new(&mut self) {
        if self.protocol != protocol::TCP {
            self.progress |= NEW;
        }
    }

    /// The conntrack state of a packet: until the connection is answered, the opener's packets are new.
    pub(super) fn state(&self, sender: Sender) -> State {
        let is_new = sender == Sender::Opener && !self.is_answered();
        if is_new { State::New } else { State::established(sender) }
    }

    /// Whether an accepted segment counts as sent. As in conntrack, a repeated SYN does not, nor does its answer.
    pub(super) fn counts(&self, flags: u8, sender: Sender) -> bool {
        match flags & SYN != 0 {
            true => sender == Sender::Answerer && self.phase() == Phase::Asked,
            false => sender == Sender::Answerer || self.is_answered(),
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

    /// Notes that the connection is no longer counted as half open.
    pub(super) fn settle(&mut self) {
        self.progress &= !(HALF_OPEN | HURRIED);
        self.reversed &= !HASTE;
    }

    /// Whether the connection awaits its confirmation.
    pub(super) fn is_opening(&self) -> bool {
        matches!(self.phase(), Phase::Asked | Phase::Answered)
    }

    /// Whether it is established and not finished by both ends; such connections are evicted last from a full table.
    pub(super) fn is_assured(&self) -> bool {
        matches!(self.phase(), Phase::Established | Phase::HalfClosed)
    }

    /// Whether a SYN would open a new connection between the same endpoints.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.phase(), Phase::Closing | Phase::Reset | Phase::Refused)
    }

    /// Whether the connection no longer exists, so that the next packet may open one.
    pub(super) fn is_gone(&self) -> bool {
        self.phase() == Phase::Gone
    }

    /// Marks the connection as no longer existing.
    pub(super) fn go(&mut self) {
        self.progress = Phase::Gone as u8;
    }

    /// Whether a packet changes nothing but windows: the fast path of nearly all packets.
    #[inline(always)]
    pub(super) fn goes_on(&mut self, packet: &Packet<'_>, sender: Sender) -> bool {
        // What a capture has cut is looked at elsewhere.
        if packet.is_short() {
            return false;
        }
        if self.protocol != protocol::TCP {
            let holds = match self.protocol {
                // The plainest packets, nearly all of them, have no extension headers.
                protocol::UDP if packet.plainest_udp().is_none() && extensions::are_in(packet) => false,
                protocol::UDP => lengths::fills_its_packet(packet),
                // Its handler compares the tag; a call with the packet here would make others dearer, too.
                protocol::SCTP => false,
                number => !extensions::are_in(packet) && lengths::leaves_room(packet, lengths::least(number)),
            };
            if !holds {
                return false;
            }
            self.answer(sender);
            return self.progress & NEW == 0;
        }
        self.progress & !OF_HOST == Phase::Established as u8
            && !extensions::are_in(packet)
            && Segment::of_present(packet)
                .is_some_and(|segment| is_steady(segment.flags) && self.windows.accept(sender as usize, &segment))
    }

    /// Whether a packet of SCTP opens an association anew, because there is none any more.
    pub(super) fn is_opened_anew(&self, packet: &Packet<'_>) -> bool {
        self.protocol == protocol::SCTP
            && (self.is_gone() || self.phase() == Phase::Reset && association::is_init(packet))
    }

    /// Notes a packet that is not TCP. False, and nothing is noted, if it is SCTP without the association's tag.
    pub(super) fn go_on_without_tcp(&mut self, packet: &Packet<'_>, sender: Sender) -> bool {
        if self.protocol != protocol::SCTP {
            self.answer(sender);
            return true;
        }
        let mut association = self.windows.association();
        let Some(course) = association.hear(packet, sender) else { return false };
        self.windows.set_association(association);
        if self.phase() != Phase::Reset {
            self.answer(sender);
        }
        if course == Course::Ends {
            self.progress = Phase::Reset as u8 | self.progress & OF_HOST;
        }
        true
    }

    /// Notes a packet that is not TCP: the first answer establishes the connection.
    #[inline(always)]
    fn answer(&mut self, sender: Sender) {
        if sender == Sender::Answerer {
            self.progress = Phase::Established as u8 | self.progress & OF_HOST;
        }
    }

    /// Whether a TCP segment may come now, by its flags, as in conntrack's table of states. Until there is an answer the opener can only repeat
    /// its SYN or give up, and the other end has nothing to finish: otherwise the opener could by itself make a connection look open, or
    /// closed. Later the opener has no SYN to answer, and the other end none to send.
    pub(super) fn expects(&self, flags: u8, sender: Sender) -> bool {
        let (is_syn, is_answer) = (flags & (SYN | ACK) == SYN, flags & (SYN | ACK) == SYN | ACK);
        match (self.phase(), sender) {
            _ if flags & RST != 0 => true,
            (Phase::Asked, Sender::Opener) => is_syn || is_answer && self.is_crossed(),
            (Phase::Asked, Sender::Answerer) => flags & SYN != 0 || flags & FIN == 0,
            (Phase::Answered, Sender::Opener) => true,
            (Phase::Refused, Sender::Answerer) => !is_syn,
            (_, Sender::Opener) => !is_answer,
            (_, Sender::Answerer) => !is_syn,
        }
    }

    /// Whether a TCP segment that may come passes and changes nothing, whatever its numbers are: they may be right, and what is known of
    /// the connection wrong. A SYN of the opener within a connection, a repeated answer to a SYN, and an acknowledgement instead of an answer
    /// ask the receiver whether it knows better; it challenges or resets (RFC 9293 section 3.5.1, RFC 5961 section 4).
    pub(super) fn ignores(&self, flags: u8, sender: Sender) -> bool {
        match (self.phase(), sender) {
            _ if flags & RST != 0 => false,
            (Phase::Asked, Sender::Answerer) => flags & (SYN | ACK) == ACK,
            (Phase::Asked, Sender::Opener) | (Phase::Refused, _) => false,
            (_, Sender::Opener) => flags & (SYN | ACK) == SYN,
            // With simultaneous open both SYNs are answered.
            (Phase::Answered, Sender::Answerer) if self.is_crossed() => false,
            (_, Sender::Answerer) => flags & SYN != 0,
        }
    }

    /// Its ends have begun anew: the opener by a SYN that was ignored, the other by answering it. The answer is to come.
    pub(super) fn reopen(&mut self, reopening: &Reopening) {
        self.windows.reopen(reopening);
        self.progress = Phase::Answered as u8 | self.progress & (HALF_OPEN | HURRIED | OF_HOST);
    }

    /// Goes on with a TCP segment.
    pub(super) fn advance(&mut self, flags: u8, sender: Sender) {
        let mut crossed = if self.is_crossed() { CROSSED } else { 0 };
        let mut finished = if self.is_opening() { 0 } else { self.progress >> FIN_SHIFT & 3 };
        if flags & FIN != 0 {
            finished |= 1 << sender as u8;
        }
        let phase = match (self.phase(), sender) {
            (Phase::Asked | Phase::Answered | Phase::Refused, _) if flags & RST != 0 => Phase::Refused,
            _ if flags & RST != 0 => Phase::Reset,
            // It was never established: only the other end can show that it is.
            (Phase::Refused, Sender::Opener) => Phase::Refused,
            _ if finished == 3 => Phase::Closing,
            _ if flags & FIN != 0 => Phase::HalfClosed,
            (Phase::Asked, Sender::Answerer) if flags & (SYN | ACK) == SYN => {
                crossed = CROSSED;
                Phase::Asked
            }
            (Phase::Asked | Phase::Refused, Sender::Answerer) if flags & SYN != 0 => Phase::Answered,
            // Both SYNs have crossed, and so do both answers.
            (Phase::Asked, Sender::Opener) if flags & ACK != 0 => Phase::Answered,
            (Phase::Answered, Sender::Opener) if flags & (SYN | ACK) == ACK => Phase::Established,
            (Phase::Answered, Sender::Answerer) if crossed != 0 && flags & ACK != 0 => Phase::Established,
            // The reset was forged or out of the window: the ends go on.
            (Phase::Reset | Phase::Refused, _) if flags & ACK != 0 => Phase::Established,
            (phase, _) => phase,
        };
        let ways = if matches!(phase, Phase::Asked | Phase::Answered) { crossed } else { finished << FIN_SHIFT };
        self.progress = phase as u8 | ways | self.progress & (HALF_OPEN | HURRIED | OF_HOST);
    }

    /// The side that the packets of an end come from, as a number.
    pub(super) fn side_of(&self, sender: Sender) -> u8 {
        (self.opener ^ u8::from(sender == Sender::Answerer && self.reversed & WITHIN == 0)) & 1
    }

    /// Whether packets of an end may come from a side.
    pub(super) fn comes_from(&self, side: Side, sender: Sender) -> bool {
        side as u8 == self.side_of(sender) || sender == Sender::Answerer && self.reversed & EITHER != 0
    }

    /// The side under which an end is known in [`Ends`]: the opener under its own, the other end under the other side even if both
    /// are on one.
    pub(super) fn known_as(&self, end: Sender) -> Side {
        if (self.opener & 1 == Side::Inside as u8) == (end == Sender::Opener) { Side::Inside } else { Side::Outside }
    }

    /// Notes from which side the answers come.
    pub(super) fn expect_answers(&mut self, answers: Answers) {
        let bits = match answers {
            Answers::Across => 0,
            Answers::Within => WITHIN,
            Answers::Either => EITHER,
        };
        self.reversed = self.reversed & !(EITHER | WITHIN) | bits;
    }

    /// Notes that a packet has come from a side: the first answer shows where the other end is.
    pub(super) fn learn_side(&mut self, side: Side, sender: Sender) {
        if sender == Sender::Answerer && self.reversed & EITHER != 0 {
            let is_within = side as u8 == self.side_of(Sender::Opener);
            self.expect_answers(if is_within { Answers::Within } else { Answers::Across });
        }
    }

    /// Whether its ends are on two sides.
    pub(super) fn is_across(&self) -> bool {
        self.reversed & (EITHER | WITHIN) == 0
    }

    /// The word that packets in steady state are compared with: `reversed` in the highest byte, below it the opener's
    /// side and the permit.
    #[inline(always)]
    pub(super) fn word(&self) -> u32 {
        const { assert!(offset_of!(Connection, opener) == PERMIT + 2 && offset_of!(Connection, reversed) == PERMIT + 3) };
        let bytes = self.as_bytes();
        u32::from_le_bytes([bytes[PERMIT], bytes[PERMIT + 1], bytes[PERMIT + 2], bytes[PERMIT + 3]])
    }

    /// The stored decision of the rules, and which rules made it.
    pub(super) fn permit(&self) -> Permit {
        let [low, high] = self.windows.spare;
        Permit::of_bytes([low, high, self.opener])
    }

    /// Stores the decision of the rules.
    pub(super) fn set_permit(&mut self, permit: Permit) {
        let [low, high, opener] = permit.beside(self.opener);
        self.windows.spare = [low, high];
        self.opener = opener;
    }

    /// The endpoints by side, from the key of the set.
    pub(super) fn ends(&self, key: &SetKey) -> Option<Ends> {
        let tuple = key.five_tuple()?;
        let source = (tuple.src_ip, tuple.src_port);
        let destination = (tuple.dst_ip, tuple.dst_port);
        let from_inside = (self.known_as(Sender::Opener) == Side::Inside) != self.is_reversed();
        Some(Ends::new(from_inside, source, destination, tuple.protocol))
    }
}

/// Whether a segment with these flags merely continues its connection.
#[inline(always)]
pub(super) const fn is_steady(flags: u8) -> bool {
    flags & (SYN | FIN | RST | ACK) == ACK
}

/// Whether standard-conforming TCP sends this combination of control bits; all others are scans (the list of Linux's
/// `tcp_valid_flags`). PSH and the bits of congestion notification are ignored.
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

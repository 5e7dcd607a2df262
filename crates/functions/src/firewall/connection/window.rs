//! TCP windows: whether a segment can belong to the connection that it claims (Guido van Rooij, "Real Stateful TCP Packet
//! Filtering in IP Filter", 2001; with the additions of Linux's `tcp_in_window`).
//!
//! Of each end is known what it has sent at most, what it was allowed to send at most, and the widest window that it has
//! offered. A segment fits if it
//!
//! - begins within what the receiver allows,
//! - ends not before what the receiver may still be waiting for, and
//! - acknowledges nothing that was not sent, and nothing that is older than a window.
//!
//! What is older in either way, or goes beyond the window by less than another one, passes and is not believed
//! ([`Windows::tolerates`]).
//!
//! Out of scope: selective acknowledgements, by which Linux widens what is allowed. Without them the check rejects no
//! segment that a standard-conforming TCP sends.

use braid_nf::packet::headers::tcp_flags::{ACK, FIN, RST, SYN};
use braid_nf::packet::headers::{Header, Ipv4, Ipv6, Tcp, TcpOption};
use braid_nf::prelude::*;

use super::association::Association;
use crate::parts::tables::aged::Stamp;

/// What one end has sent and been allowed to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(in crate::firewall) struct Sender {
    /// The sequence number after the last one it has sent.
    end: u32,
    /// The sequence number after the last one that its peer has room for.
    end_max: u32,
    /// The widest window that it has offered, at least 1; 0: it has sent nothing.
    window_max: u32,
}

impl Sender {
    /// An end that has sent its SYN, up to this number, with this window.
    fn begin(end: u32, window: u32) -> Sender {
        Sender { end, end_max: end, window_max: window.max(1) }
    }
}

/// Both ends; the opener has index 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(in crate::firewall) struct Windows {
    senders: [Sender; 2],
    /// The window scales (RFC 7323 section 2).
    shifts: [u8; 2],
    /// Not about windows: storage for the connection's [`Permit`](super::permit::Permit).
    pub(in crate::firewall) spare: [u8; 2],
}

/// The end has not offered to scale its window.
const NO_SHIFT: u8 = 0x80;
/// The connection was first seen after its handshake, so scales and windows are unknown.
const UNKNOWN: u8 = 0xff;
/// How far behind an acknowledgement may be and still be accepted, in bytes (Linux's `MAXACKWINCONST`).
const OLD_MAX: u32 = 66_000;

/// The fields of a segment that the check uses.
#[derive(Clone, Copy, Debug)]
pub(in crate::firewall) struct Segment {
    pub(in crate::firewall) flags: u8,
    sequence: u32,
    acknowledgement: u32,
    /// Length of the data in bytes, plus one each for SYN and FIN.
    len: u32,
    window: u32,
}

impl Segment {
    /// The segment of a TCP packet that is not a later fragment; `None` if the header is truncated, its length is too small, or the packet
    /// claims more bytes than its frame had.
    pub(in crate::firewall) fn of(packet: &Packet<'_>) -> Option<Segment> {
        Segment::at(packet, packet.l4_offset().filter(|_| !packet.is_truncated())?)
    }

    /// The same, but `None` also if a capture has cut the packet: without a call that would take the packet out of its registers.
    #[inline(always)]
    pub(in crate::firewall) fn of_present(packet: &Packet<'_>) -> Option<Segment> {
        Segment::at(packet, packet.l4_offset_if_present()?)
    }

    #[inline(always)]
    fn at(packet: &Packet<'_>, l4: usize) -> Option<Segment> {
        let l3 = packet.record().l3 as usize;
        let ip: &[u8; Ipv4::LEN] = packet.bytes().get(l3..)?.first_chunk()?;
        let tcp: &[u8; Tcp::LEN] = packet.bytes().get(l4..)?.first_chunk()?;
        // Lengths come from the headers, because a capture may hold fewer bytes.
        let promised = if ip[0] >> 4 == 4 {
            usize::from(u16::from_be_bytes([ip[2], ip[3]]))
        } else {
            usize::from(u16::from_be_bytes([ip[4], ip[5]])) + Ipv6::LEN
        };
        if tcp[12] >> 4 < 5 {
            return None;
        }
        let data = promised.checked_sub(l4 - l3 + usize::from(tcp[12] >> 4) * 4)? as u32;
        let word = |at: usize| u32::from_be_bytes([tcp[at], tcp[at + 1], tcp[at + 2], tcp[at + 3]]);
        let flags = tcp[13];
        Some(Segment {
            flags,
            sequence: word(4),
            acknowledgement: word(8),
            len: data + u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0),
            window: u16::from_be_bytes([tcp[14], tcp[15]]).into(),
        })
    }

    fn end(&self) -> u32 {
        self.sequence.wrapping_add(self.len)
    }
}

/// A SYN of the opener within a connection. If it is answered both ends have begun anew, and what is known of the connection is outdated
/// (both have restarted, or the end of the old connection was not seen).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(in crate::firewall) struct Reopening {
    seen_ns: u64,
    /// The sequence number after the SYN.
    end: u32,
    window: u16,
    shift: u8,
    zero: u8,
}

impl Reopening {
    pub(in crate::firewall) fn of(packet: &Packet<'_>, segment: &Segment, now_ns: u64) -> Reopening {
        let window = segment.window.min(u16::MAX.into()) as u16;
        Reopening { seen_ns: now_ns, end: segment.end(), window, shift: offered_shift(packet), zero: 0 }
    }

    /// Whether a segment of the other end is about this SYN: accepts or refuses it.
    pub(in crate::firewall) fn is_answered_by(&self, segment: &Segment) -> bool {
        segment.flags & ACK != 0 && segment.acknowledgement == self.end
    }
}

impl Stamp for Reopening {
    fn seen_ns(&self) -> u64 {
        self.seen_ns
    }
}

impl Windows {
    /// The windows of a connection whose first segment was not seen: everything fits.
    pub(in crate::firewall) const UNKNOWN: Windows =
        Windows { senders: [Sender { end: 0, end_max: 0, window_max: 0 }; 2], shifts: [UNKNOWN; 2], spare: [0; 2] };

    /// The windows of a connection that begins with this SYN.
    pub(in crate::firewall) fn begin(packet: &Packet<'_>, segment: &Segment) -> Windows {
        let mut windows = Windows::default();
        windows.introduce(0, packet, segment);
        windows
    }

    /// The place of the senders, for an association of SCTP.
    pub(super) fn association(&self) -> Association {
        zerocopy::transmute!(self.senders)
    }

    /// Replaces the association there.
    pub(super) fn set_association(&mut self, association: Association) {
        self.senders = zerocopy::transmute!(association);
    }

    /// From now on everything fits.
    pub(in crate::firewall) fn forget(&mut self) {
        *self = Windows { spare: self.spare, ..Windows::UNKNOWN };
    }

    /// Of a connection that its opener has begun anew; its answer is to come.
    pub(in crate::firewall) fn reopen(&mut self, reopening: &Reopening) {
        let &Reopening { end, window, shift, .. } = reopening;
        let opener = Sender::begin(end, window.into());
        *self = Windows { senders: [opener, Sender::default()], shifts: [shift, 0], spare: self.spare };
    }

    /// Whether a SYN of the opener is one that it has sent before: its number is one of the last that the opener has used.
    pub(in crate::firewall) fn is_repeated(&self, segment: &Segment) -> bool {
        let [opener, other] = self.senders;
        let is_known = self.shifts[0] != UNKNOWN && opener.window_max != 0;
        is_known && opener.end.wrapping_sub(segment.end()) <= other.window_max.max(OLD_MAX)
    }

    /// Whether a segment without SYN fits; if it does, what it says is taken in.
    #[inline(always)]
    pub(in crate::firewall) fn accept(&mut self, from: usize, segment: &Segment) -> bool {
        let (from, to) = (from & 1, from & 1 ^ 1);
        if self.shifts[from] == UNKNOWN {
            return true;
        }
        let (sender, receiver) = (self.senders[from], self.senders[to]);
        let acknowledged = if segment.flags & ACK != 0 { segment.acknowledgement } else { receiver.end };
        if sender.window_max == 0 {
            return segment.flags & RST != 0 && refuses(acknowledged, receiver.end);
        }
        if receiver.window_max == 0 {
            // It withdraws its SYN, or rejects what its peer remembers of an earlier connection, with sequence numbers of
            // that connection.
            return true;
        }
        let (begin, end) = (segment.sequence, segment.end());
        let oldest = receiver.end.wrapping_sub(sender.window_max.max(OLD_MAX));
        let fits = !is_after(begin, sender.end_max)
            && !is_after(sender.end.wrapping_sub(receiver.window_max), end)
            && !is_after(acknowledged, receiver.end)
            && !is_after(oldest, acknowledged);
        if !fits {
            return false;
        }
        let window = segment.window << (self.shifts[from] & 15);
        let sender = &mut self.senders[from];
        sender.window_max = sender.window_max.max(window);
        sender.end = later(sender.end, end);
        // Only an acknowledgement says what its sender has room for; a reset may have none.
        if segment.flags & ACK != 0 {
            let receiver = &mut self.senders[to];
            receiver.end_max = later(receiver.end_max, acknowledged.wrapping_add(window.max(1)));
        }
        true
    }

    /// Returns whether a segment is a reset that begins before what its receiver has acknowledged. The receiver silently ignores it (RFC 9293
    /// section 3.10.7.4, RFC 5961 section 3.2), so the connection continues although no packet shows that.
    #[cold]
    pub(in crate::firewall) fn is_reset_from_before(&self, from: usize, segment: &Segment) -> bool {
        let (sender, receiver) = (self.senders[from & 1], self.senders[from & 1 ^ 1]);
        let is_known = self.shifts[from & 1] != UNKNOWN && sender.window_max != 0 && receiver.window_max != 0;
        // At most that: it has offered no wider window.
        let acknowledged = sender.end_max.wrapping_sub(receiver.window_max);
        segment.flags & RST != 0 && is_known && is_after(acknowledged, segment.sequence)
    }

    /// Whether a segment without SYN that does not fit passes all the same, as in Linux (`NFCT_TCP_IGNORE`, since 5.19), although nothing that it
    /// says is believed. It is merely late: all of it had been acknowledged, or it acknowledges what is older than a window. Or it begins
    /// beyond the window by less than a window: not all senders keep to it, and if it is acknowledged it was right.
    #[cold]
    pub(in crate::firewall) fn tolerates(&mut self, from: usize, segment: &Segment) -> bool {
        let (from, to) = (from & 1, from & 1 ^ 1);
        let (sender, receiver) = (self.senders[from], self.senders[to]);
        let (is_reset, has_ack) = (segment.flags & RST != 0, segment.flags & ACK != 0);
        let oldest = receiver.end.wrapping_sub(sender.window_max.max(OLD_MAX));
        let is_old = has_ack && is_after(oldest, segment.acknowledgement);
        if sender.window_max == 0 {
            return is_reset && is_old;
        }
        if has_ack && is_after(segment.acknowledgement, receiver.end) {
            return false;
        }
        let (begin, end) = (segment.sequence, segment.end());
        let was_acknowledged = is_after(sender.end.wrapping_sub(receiver.window_max), end);
        if is_after(begin, sender.end_max) {
            let beyond = end.wrapping_sub(sender.end_max).wrapping_add(1);
            let is_near = beyond <= receiver.window_max && !was_acknowledged && !is_old;
            if is_near {
                self.senders[from].end = end;
            }
            return is_near;
        }
        // A reset from there would end what goes on.
        if was_acknowledged { !is_reset } else { is_old }
    }

    /// The counterpart of [`accept`](Self::accept) for a segment with SYN while the connection opens.
    #[cold]
    pub(in crate::firewall) fn synchronise(
        &mut self,
        from: usize,
        packet: &Packet<'_>,
        segment: &Segment,
        is_asked: bool,
    ) -> bool {
        let (from, to) = (from & 1, from & 1 ^ 1);
        if self.shifts[from] == UNKNOWN {
            return true;
        }
        let receiver = self.senders[to];
        if segment.flags & ACK != 0 {
            // Data in the SYN need not be acknowledged (RFC 7413).
            let oldest = receiver.end.wrapping_sub(OLD_MAX);
            if is_after(segment.acknowledgement, receiver.end) || is_after(oldest, segment.acknowledgement) {
                return false;
            }
        }
        let is_known = self.senders[from].window_max != 0 && self.senders[from].end == segment.end();
        if !is_known && !is_asked && self.senders[from].window_max != 0 {
            return false;
        }
        if !is_known {
            self.introduce(from, packet, segment);
        }
        if segment.flags & ACK != 0 {
            if self.shifts.contains(&NO_SHIFT) {
                self.shifts = [0; 2];
            }
            // The window of a SYN is never scaled.
            let allowed = segment.acknowledgement.wrapping_add(segment.window.max(1));
            self.senders[to].end_max = later(self.senders[to].end_max, allowed);
        }
        true
    }

    fn introduce(&mut self, from: usize, packet: &Packet<'_>, segment: &Segment) {
        self.senders[from] = Sender::begin(segment.end(), segment.window);
        self.shifts[from] = offered_shift(packet);
    }
}

/// By how much a SYN offers to shift windows (RFC 7323 section 2.3: more than 14 means 14).
fn offered_shift(packet: &Packet<'_>) -> u8 {
    let offered = packet.tcp().and_then(|tcp| {
        tcp.options().find_map(|option| if let TcpOption::WindowScale(shift) = option { Some(shift) } else { None })
    });
    offered.map_or(NO_SHIFT, |shift| shift.min(14))
}

/// Whether a reset of an end that has not sent its SYN yet refuses that of its peer, which has sent numbers below `sent`.
#[cold]
fn refuses(acknowledged: u32, sent: u32) -> bool {
    // Some write no number into a reset that claims to have one; answers to keep-alives are one ahead.
    acknowledged == 0
        || !is_after(acknowledged, sent.wrapping_add(1)) && !is_after(sent.wrapping_sub(OLD_MAX), acknowledged)
}

/// Whether sequence number `a` is after `b` (RFC 9293 section 3.4).
#[inline(always)]
fn is_after(a: u32, b: u32) -> bool {
    (b.wrapping_sub(a) as i32) < 0
}

#[inline(always)]
fn later(a: u32, b: u32) -> u32 {
    if is_after(b, a) { b } else { a }
}

//! One connection: its owner, its stage, and its idle timeout.

use braid_nf::packet::IpAddress;
use braid_nf::packet::headers::tcp_flags::{ACK, FIN, RST, SYN};
use braid_nf::prelude::*;

/// How long connections count without a packet, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Until both ends have confirmed it.
    pub opening_ns: u64,
    /// While it is open.
    pub tcp_ns: u64,
    /// After it was closed or reset.
    pub closing_ns: u64,
    /// After its opener alone has ended it, with a reset.
    pub reset_ns: u64,
    /// UDP.
    pub udp_ns: u64,
}

braid_nf::plain!(Timeouts);

/// What has been seen of a connection, as bits.
mod seen {
    pub const TCP: u8 = 1;
    /// The other end has answered.
    pub const ANSWER: u8 = 2;
    /// The opener has continued after the answer.
    pub const CONFIRMED: u8 = 4;
    pub const FIN: u8 = 8;
    pub const OTHER_FIN: u8 = 16;
    pub const CLOSED: u8 = FIN | OTHER_FIN;
    pub const RESET: u8 = 32;
    /// The opener has reset it while it was open, and the other end has not ended it.
    pub const BY_OPENER: u8 = 64;
}

/// The state of a connection's packet set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Connection {
    /// The owner for which it is counted.
    pub(super) owner: IpAddress,
    /// 1 if it is counted; 0 if there was no room to count it, or both ends have closed it.
    pub(super) counted: u8,
    seen: u8,
    /// Whether the opener sends against the direction of the set's key.
    opener_reversed: u8,
    unused: [u8; 5],
}

/// Whether a packet without a known connection opens one for its sender. A connection older than this function begins
/// with its next packet; a reset, a FIN or the answer to a SYN that nobody saw ends or continues one, if anything.
pub fn opens(packet: &Packet<'_>) -> bool {
    packet.tcp_flags().is_none_or(|flags| flags & (RST | FIN) == 0 && flags & (SYN | ACK) != SYN | ACK)
}

impl Connection {
    /// A connection that the sender of this packet opens.
    pub fn begin(owner: IpAddress, packet: &Packet<'_>, reversed: bool) -> Connection {
        let seen = if packet.tcp_flags().is_some() { seen::TCP } else { 0 };
        Connection { owner, counted: 1, seen, opener_reversed: reversed.into(), unused: [0; 5] }
    }

    /// Notes a further packet.
    #[inline]
    pub fn note(&mut self, packet: &Packet<'_>, reversed: bool) {
        let by_opener = u8::from(reversed) == self.opener_reversed;
        let Some(flags) = packet.tcp_flags() else {
            self.seen |= if by_opener { 0 } else { seen::ANSWER };
            return;
        };
        if flags & (RST | FIN) != 0 {
            self.note_end(packet, flags, by_opener);
        }
        if !by_opener {
            self.seen |= seen::ANSWER;
        } else if flags & SYN == 0 && self.seen & seen::ANSWER != 0 {
            self.seen |= seen::CONFIRMED;
        }
    }

    /// Notes a FIN or a reset. A damaged reset ends nothing.
    fn note_end(&mut self, packet: &Packet<'_>, flags: u8, by_opener: bool) {
        if flags & RST == 0 {
            self.seen |= if by_opener { seen::FIN } else { seen::OTHER_FIN };
        } else if !packet.checksums_ok() {
            return;
        } else {
            let is_open = self.is_assured() && self.seen & seen::OTHER_FIN == 0;
            self.seen |= seen::RESET | if by_opener && is_open { seen::BY_OPENER } else { 0 };
        }
        if !by_opener {
            self.seen &= !seen::BY_OPENER;
        }
    }

    /// Whether both ends have closed the connection, or one has reset it.
    pub fn is_over(&self) -> bool {
        self.seen & seen::RESET != 0 || self.is_closed()
    }

    fn is_closed(&self) -> bool {
        self.seen & seen::CLOSED == seen::CLOSED
    }

    /// Whether both ends have closed the connection and it is still counted. After a reset it is: its receiver need not have accepted that.
    #[inline(always)]
    pub fn counts_although_closed(&self) -> bool {
        self.counted != 0 && self.is_closed() && self.seen & seen::RESET == 0
    }

    /// Whether both ends have confirmed the connection (UDP: whether it was answered) and it has not ended.
    pub fn is_assured(&self) -> bool {
        let needed = if self.seen & seen::TCP == 0 { seen::ANSWER } else { seen::CONFIRMED };
        self.seen & needed != 0 && !self.is_over()
    }

    /// The idle timeout in the current stage.
    pub fn timeout_ns(&self, timeouts: &Timeouts) -> u64 {
        if self.seen & seen::TCP == 0 {
            timeouts.udp_ns
        } else if self.seen & seen::BY_OPENER != 0 {
            timeouts.reset_ns
        } else if self.is_over() {
            timeouts.closing_ns
        } else if self.seen & seen::CONFIRMED == 0 {
            timeouts.opening_ns
        } else {
            timeouts.tcp_ns
        }
    }
}

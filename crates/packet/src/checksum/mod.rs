//! The Internet checksum (RFC 1071), its incremental update (RFC 1624), pseudo headers, and UDP's treatment of zero.
//!
//! All sums are computed over 16-bit words in network order with 64-bit accumulators, folded once at the end.

use crate::address::IpAddress;

/// A ones' complement sum that has not been folded yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum(u64);

impl Sum {
    /// Adds bytes that begin at an even offset; an odd last byte is padded with zero.
    #[inline]
    pub fn add_bytes(mut self, bytes: &[u8]) -> Sum {
        let (words, rest) = bytes.as_chunks::<4>();
        for word in words {
            self.0 += u64::from(u32::from_be_bytes(*word));
        }
        self.0 += match *rest {
            [a] => u64::from(a) << 24,
            [a, b] => u64::from(u16::from_be_bytes([a, b])) << 16,
            [a, b, c] => u64::from(u32::from_be_bytes([a, b, c, 0])),
            _ => 0,
        };
        self
    }

    /// Adds one 16-bit word.
    #[inline(always)]
    pub fn add_u16(self, word: u16) -> Sum {
        Sum(self.0 + u64::from(word))
    }

    /// Returns the sum folded to 16 bits.
    #[inline(always)]
    pub fn fold(self) -> u16 {
        // Adding a number to itself with its halves exchanged puts the sum of the halves into both halves, and carries from
        // the lower half into the upper one: the end-around carry.
        let sum = (self.0.wrapping_add(self.0.rotate_left(32)) >> 32) as u32;
        (sum.wrapping_add(sum.rotate_left(16)) >> 16) as u16
    }

    /// Returns the checksum: the complement of the sum.
    #[inline(always)]
    pub fn checksum(self) -> u16 {
        !self.fold()
    }
}

/// What an edit adds to a ones' complement sum. It is collected over all words that the edit replaces and then applied to
/// each checksum that covers them (RFC 1624 equation 3, which yields no wrong zero).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change(u64);

impl Change {
    /// No change.
    pub const NONE: Change = Change(0);

    /// Adds the replacement of one word at an even offset.
    #[inline(always)]
    pub fn u16(self, old: u16, new: u16) -> Change {
        Change(self.0 + u64::from(!old) + u64::from(new))
    }

    /// Adds the replacement of four bytes at an even offset.
    #[inline(always)]
    pub fn u32(self, old: u32, new: u32) -> Change {
        Change(self.0 + u64::from(!old) + u64::from(new))
    }

    /// Adds the replacement of bytes at an even offset by the same number of bytes; an odd last byte is the upper half of its word.
    #[inline]
    pub fn bytes(self, old: &[u8], new: &[u8]) -> Change {
        debug_assert_eq!(old.len(), new.len());
        // Subtracting equals adding the complement of the folded sum.
        self.u16(Sum::default().add_bytes(old).fold(), Sum::default().add_bytes(new).fold())
    }

    /// Combines two changes.
    #[inline(always)]
    pub fn and(self, other: Change) -> Change {
        Change(self.0 + other.0)
    }

    /// Returns the checksum after the change, given the one before: right if that was right, wrong if it was wrong.
    #[inline(always)]
    pub fn apply(self, checksum: u16) -> u16 {
        Sum(self.0 + u64::from(!checksum)).checksum()
    }

    /// Like [`apply`](Self::apply), for UDP: zero means that there is no checksum and stays, and a computed zero is sent as
    /// all ones (RFC 768).
    #[inline(always)]
    pub fn apply_udp(self, checksum: u16) -> u16 {
        if checksum == 0 { 0 } else { udp_zero(self.apply(checksum)) }
    }
}

/// A [`Change`] in one 16-bit word. Applying it to a checksum costs one addition and its carry. A ones' complement sum has
/// two zeroes, and the added words alone determine which one results, so both forms yield the same checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortChange(u16);

impl ShortChange {
    /// Creates the change of replacing four bytes at an even offset.
    #[inline(always)]
    pub fn of_u32(old: u32, new: u32) -> ShortChange {
        let (sum, carry) = (!old).overflowing_add(new);
        let sum = sum + u32::from(carry);
        ShortChange(add(sum as u16, (sum >> 16) as u16))
    }

    /// Adds the replacement of four more bytes at an even offset.
    #[inline(always)]
    pub fn u32(self, old: u32, new: u32) -> ShortChange {
        ShortChange(add(self.0, ShortChange::of_u32(old, new).0))
    }

    /// Adds the replacement of one word at an even offset.
    #[inline(always)]
    pub fn u16(self, old: u16, new: u16) -> ShortChange {
        ShortChange(add(add(self.0, !old), new))
    }

    /// Adds the decrease of a word by `by`; the word must have been at least that, and need not be read.
    #[inline(always)]
    pub fn sunk(self, by: u16) -> ShortChange {
        self.u16(by, 0)
    }

    /// Like [`Change::apply`]: adding to the complement of a number equals subtracting from the number.
    #[inline(always)]
    pub fn apply(self, checksum: u16) -> u16 {
        let (difference, borrow) = checksum.overflowing_sub(self.0);
        // After a borrow the difference is at least 1.
        difference - u16::from(borrow)
    }

    /// Like [`Change::apply_udp`].
    #[inline(always)]
    pub fn apply_udp(self, checksum: u16) -> u16 {
        if checksum == 0 { 0 } else { udp_zero(self.apply(checksum)) }
    }
}

/// The sum of two words in one's complement: its carry comes back at its end.
#[inline(always)]
pub fn add(a: u16, b: u16) -> u16 {
    let (sum, carry) = a.overflowing_add(b);
    // After a carry the sum is at most 0xfffe.
    sum + u16::from(carry)
}

/// Returns a computed UDP checksum in the form in which it is sent: zero would mean that there is none.
#[inline(always)]
pub fn udp_zero(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
}

/// Computes the checksum of an IPv4 header; the checksum field must be zero. To verify, include the field and expect 0.
#[inline]
pub fn ipv4_header(header: &[u8]) -> u16 {
    Sum::default().add_bytes(header).checksum()
}

/// Returns whether an IPv4 header, including options, has the right checksum.
#[inline]
pub fn ipv4_header_ok(header: &[u8]) -> bool {
    ipv4_header(header) == 0
}

/// Returns the sum of the pseudo header: of IPv4 (RFC 9293 section 3.1) or IPv6 (RFC 8200 section 8.1), by the family of the
/// addresses. `length` is the length of transport header and payload in bytes.
#[inline]
pub fn pseudo_header(source: IpAddress, destination: IpAddress, protocol: u8, length: u32) -> Sum {
    let sum = match (source.v4(), destination.v4()) {
        (Some(source), Some(destination)) => Sum::default().add_bytes(&source).add_bytes(&destination),
        _ => Sum::default().add_bytes(&source.octets()).add_bytes(&destination.octets()),
    };
    sum.add_u16((length >> 16) as u16).add_u16(length as u16).add_u16(u16::from(protocol))
}

/// Computes the checksum of a TCP, UDP or ICMPv6 message with its pseudo header; the checksum field in `segment` must be
/// zero. For UDP, pass the result through [`udp_zero`]. To verify, include the field and expect 0.
#[inline]
pub fn transport(source: IpAddress, destination: IpAddress, protocol: u8, segment: &[u8]) -> u16 {
    pseudo_header(source, destination, protocol, segment.len() as u32).add_bytes(segment).checksum()
}

/// Returns whether a TCP, UDP or ICMPv6 message has the right checksum. The caller must handle a UDP checksum of zero, which
/// means that there is none.
#[inline]
pub fn transport_ok(source: IpAddress, destination: IpAddress, protocol: u8, segment: &[u8]) -> bool {
    transport(source, destination, protocol, segment) == 0
}

#[cfg(test)]
mod tests;

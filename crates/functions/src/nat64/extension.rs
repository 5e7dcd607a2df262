//! What follows the packet that an ICMP error quotes: extensions such as the MPLS labels that traceroute shows (RFC 4884).
//!
//! They go along as they are, and the length of what is quoted before them is said anew (RFC 7915 sections 4.2 and 5.2), in words of
//! four bytes over IPv4 and of eight over IPv6. If both do not fit, the quoted packet is shortened first, to no less than 128 bytes;
//! an extension is never cut. An error that is of a type without extensions in the other version goes without.

use braid_nf::packet::IpVersion;
use braid_nf::packet::headers::{icmp_type, icmpv6_type};

use super::errors::ICMP_LEN;

/// Least bytes of the quoted packet before an extension, padding included (RFC 4884 section 4).
const QUOTED_MIN: usize = 128;

/// Where, as a shift of the four bytes behind the checksum, an error of this type says the length of what it quotes, and its unit in
/// bytes. In a Packet Too Big the word is the MTU, and in a Parameter Problem of version 6 a pointer.
fn length_field(kind: u8, version: IpVersion) -> Option<(u32, usize)> {
    let v4_types = [icmp_type::UNREACHABLE, icmp_type::TIME_EXCEEDED, icmp_type::PARAMETER_PROBLEM];
    let v6_types = [icmpv6_type::UNREACHABLE, icmpv6_type::TIME_EXCEEDED];
    match version {
        IpVersion::V4 => v4_types.contains(&kind).then_some((16, 4)),
        IpVersion::V6 => v6_types.contains(&kind).then_some((24, 8)),
    }
}

/// What a message quotes, and the extension behind it; empty if there is none.
pub(super) fn split(message: &[u8], version: IpVersion) -> Option<(&[u8], &[u8])> {
    let [kind, _, _, _, word @ ..] = *message.first_chunk::<ICMP_LEN>()?;
    let said = |(shift, unit)| (u32::from_be_bytes(word) >> shift & 0xff) as usize * unit;
    let behind = &message[ICMP_LEN..];
    let len = length_field(kind, version).map_or(0, said);
    Some(behind.split_at_checked(len).filter(|_| len > 0).unwrap_or((behind, &[])))
}

/// How a translated error is laid out behind its ICMP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Bytes of the quoted packet.
    pub(super) quoted: usize,
    /// The same with what pads it before an extension.
    pub(super) padded: usize,
    pub(super) extension: usize,
    /// What says the length, in its place in the word behind the checksum.
    pub(super) length_field: u32,
}

impl Layout {
    /// For an error of a type over IPv6 or IPv4, with a quoted packet of `datagram` bytes and an extension, in `room` bytes.
    pub(super) fn new(kind: u8, version: IpVersion, datagram: usize, extension: usize, room: usize) -> Layout {
        let place = length_field(kind, version).filter(|_| extension > 0 && extension + QUOTED_MIN <= room);
        let Some((shift, unit)) = place else {
            let quoted = datagram.min(room);
            return Layout { quoted, padded: quoted, extension: 0, length_field: 0 };
        };
        let most = ((room - extension) / unit).min(255) * unit;
        let padded = datagram.max(QUOTED_MIN).next_multiple_of(unit).min(most);
        Layout { quoted: datagram.min(padded), padded, extension, length_field: ((padded / unit) as u32) << shift }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Bytes quoted, padded and of the extension for an unreachable destination.
    #[track_caller]
    fn check(version: IpVersion, datagram: usize, extension: usize, expected: (usize, usize, usize)) {
        let (kind, header) = if version == IpVersion::V6 { (1, 48) } else { (3, 28) };
        let layout = Layout::new(kind, version, datagram, extension, 1280 - header);
        assert_eq!((layout.quoted, layout.padded, layout.extension), expected);
    }

    #[test]
    fn the_quoted_packet_is_padded_before_an_extension_and_shortened_if_both_are_too_long() {
        check(IpVersion::V6, 48, 0, (48, 48, 0));
        check(IpVersion::V6, 48, 12, (48, 128, 12));
        check(IpVersion::V6, 150, 12, (150, 152, 12));
        check(IpVersion::V4, 150, 12, (150, 152, 12));
        check(IpVersion::V4, 149, 12, (149, 152, 12));
        check(IpVersion::V6, 1232, 12, (1216, 1216, 12));
        // A byte says no more than 255 words of four.
        check(IpVersion::V4, 1252, 12, (1020, 1020, 12));
        // An extension beside which no room is left for what tells the sender which packet is meant.
        check(IpVersion::V6, 1232, 1104, (128, 128, 1104));
        check(IpVersion::V6, 1232, 1105, (1232, 1232, 0));
    }

    #[test]
    fn types_whose_word_says_something_else_have_no_extension() {
        let too_big = [2, 0, 0, 0, 0x10, 0, 5, 0x14, 0x60];
        assert_eq!(split(&too_big, IpVersion::V6).unwrap(), (&too_big[8..], &[][..]));
        assert_eq!(Layout::new(2, IpVersion::V6, 200, 12, 1232).extension, 0);
    }

    proptest! {
        /// What was laid out is found again, and never takes more than its room.
        #[test]
        fn what_is_laid_out_is_split_again(v6: bool, datagram in 28usize..1300, extension in 0usize..1300) {
            let version = IpVersion::BOTH[usize::from(v6)];
            let (kind, room) = if v6 { (3, 1232) } else { (11, 1252) };
            let layout = Layout::new(kind, version, datagram, extension, room);
            let mut message = vec![kind, 0, 0, 0];
            message.extend(layout.length_field.to_be_bytes());
            message.resize(ICMP_LEN + layout.padded, 1);
            message.resize(message.len() + layout.extension, 2);
            prop_assert!(message.len() <= ICMP_LEN + room);
            let (quoted, behind) = split(&message, version).unwrap();
            prop_assert_eq!((quoted.len(), behind.len()), (layout.padded, layout.extension));
            prop_assert!(layout.extension == 0 || layout.extension == extension && layout.padded >= QUOTED_MIN);
        }
    }
}

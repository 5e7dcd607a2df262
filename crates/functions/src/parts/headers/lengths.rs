//! Checks whether an IP packet is as long as its headers claim, and whether it fits where it is to be sent.
//!
//! Functions keep no state for packets that no end system would accept.

use braid_nf::Packet;
use braid_nf::packet::headers::{Header, Ipv4, Ipv6, Tcp};
use braid_nf::packet::parse::protocol;
use braid_nf::packet::{Flags, PLAIN};

/// Estimates the MTU of a link from the length of a packet that did not fit, for a router that reported no MTU (RFC 1191
/// section 7).
pub fn plateau_below(len: u16) -> u16 {
    const PLATEAUS: [u16; 10] = [65535, 32000, 17914, 8166, 4352, 2002, 1492, 1006, 508, 296];
    PLATEAUS.into_iter().find(|plateau| *plateau < len).unwrap_or(PLATEAUS[9])
}

/// The length of the IP packet in bytes, as its header says.
#[inline(always)]
pub fn ip_len(packet: &Packet<'_>) -> usize {
    match packet.ipv4() {
        Some(ip) => usize::from(ip.total_len()),
        None => packet.ipv6().map_or(0, |ip| Ipv6::LEN + usize::from(ip.payload_len())),
    }
}

/// Cuts off what follows an IP packet in its frame: it belongs to the link by which it came, as Linux' `ip_rcv_core` has it. Short frames
/// keep their padding.
#[inline(always)]
pub fn cut_tail(packet: &mut Packet<'_>) {
    const SHORTEST_FRAME: usize = 60;
    let end = SHORTEST_FRAME.max(usize::from(packet.record().l3) + ip_len(packet));
    if packet.len() > end {
        packet.out_of_line(|packet| packet.set_len(end));
    }
}

/// Whether an IPv4 packet is longer than `most` bytes and must not be fragmented. For a packet truncated by a capture, the
/// bytes that are left count.
#[inline(always)]
pub fn is_too_long_to_cut(packet: &mut Packet<'_>, most: u16) -> bool {
    packet.len() > usize::from(packet.record().l3) + usize::from(most)
        && packet.out_of_line(|packet| says_too_long(packet, most))
}

/// Like [`is_too_long_to_cut`], for first packets.
pub fn is_too_long_and_whole(packet: &Packet<'_>, most: u16) -> bool {
    packet.len() > usize::from(packet.record().l3) + usize::from(most) && says_too_long(packet, most)
}

/// Checks the same by the header's length, since a link may have padded the packet.
#[cold]
#[inline(never)]
fn says_too_long(packet: &Packet<'_>, most: u16) -> bool {
    packet.ipv4().is_some_and(|ip| ip.dont_fragment() && ip.total_len() > most)
}

/// Like [`hold_the_headers`], and false for fragments. For packets of known flows, most of which need only two reads.
#[inline(always)]
pub fn hold_a_whole(packet: &mut Packet<'_>) -> bool {
    packet.plain().is_some_and(|(ip, is_udp)| hold_plainly(ip, is_udp))
        || packet.out_of_line(|packet| hold_otherwise(packet))
}

/// Whether the UDP length matches the packet length, for either IP version without options or extension headers. If false, the
/// packet may still be valid; [`hold_the_headers`] decides that.
#[inline(always)]
pub fn fills_its_packet(packet: &Packet<'_>) -> bool {
    if let Some(ip) = packet.plainest_udp() {
        return fills([ip[24], ip[25]], [ip[2], ip[3]], Ipv4::LEN);
    }
    // `l4` is in words. Only an IPv4 header without options has the first value; the second belongs to IPv6 without extension
    // headers, as the flag confirms.
    const V4: u8 = (Ipv4::LEN / 4) as u8;
    const V6: u8 = (Ipv6::LEN / 4) as u8;
    match packet.record().l4 {
        _ if packet.is_truncated() => false,
        V4 => {
            packet.ip_chunk().is_some_and(|ip: &[u8; Ipv4::LEN + 8]| fills([ip[24], ip[25]], [ip[2], ip[3]], Ipv4::LEN))
        }
        V6 if packet.record().flags.has(Flags::V6) => {
            packet.ip_chunk().is_some_and(|ip: &[u8; Ipv6::LEN + 8]| hold_plainly_v6(ip, true))
        }
        _ => false,
    }
}

/// The shortest header of a protocol other than TCP and UDP, in bytes (RFC 792, RFC 4443 section 2.1, RFC 9260 section 3.1).
#[inline(always)]
pub fn least(number: u8) -> usize {
    match number {
        protocol::ICMP | protocol::ICMPV6 => 8,
        protocol::SCTP => 12,
        _ => 0,
    }
}

/// Whether a packet's length leaves room for `bytes` bytes after the IP headers.
#[inline(always)]
pub fn leaves_room(packet: &Packet<'_>, bytes: usize) -> bool {
    !packet.is_truncated() && ip_len(packet) >= usize::from(packet.record().l4) * 4 + bytes
}

/// Where the checksum of a TCP header ends.
const TCP_CHECKSUM_END: usize = 18;

/// Whether UDP's length equals the length `all` in the IP header, less `less` bytes of that header.
#[inline(always)]
fn fills(udp: [u8; 2], all: [u8; 2], less: usize) -> bool {
    let [udp, all] = [udp, all].map(|word| u32::from(u16::from_be_bytes(word)));
    udp >= 8 && udp + less as u32 == all
}

/// Like [`hold_the_headers`], for a [plain](Packet::plain) packet, as nearly all are: IPv4 without options; UDP must fill the
/// packet.
#[inline(always)]
pub fn hold_plainly(ip: &[u8; PLAIN], is_udp: bool) -> bool {
    match is_udp {
        true => fills([ip[24], ip[25]], [ip[2], ip[3]], Ipv4::LEN),
        false => ip[32] >= 0x50 && u16::from(ip[32] >> 4) * 4 + 20 <= u16::from_be_bytes([ip[2], ip[3]]),
    }
}

/// Like [`hold_plainly`], for IPv6 without extension headers; `ip` begins at the IP header.
#[inline(always)]
pub fn hold_plainly_v6(ip: &[u8], is_udp: bool) -> bool {
    match is_udp {
        true => fills([ip[44], ip[45]], [ip[4], ip[5]], 0),
        false => ip[52] >= 0x50 && u16::from(ip[52] >> 4) * 4 <= u16::from_be_bytes([ip[4], ip[5]]),
    }
}

/// Like [`hold_a_whole`], for packets that are not plain.
#[cold]
#[inline(never)]
pub fn hold_otherwise(packet: &Packet<'_>) -> bool {
    !packet.is_fragment() && hold_by_each_header(packet)
}

/// Whether the lengths of a packet leave room for the headers that it claims to have (RFC 768, RFC 792, RFC 9293 section 3.1).
/// A first fragment must contain its transport checksum, or a translator could not update it. Of later fragments only the end is checked.
/// No packet may claim more than its frame holds, unless a capture cut the frame; for that the function reads the wire length
/// ([`READS_WIRE_LEN`](crate::config::READS_WIRE_LEN)).
#[inline]
pub fn hold_the_headers(packet: &Packet<'_>) -> bool {
    packet.plain().is_some_and(|(ip, is_udp)| hold_plainly(ip, is_udp)) || hold_by_each_header(packet)
}

/// Like [`hold_the_headers`], header by header.
#[inline(never)]
fn hold_by_each_header(packet: &Packet<'_>) -> bool {
    if packet.is_truncated() {
        return false;
    }
    // Behind a chain of extension headers that is too long to follow anything may hide.
    let Some(l4) = packet.l4_offset() else {
        return !packet.is_ip() || packet.record().l4 != 0 && !reaches_beyond_any_datagram(packet);
    };
    let Some(room) = ip_len(packet).checked_sub(l4 - usize::from(packet.record().l3)) else { return false };
    match packet.protocol() {
        protocol::TCP if packet.is_fragment() => room >= TCP_CHECKSUM_END,
        protocol::UDP if packet.is_fragment() => room >= 8,
        protocol::TCP => {
            let header = packet.bytes().get(l4 + 12).map(|byte| usize::from(byte >> 4) * 4);
            header.is_some_and(|header| (Tcp::LEN..=room).contains(&header))
        }
        protocol::UDP => packet.udp().is_some_and(|udp| (8..=room).contains(&usize::from(udp.length()))),
        number => room >= least(number),
    }
}

/// Whether a later fragment ends behind the 65,535 bytes of the longest datagram (RFC 791 section 3.2, RFC 8200 section 4.5).
fn reaches_beyond_any_datagram(packet: &Packet<'_>) -> bool {
    let (begins, len) = match packet.ipv4() {
        Some(ip) => (ip.fragment_offset(), usize::from(ip.total_len())),
        None => {
            let fragment = packet.ipv6().and_then(|ip| ip.extensions().find_map(|extension| extension.fragment()));
            let headers = usize::from(packet.record().l4) * 4;
            (fragment.map_or(0, |fragment| fragment.0), ip_len(packet).saturating_sub(headers))
        }
    };
    usize::from(begins) + len > usize::from(u16::MAX)
}

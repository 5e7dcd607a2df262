//! Writes the bytes of a generated frame: Ethernet, IPv4 or IPv6, TCP, UDP or ICMP echo, with correct lengths and checksums.
//!
//! The payload begins with the number of the flow and the number of the packet in the flow, eight bytes each, so that packets can
//! be distinguished; the rest is zero, so checksums need not cover it.

use super::flow::{Flow, Transport};

pub(crate) const FIN: u8 = 0x01;
pub(crate) const SYN: u8 = 0x02;
pub(crate) const PSH: u8 = 0x08;
pub(crate) const ACK: u8 = 0x10;

/// Minimum length of an Ethernet frame without its check sequence; shorter frames are padded.
pub(crate) const FRAME_MIN: usize = 60;
const ETHERNET: usize = 14;
const IPV4: usize = 20;
/// Number of payload bytes at the beginning that are not zero.
const TAG: usize = 16;
/// Number of bytes cleared before each frame, which no headers and tag exceed.
const CLEARED: usize = 128;

/// A packet of a flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    /// Its number in the flow.
    pub(crate) index: u64,
    /// Whether it goes from client to server.
    pub(crate) forward: bool,
    pub(crate) tcp_flags: u8,
    pub(crate) sequence: u32,
    pub(crate) acknowledgement: u32,
    /// Number of bytes after the transport header.
    pub(crate) payload: usize,
}

/// Length of all headers of a flow's packets.
pub(crate) fn header_bytes(flow: &Flow) -> usize {
    let transport = if flow.transport == Transport::Tcp { 20 } else { 8 };
    ETHERNET + if flow.v6 { 40 } else { IPV4 } + transport
}

/// Writes a packet to the beginning of `room`, whose later bytes are zero and stay so. Returns the packet's length.
pub(crate) fn write(room: &mut [u8], flow: &Flow, packet: &Packet) -> usize {
    room[..CLEARED].fill(0);
    ethernet(room, flow.mac_pair, packet.forward, if flow.v6 { 0x86dd } else { 0x0800 });
    let headers = header_bytes(flow);
    let end = headers + packet.payload;
    let tag = [flow.number.to_be_bytes(), packet.index.to_be_bytes()];
    let tag_len = packet.payload.min(TAG);
    room[headers..headers + tag_len].copy_from_slice(&tag.as_flattened()[..tag_len]);
    let (transport, addresses) = if flow.v6 { ipv6(room, flow, packet, end) } else { ipv4(room, flow, packet, end) };
    let pseudo = sum(&room[addresses..transport]) + u64::from(number(flow)) + (end - transport) as u64;
    // Headers begin at even offsets. The sum may end in the middle of a word after the tag; `sum` pads it with zero.
    write_transport(&mut room[transport..headers + tag_len], flow, packet, pseudo, end - transport);
    end.max(FRAME_MIN)
}

fn ethernet(room: &mut [u8], pair: u32, forward: bool, kind: u16) {
    let [client, server] = mac_addresses(pair);
    let (from, to) = if forward { (client, server) } else { (server, client) };
    room[..6].copy_from_slice(&to);
    room[6..12].copy_from_slice(&from);
    room[12..14].copy_from_slice(&kind.to_be_bytes());
}

/// Locally administered Ethernet addresses of a pair's client and server.
fn mac_addresses(pair: u32) -> [[u8; 6]; 2] {
    let [a, b, c, d] = pair.to_be_bytes();
    [[0x02, 0, a, b, c, d], [0x06, 0, a, b, c, d]]
}

/// IP protocol number of a flow.
fn number(flow: &Flow) -> u8 {
    match flow.transport {
        Transport::Tcp => 6,
        Transport::Udp => 17,
        Transport::Icmp if flow.v6 => 58,
        Transport::Icmp => 1,
    }
}

/// Writes the IPv4 header; returns the offsets of the transport header and of the addresses.
fn ipv4(room: &mut [u8], flow: &Flow, packet: &Packet, end: usize) -> (usize, usize) {
    let client = (0x0a00_0000 | flow.client).to_be_bytes();
    let server = (0xc612_0000 | flow.server).to_be_bytes();
    let (from, to) = if packet.forward { (client, server) } else { (server, client) };
    let header = &mut room[ETHERNET..ETHERNET + IPV4];
    header[0] = 0x45;
    header[2..4].copy_from_slice(&((end - ETHERNET) as u16).to_be_bytes());
    header[4..6].copy_from_slice(&(packet.index as u16).to_be_bytes());
    // Don't Fragment, which TCP sets for path MTU discovery.
    header[6] = if flow.transport == Transport::Tcp { 0x40 } else { 0 };
    header[8] = 64;
    header[9] = number(flow);
    header[12..16].copy_from_slice(&from);
    header[16..20].copy_from_slice(&to);
    let check = finish(sum(header));
    header[10..12].copy_from_slice(&check);
    (ETHERNET + IPV4, ETHERNET + 12)
}

fn ipv6(room: &mut [u8], flow: &Flow, packet: &Packet, end: usize) -> (usize, usize) {
    let address = |network: u8, host: u32| {
        let mut address = [0u8; 16];
        address[..6].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8, 0, network]);
        address[12..].copy_from_slice(&host.to_be_bytes());
        address
    };
    let (client, server) = (address(1, flow.client), address(2, flow.server));
    let (from, to) = if packet.forward { (client, server) } else { (server, client) };
    let header = &mut room[ETHERNET..ETHERNET + 40];
    let label = flow.number as u32 & 0xf_ffff;
    header[..4].copy_from_slice(&(0x6000_0000 | label).to_be_bytes());
    header[4..6].copy_from_slice(&((end - ETHERNET - 40) as u16).to_be_bytes());
    header[6] = number(flow);
    header[7] = 64;
    header[8..24].copy_from_slice(&from);
    header[24..40].copy_from_slice(&to);
    (ETHERNET + 40, ETHERNET + 8)
}

/// Writes the transport header before the tag; `pseudo` is the sum of the pseudo-header.
fn write_transport(segment: &mut [u8], flow: &Flow, packet: &Packet, pseudo: u64, len: usize) {
    let (mut from, mut to) = (flow.client_port, flow.server_port);
    if !packet.forward {
        std::mem::swap(&mut from, &mut to);
    }
    let ports = [from.to_be_bytes(), to.to_be_bytes()];
    let (check_at, pseudo) = match flow.transport {
        Transport::Tcp => {
            segment[..4].copy_from_slice(ports.as_flattened());
            segment[4..8].copy_from_slice(&packet.sequence.to_be_bytes());
            segment[8..12].copy_from_slice(&packet.acknowledgement.to_be_bytes());
            segment[12] = 5 << 4;
            segment[13] = packet.tcp_flags;
            segment[14..16].copy_from_slice(&64_240u16.to_be_bytes());
            (16, pseudo)
        }
        Transport::Udp => {
            segment[..4].copy_from_slice(ports.as_flattened());
            segment[4..6].copy_from_slice(&(len as u16).to_be_bytes());
            (6, pseudo)
        }
        Transport::Icmp => {
            segment[0] = match (flow.v6, packet.forward) {
                (false, true) => 8,
                (false, false) => 0,
                (true, true) => 128,
                (true, false) => 129,
            };
            segment[4..6].copy_from_slice(&flow.client_port.to_be_bytes());
            segment[6..8].copy_from_slice(&(packet.index as u16).to_be_bytes());
            // Only ICMPv6 covers the pseudo-header.
            (2, if flow.v6 { pseudo } else { 0 })
        }
    };
    let mut check = finish(pseudo + sum(segment));
    // A UDP checksum of zero means that there is none (RFC 768).
    if flow.transport == Transport::Udp && check == [0, 0] {
        check = [0xff; 2];
    }
    segment[check_at..check_at + 2].copy_from_slice(&check);
}

/// Writes an ARP request of a pair's client for an address in its network.
pub(crate) fn write_arp(room: &mut [u8], pair: u32, bits: u64) -> usize {
    room[..CLEARED].fill(0);
    ethernet(room, pair, true, 0x0806);
    room[..6].fill(0xff);
    let [client, _] = mac_addresses(pair);
    // Ethernet, IPv4, their lengths, request (RFC 826).
    room[14..22].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, 1]);
    room[22..28].copy_from_slice(&client);
    room[28..32].copy_from_slice(&(0x0a00_0000 | (pair & 0xff_ffff)).to_be_bytes());
    room[38..42].copy_from_slice(&(0x0a00_0000 | (bits as u32 & 0xff_ffff)).to_be_bytes());
    FRAME_MIN
}

/// Splits an IPv4 frame of at least [`FRAGMENT_MIN`] bytes into two fragments: truncates `room` to the first one, whose length is
/// returned, and puts the other one into `second`.
pub(crate) fn fragment(room: &mut [u8], len: usize, second: &mut Vec<u8>) -> usize {
    let data = ETHERNET + IPV4;
    let cut = ((len - data) / 2).next_multiple_of(8);
    second.clear();
    second.extend_from_slice(&room[..data]);
    second.extend_from_slice(&room[data + cut..len]);
    let put = |frame: &mut [u8], data_len: usize, offset: u16| {
        let header = &mut frame[ETHERNET..data];
        header[2..4].copy_from_slice(&((IPV4 + data_len) as u16).to_be_bytes());
        header[6..8].copy_from_slice(&offset.to_be_bytes());
        header[10..12].fill(0);
        let check = finish(sum(header));
        header[10..12].copy_from_slice(&check);
    };
    put(second, len - data - cut, (cut / 8) as u16);
    second.resize(second.len().max(FRAME_MIN), 0);
    // The More Fragments flag.
    put(room, cut, 0x2000);
    data + cut
}

/// Minimum length of a frame that is fragmented, for which both fragments exceed the minimum frame length.
pub(crate) const FRAGMENT_MIN: usize = 128;

/// Sum of 16-bit words in network order; an odd last byte counts as the upper half of a word.
fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<2>();
    let words: u64 = words.iter().map(|&word| u64::from(u16::from_be_bytes(word))).sum();
    words + rest.first().map_or(0, |&last| u64::from(last) << 8)
}

/// The Internet checksum of a sum (RFC 1071).
fn finish(mut sum: u64) -> [u8; 2] {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}

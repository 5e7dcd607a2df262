//! What a kernel leaves undone when it hands a packet to somebody on the same machine: the checksum is not written, and several
//! segments are still one packet of up to 64 KiB. Both are done here, so that functions and other ports see what a wire carries.
//!
//! The kernel says so in a `virtio_net_hdr` before the frame (include/uapi/linux/virtio_net.h). It can be trusted in nothing:
//! offsets are compared with the frame's length, and what does not fit leaves the frame as it is.

use braid_packet::checksum::{Sum, udp_zero};

/// Bytes of a `virtio_net_hdr` without the count of merged buffers.
pub(crate) const VNET_HEADER: usize = 10;
/// The checksum is to be computed from `csum_start` and stored `csum_offset` behind it.
const NEEDS_CHECKSUM: u8 = 1;
const GSO_TCP4: u8 = 1;
const GSO_TCP6: u8 = 4;
const GSO_UDP: u8 = 5;
/// Beside the kind of segments: the first segment keeps the CWR flag, the others do not have it (RFC 3168).
const GSO_ECN: u8 = 0x80;

/// Where TCP and UDP keep their checksum behind their header's first byte.
const TCP_CHECKSUM: usize = 16;
const UDP_CHECKSUM: usize = 6;
const TCP_FIN_PSH: u8 = 0x09;
const TCP_CWR: u8 = 0x80;

/// `struct virtio_net_hdr`, in the byte order of this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct VnetHeader {
    flags: u8,
    gso_type: u8,
    gso_size: usize,
    csum_start: usize,
    csum_offset: usize,
}

impl VnetHeader {
    pub(crate) fn read(bytes: &[u8; VNET_HEADER]) -> VnetHeader {
        let [flags, gso_type, _, _, s0, s1, c0, c1, o0, o1] = *bytes;
        let word = |a, b| usize::from(u16::from_ne_bytes([a, b]));
        VnetHeader {
            flags,
            gso_type: gso_type & !GSO_ECN,
            gso_size: word(s0, s1),
            csum_start: word(c0, c1),
            csum_offset: word(o0, o1),
        }
    }

    /// Whether the frame is still several segments.
    pub(crate) fn is_train(&self) -> bool {
        self.gso_type != 0 && self.gso_size != 0
    }

    /// The same for the frame with a tag of four bytes put in, or without.
    pub(crate) fn behind(self, is_tagged: bool) -> VnetHeader {
        VnetHeader { csum_start: self.csum_start + if is_tagged { 4 } else { 0 }, ..self }
    }

    /// Writes the checksum if the kernel has left that to us. The field holds the sum of the pseudo header.
    pub(crate) fn complete(&self, frame: &mut [u8]) {
        if self.flags & NEEDS_CHECKSUM != 0 {
            complete_checksum(frame, self.csum_start, self.csum_offset);
        }
    }
}

/// Replaces the sum of the pseudo header at `start + offset` by the checksum of everything from `start` on.
pub(crate) fn complete_checksum(frame: &mut [u8], start: usize, offset: usize) {
    let Some(covered) = frame.get_mut(start..) else { return };
    let sum = Sum::default().add_bytes(covered).checksum();
    if let Some(field) = covered.get_mut(offset..offset + 2) {
        let sum = if offset == UDP_CHECKSUM { udp_zero(sum) } else { sum };
        field.copy_from_slice(&sum.to_be_bytes());
    }
}

/// A train of segments, cut into frames one after another.
#[derive(Debug, Default)]
pub(crate) struct Train {
    frame: Vec<u8>,
    header: VnetHeader,
    l3: usize,
    /// First byte behind all headers.
    payload: usize,
    /// Payload that has been cut off already.
    done: usize,
    /// Number of the next segment.
    number: u16,
}

impl Train {
    /// Takes a frame that [`VnetHeader::is_train`]. False if its headers are not what the kernel says they are.
    pub(crate) fn load(&mut self, frame: &[u8], header: VnetHeader) -> bool {
        self.frame.clear();
        (self.done, self.number, self.payload) = (0, 0, 0);
        let l4 = header.csum_start;
        let (least, transport) = match header.gso_type {
            GSO_TCP4 | GSO_TCP6 => (20, frame.get(l4 + 12).map(|words| usize::from(words >> 4) * 4)),
            GSO_UDP => (8, Some(8)),
            _ => (0, None),
        };
        let (Some(transport), Some(l3)) = (transport, network_offset(frame, l4)) else { return false };
        if transport < least || l4 + transport >= frame.len() {
            return false;
        }
        self.frame.extend_from_slice(frame);
        (self.header, self.l3, self.payload) = (header, l3, l4 + transport);
        true
    }

    /// Whether there is another segment.
    pub(crate) fn is_empty(&self) -> bool {
        self.payload + self.done >= self.frame.len()
    }

    /// Writes the next segment to `into`; the train must not be empty.
    pub(crate) fn next(&mut self, into: &mut Vec<u8>) {
        let begin = self.payload + self.done;
        let end = (begin + self.header.gso_size).min(self.frame.len());
        into.clear();
        into.extend_from_slice(&self.frame[..self.payload]);
        into.extend_from_slice(&self.frame[begin..end]);
        self.mend(into, end == self.frame.len());
        self.done = end - self.payload;
        self.number = self.number.wrapping_add(1);
    }

    /// Puts lengths, numbers and checksums of one segment right.
    fn mend(&self, segment: &mut [u8], is_last: bool) {
        let (l3, l4) = (self.l3, self.header.csum_start);
        let transport_len = segment.len() - l4;
        let old_len = self.frame.len() - l4;
        let is_v4 = segment[l3] >> 4 == 4;
        if is_v4 {
            put(segment, l3 + 2, (segment.len() - l3) as u16);
            let id = be16(segment, l3 + 4).wrapping_add(self.number);
            put(segment, l3 + 4, id);
            put(segment, l3 + 10, 0);
            let sum = Sum::default().add_bytes(&segment[l3..l4]).checksum();
            put(segment, l3 + 10, sum);
        } else {
            put(segment, l3 + 4, (segment.len() - l3 - 40) as u16);
        }
        let field = l4 + self.header.csum_offset;
        if field + 2 > segment.len() {
            return;
        }
        if self.header.gso_type == GSO_UDP {
            put(segment, l4 + 4, transport_len as u16);
        } else {
            let sequence = u32::from_be_bytes([segment[l4 + 4], segment[l4 + 5], segment[l4 + 6], segment[l4 + 7]]);
            segment[l4 + 4..l4 + 8].copy_from_slice(&sequence.wrapping_add(self.done as u32).to_be_bytes());
            if !is_last {
                segment[l4 + 13] &= !TCP_FIN_PSH;
            }
            if self.number > 0 {
                segment[l4 + 13] &= !TCP_CWR;
            }
        }
        // The field holds the sum of the pseudo header with the length of the whole train: exchange the length.
        let pseudo =
            Sum::default().add_u16(be16(segment, field)).add_u16(!(old_len as u16)).add_u16(transport_len as u16);
        put(segment, field, pseudo.fold());
        complete_checksum(segment, l4, self.header.csum_offset);
    }
}

/// Where the IP header begins: behind Ethernet and its tags, before the transport header.
fn network_offset(frame: &[u8], l4: usize) -> Option<usize> {
    let mut at = 12;
    while matches!(frame.get(at..at + 2)?, [0x81, 0] | [0x88, 0xa8]) {
        at += 4;
    }
    let l3 = at + 2;
    let least = match frame.get(l3)? >> 4 {
        4 => 20,
        6 => 40,
        _ => return None,
    };
    (l3 + least <= l4 && l4 < frame.len()).then_some(l3)
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn put(bytes: &mut [u8], at: usize, word: u16) {
    bytes[at..at + 2].copy_from_slice(&word.to_be_bytes());
}

fn checksum_offset(protocol: u8) -> Option<usize> {
    match protocol {
        6 => Some(TCP_CHECKSUM),
        17 => Some(UDP_CHECKSUM),
        _ => None,
    }
}

/// Completes the checksum of a frame for which nobody says whether the kernel did: AF_XDP on interfaces whose other end is on
/// this machine. It was left undone if the field holds exactly the folded sum of the pseudo header, and the checksum is then
/// wrong; of packets that were damaged on their way one in 65,536 looks the same. Fragments and extension headers never do.
pub(crate) fn complete_if_partial(frame: &mut [u8]) {
    let Some((l4, end, protocol, pseudo)) = transport(frame) else { return };
    let Some(offset) = checksum_offset(protocol) else { return };
    let Some(field) = frame.get(l4 + offset..l4 + offset + 2) else { return };
    if u16::from_be_bytes([field[0], field[1]]) == pseudo {
        let covered = &mut frame[..end];
        if Sum::default().add_u16(pseudo).add_bytes(&covered[l4..]).fold() != 0xffff {
            complete_checksum(covered, l4, offset);
        }
    }
}

/// Transport header, end of the packet, protocol and folded sum of the pseudo header of a whole TCP or UDP packet.
fn transport(frame: &[u8]) -> Option<(usize, usize, u8, u16)> {
    let mut at = 12;
    while matches!(frame.get(at..at + 2)?, [0x81, 0] | [0x88, 0xa8]) {
        at += 4;
    }
    let (packet, l3) = (frame.get(at + 2..)?, at + 2);
    let (addresses, header, length, protocol) = match frame.get(at..at + 2)? {
        [8, 0] if packet.len() >= 20 && be16(packet, 6) & 0x3fff == 0 => {
            let header = usize::from(packet[0] & 15) * 4;
            (&packet[12..20], header, usize::from(be16(packet, 2)), packet[9])
        }
        [0x86, 0xdd] if packet.len() >= 40 => (&packet[8..40], 40, 40 + usize::from(be16(packet, 4)), packet[6]),
        _ => return None,
    };
    if header < 20 || length < header + 8 || length > packet.len() {
        return None;
    }
    let pseudo = Sum::default().add_bytes(addresses).add_u16(u16::from(protocol)).add_u16((length - header) as u16);
    Some((l3 + header, l3 + length, protocol, pseudo.fold()))
}

#[cfg(test)]
mod tests {
    use etherparse::{PacketBuilder, SlicedPacket, TransportSlice};
    use proptest::prelude::*;

    use super::*;

    fn tcp(payload: &[u8], v6: bool, tagged: bool) -> Vec<u8> {
        let link = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let mut frame = Vec::new();
        let numbers = (1234, 80, 0xffff_fff0, 512);
        let (source, port, sequence, window) = numbers;
        macro_rules! ip {
            ($link:expr) => {
                if v6 { $link.ipv6([1; 16], [2; 16], 60) } else { $link.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 60) }
            };
        }
        let packet = if tagged { ip!(link.single_vlan(7.try_into().unwrap())) } else { ip!(link) };
        packet.tcp(source, port, sequence, window).psh().fin().write(&mut frame, payload).unwrap();
        frame
    }

    fn l4_of(frame: &[u8]) -> usize {
        let (l4, ..) = transport(frame).unwrap();
        l4
    }

    /// Leaves the sum of the pseudo header in the checksum's place, as Linux does.
    fn leave_undone(frame: &mut [u8]) {
        let (l4, _, protocol, pseudo) = transport(frame).unwrap();
        put(frame, l4 + checksum_offset(protocol).unwrap(), pseudo);
    }

    fn assert_right(frame: &[u8]) {
        let parsed = SlicedPacket::from_ethernet(frame).unwrap();
        let (net, Some(TransportSlice::Tcp(tcp))) = (parsed.net.unwrap(), parsed.transport) else { panic!("no TCP") };
        let sum = match net {
            etherparse::NetSlice::Ipv4(ip) => {
                assert_eq!(ip.header().header_checksum(), ip.header().to_header().calc_header_checksum());
                tcp.calc_checksum_ipv4(ip.header().source(), ip.header().destination()).unwrap()
            }
            etherparse::NetSlice::Ipv6(ip) => {
                tcp.calc_checksum_ipv6(ip.header().source(), ip.header().destination()).unwrap()
            }
            _ => panic!("no IP"),
        };
        assert_eq!(tcp.checksum(), sum);
    }

    proptest! {
        #[test]
        fn a_checksum_that_was_left_undone_is_completed_and_a_right_one_stays(
            payload in prop::collection::vec(any::<u8>(), 0..200), v6: bool, tagged: bool,
        ) {
            let right = tcp(&payload, v6, tagged);
            let mut frame = right.clone();
            complete_if_partial(&mut frame);
            prop_assert_eq!(&frame, &right);
            leave_undone(&mut frame);
            complete_if_partial(&mut frame);
            prop_assert_eq!(&frame, &right);
        }

        #[test]
        fn no_bytes_make_a_completion_panic(mut frame in prop::collection::vec(any::<u8>(), 0..120), start: u16, offset: u16) {
            complete_if_partial(&mut frame);
            complete_checksum(&mut frame, start.into(), offset.into());
        }

        #[test]
        fn no_bytes_make_a_train_panic(frame in prop::collection::vec(any::<u8>(), 0..200), header: [u8; 10]) {
            let (mut train, mut segment) = (Train::default(), Vec::new());
            if train.load(&frame, VnetHeader::read(&header)) {
                while !train.is_empty() && train.header.gso_size > 0 {
                    train.next(&mut segment);
                }
            }
        }

        #[test]
        fn segments_of_a_train_are_what_a_wire_would_carry(len in 1usize..9000, size in 100usize..1448, v6: bool, tagged: bool) {
            let payload: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let mut whole = tcp(&payload, v6, tagged);
            let l4 = l4_of(&whole);
            leave_undone(&mut whole);
            let kind = if v6 { GSO_TCP6 } else { GSO_TCP4 };
            let header =
                VnetHeader { flags: NEEDS_CHECKSUM, gso_type: kind, gso_size: size, csum_start: l4, csum_offset: 16 };
            let (mut train, mut segment, mut joined) = (Train::default(), Vec::new(), Vec::new());
            prop_assert!(train.load(&whole, header));
            while !train.is_empty() {
                train.next(&mut segment);
                assert_right(&segment);
                let sequence = u32::from_be_bytes(segment[l4 + 4..l4 + 8].try_into().unwrap());
                prop_assert_eq!(sequence, 0xffff_fff0u32.wrapping_add(joined.len() as u32));
                joined.extend_from_slice(&segment[l4 + 20..]);
                prop_assert!(segment.len() - l4 - 20 <= size);
                prop_assert_eq!(segment[l4 + 13] & TCP_FIN_PSH != 0, joined.len() == len);
            }
            prop_assert_eq!(joined, payload);
        }
    }
}

//! Rewrites addresses, ports and identifiers such that every checksum over them is updated.
//!
//! The same functions serve a packet's own headers and those of a packet that an ICMP error quotes. Each returns the
//! [`Change`] of all words that it wrote, to be applied to an enclosing checksum that covers them.

use crate::address::IpAddress;
use crate::checksum::{Change, ShortChange};
use crate::crc32c;
use crate::headers::{Header, Icmp, Icmpv6, Tcp, next_option};
use crate::parse::{be16, protocol, walk_extensions};
use crate::record::{Flags, Record};

mod exchange;

pub use exchange::Exchange;
pub(crate) use exchange::{PLAIN_V6_TCP, PLAIN_V6_UDP};

/// One of the two ends of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Source,
    Destination,
}

impl Side {
    /// Returns the offsets of address and port from the IP header, for IPv4 without options.
    #[inline(always)]
    fn places(self) -> (usize, usize) {
        if self == Side::Source { (12, 20) } else { (16, 22) }
    }
}

/// Where the headers of an IP packet are in a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Headers {
    pub(crate) l3: usize,
    /// Equal to `l3` if the transport header is too far away.
    l4: usize,
    pub(crate) proto: u8,
    flags: Flags,
}

impl Headers {
    /// Returns the headers that the parser found.
    #[inline(always)]
    pub(crate) fn outer(record: &Record) -> Option<Headers> {
        let l3 = record.l3 as usize;
        let l4 = l3 + record.l4 as usize * 4;
        record.flags.has(Flags::IP).then_some(Headers { l3, l4, proto: record.proto, flags: record.flags })
    }

    /// Returns the headers of the packet at `at` that an ICMP error quotes, which may be cut after its IP header.
    pub(crate) fn quoted(frame: &[u8], at: usize) -> Option<Headers> {
        let packet = frame.get(at..)?;
        let link = crate::Link::RawIp;
        match packet.first()? >> 4 {
            4 => {
                let fixed = packet.first_chunk::<20>()?;
                let words = usize::from(fixed[0] & 15);
                let fragment = u16::from_be_bytes([fixed[6], fixed[7]]) & 0x3fff;
                let bits = match (fragment, fragment & 0x1fff) {
                    (0, _) => 0,
                    (_, 0) => Flags::FRAGMENT,
                    _ => Flags::FRAGMENT | Flags::LATER_FRAGMENT,
                };
                let flags = Flags::new(link, Flags::IP | bits);
                (words >= 5).then_some(Headers { l3: at, l4: at + words * 4, proto: fixed[9], flags })
            }
            6 => {
                let fixed = packet.first_chunk::<40>()?;
                let walk = walk_extensions(packet, fixed[6])?;
                let flags = Flags::new(link, Flags::IP | Flags::V6 | walk.bits);
                Some(Headers { l3: at, l4: at + usize::from(walk.words) * 4, proto: walk.proto, flags })
            }
            _ => None,
        }
    }

    #[inline(always)]
    pub(crate) fn is_v6(&self) -> bool {
        self.flags.has(Flags::V6)
    }

    /// Returns the offset of the transport header; `None` for later fragments.
    #[inline(always)]
    pub(crate) fn transport(&self) -> Option<usize> {
        (!self.flags.has(Flags::LATER_FRAGMENT) && self.l4 != self.l3).then_some(self.l4)
    }

    /// Returns the end of the range that the functions here may write, except for TCP options.
    #[inline(always)]
    pub(crate) fn end(&self) -> usize {
        (self.l3 + 40).max(self.l4 + 20)
    }

    /// Returns the length of transport header and payload in bytes according to the IP header; `None` for a fragment.
    pub(crate) fn segment_len(&self, frame: &[u8]) -> Option<usize> {
        let from_l3 = if self.is_v6() {
            40 + usize::from(be16(frame, self.l3 + 4)?)
        } else {
            usize::from(be16(frame, self.l3 + 2)?)
        };
        if self.flags.has(Flags::FRAGMENT) { None } else { from_l3.checked_sub(self.transport()? - self.l3) }
    }

    #[inline(always)]
    pub(crate) fn address(&self, frame: &[u8], side: Side) -> Option<IpAddress> {
        let destination = side == Side::Destination;
        if self.is_v6() {
            let at = self.l3 + if destination { 24 } else { 8 };
            Some(IpAddress::from_v6(*frame.get(at..)?.first_chunk()?))
        } else {
            let at = self.l3 + if destination { 16 } else { 12 };
            Some(IpAddress::from_v4(*frame.get(at..)?.first_chunk()?))
        }
    }

    /// Returns source and destination port, if the protocol has ports, the fragment has the transport header, and they are present.
    #[inline(always)]
    pub(crate) fn ports(&self, frame: &[u8]) -> Option<(u16, u16)> {
        let at = self.transport()?;
        let ports: &[u8; 4] = frame.get(at..)?.first_chunk()?;
        let pair = (u16::from_be_bytes([ports[0], ports[1]]), u16::from_be_bytes([ports[2], ports[3]]));
        protocol::has_ports(self.proto).then_some(pair)
    }

    /// Returns the offset of the identifier of an ICMP or ICMPv6 query or reply.
    pub(crate) fn icmp_id_at(&self, frame: &[u8]) -> Option<usize> {
        let at = self.transport()?;
        let kind = *frame.get(at)?;
        let has = match (self.proto, self.is_v6()) {
            (protocol::ICMP, false) => Icmp::has_id(kind),
            (protocol::ICMPV6, true) => Icmpv6::has_id(kind),
            _ => false,
        };
        has.then_some(at + 4)
    }

    /// Returns the offset of the packet that an ICMP error quotes.
    pub(crate) fn quoted_at(&self, frame: &[u8]) -> Option<usize> {
        let at = self.transport()?;
        let kind = *frame.get(at)?;
        let quotes = match (self.proto, self.is_v6()) {
            (protocol::ICMP, false) => Icmp::quotes(kind),
            (protocol::ICMPV6, true) => Icmpv6::quotes(kind),
            _ => false,
        };
        quotes.then_some(at + 8)
    }

    /// Returns the offset of the transport checksum if it covers the addresses, and whether zero means none, as in UDP.
    #[inline(always)]
    fn checksum_over_addresses(&self) -> Option<(usize, bool)> {
        let at = self.transport()?;
        match self.proto {
            protocol::TCP => Some((at + 16, false)),
            protocol::UDP => Some((at + 6, true)),
            protocol::ICMPV6 if self.is_v6() => Some((at + 2, false)),
            protocol::UDP_LITE => Some((at + 6, true)),
            protocol::DCCP => Some((at + 6, false)),
            _ => None,
        }
    }
}

/// Applies `change` to the checksum at `at`, if present, and returns the change of that word.
#[inline(always)]
pub(crate) fn update_checksum(frame: &mut [u8], at: usize, udp: bool, change: Change) -> Change {
    let Some(field) = frame.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<2>()) else { return Change::NONE };
    let old = u16::from_be_bytes(*field);
    let new = if udp { change.apply_udp(old) } else { change.apply(old) };
    *field = new.to_be_bytes();
    Change::NONE.u16(old, new)
}

/// Writes an address of the packet's own family and updates the checksum of the IPv4 header. Returns the change of the
/// address and the change of all words. Returns `None`, and writes nothing, for the other family.
#[inline(always)]
fn write_address(frame: &mut [u8], at: Headers, side: Side, address: IpAddress) -> Option<(Change, Change)> {
    let destination = side == Side::Destination;
    if at.is_v6() {
        let place = at.l3 + if destination { 24 } else { 8 };
        let field: &mut [u8; 16] = frame.get_mut(place..)?.first_chunk_mut().filter(|_| !address.is_v4())?;
        let change = Change::NONE.bytes(field, &address.octets());
        *field = address.octets();
        return Some((change, change));
    }
    let new = address.v4()?;
    let place = at.l3 + if destination { 16 } else { 12 };
    let field: &mut [u8; 4] = frame.get_mut(place..)?.first_chunk_mut()?;
    let change = Change::NONE.u32(u32::from_be_bytes(*field), u32::from_be_bytes(new));
    *field = new;
    Some((change, change.and(update_checksum(frame, at.l3 + 10, false, change))))
}

/// Sets an address of the packet's own family. Returns `None`, and writes nothing, for the other family.
#[inline(always)]
pub(crate) fn set_address(frame: &mut [u8], at: Headers, side: Side, address: IpAddress) -> Option<Change> {
    let (change, all) = write_address(frame, at, side, address)?;
    match at.checksum_over_addresses() {
        Some((checksum, udp)) => Some(all.and(update_checksum(frame, checksum, udp, change))),
        None => Some(all),
    }
}

/// Sets address and port of one end with one update of the transport checksum. Returns `None`, and writes nothing, if either
/// cannot be set.
#[inline(always)]
pub(crate) fn set_end(frame: &mut [u8], at: Headers, side: Side, address: IpAddress, port: u16) -> Option<Change> {
    let (source, destination) = at.ports(frame)?;
    if at.proto == protocol::SCTP {
        // The address is set last: if its family fits, that cannot fail.
        let ports = if address.is_v4() != at.is_v6() { set_port(frame, at, side, port)? } else { return None };
        return Some(ports.and(set_address(frame, at, side, address)?));
    }
    let (old, place) = if side == Side::Source { (source, at.l4) } else { (destination, at.l4 + 2) };
    let (address, all) = write_address(frame, at, side, address)?;
    let port_change = Change::NONE.u16(old, port);
    *frame.get_mut(place..)?.first_chunk_mut::<2>()? = port.to_be_bytes();
    let (checksum, udp) = at.checksum_over_addresses()?;
    Some(all.and(port_change).and(update_checksum(frame, checksum, udp, address.and(port_change))))
}

/// Length of the bytes of a [plain](crate::Packet::plain) packet: IPv4 header without options and TCP's fixed header.
pub const PLAIN: usize = 40;

/// Fast path of [`set_end`], or of [`set_address`] without a port, for the most common packets: TCP or UDP over IPv4 without
/// options. `ip` begins with the IP header, whose time to live is decremented by `hops` and must be at least that.
#[inline(always)]
pub(crate) fn set_plain(ip: &mut [u8; PLAIN], side: Side, udp: bool, address: [u8; 4], port: Option<u16>, hops: u8) {
    let (address_at, port_at) = side.places();
    let change = ShortChange::of_u32(load_u32(ip, address_at), u32::from_ne_bytes(address));
    let transport = match port {
        Some(port) => change.u16(load_u16(ip, port_at), port.to_be()),
        None => change,
    };
    write_plain(ip, (side, udp), (address, port), hops, (change.sunk(sunk_by(hops)), transport));
}

/// Writes an end and applies the given changes to both checksums; the header's change must account for `hops`.
#[inline(always)]
fn write_plain(
    ip: &mut [u8; PLAIN],
    (side, udp): (Side, bool),
    (address, port): ([u8; 4], Option<u16>),
    hops: u8,
    (header, transport): (ShortChange, ShortChange),
) {
    // The ones' complement sum is independent of byte order (RFC 1071 section 2 B), so nothing is swapped here.
    let (address_at, port_at) = side.places();
    store_u32(ip, address_at, u32::from_ne_bytes(address));
    ip[8] -= hops;
    store_u16(ip, 10, header.apply(load_u16(ip, 10)));
    if let Some(port) = port {
        store_u16(ip, port_at, port.to_be());
    }
    if udp {
        store_u16(ip, 26, transport.apply_udp(load_u16(ip, 26)));
    } else {
        store_u16(ip, 36, transport.apply(load_u16(ip, 36)));
    }
}

/// Returns the decrease of the word of time to live and protocol, in memory byte order.
#[inline(always)]
fn sunk_by(hops: u8) -> u16 {
    u16::from_ne_bytes([hops, 0])
}

#[inline(always)]
fn load_u16<const N: usize>(ip: &[u8; N], at: usize) -> u16 {
    u16::from_ne_bytes([ip[at], ip[at + 1]])
}

#[inline(always)]
fn store_u16<const N: usize>(ip: &mut [u8; N], at: usize, word: u16) {
    [ip[at], ip[at + 1]] = word.to_ne_bytes();
}

#[inline(always)]
fn load_u32<const N: usize>(ip: &[u8; N], at: usize) -> u32 {
    ip[at..].first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes))
}

#[inline(always)]
fn store_u32<const N: usize>(ip: &mut [u8; N], at: usize, word: u32) {
    ip[at..at + 4].copy_from_slice(&word.to_ne_bytes());
}

/// Sets a port. Returns `None`, and writes nothing, if there is none or the checksum cannot be updated (SCTP in fragments).
#[inline(always)]
pub(crate) fn set_port(frame: &mut [u8], at: Headers, side: Side, port: u16) -> Option<Change> {
    let (source, destination) = at.ports(frame)?;
    let l4 = at.transport()?;
    let (old, offset) = if side == Side::Source { (source, 0) } else { (destination, 2) };
    let change = Change::NONE.u16(old, port);
    let checksum = match at.proto {
        protocol::TCP => update_checksum(frame, l4 + 16, false, change),
        protocol::UDP => update_checksum(frame, l4 + 6, true, change),
        _ => update_sctp(frame, at, l4, offset, port)?,
    };
    *frame.get_mut(l4 + offset..)?.first_chunk_mut::<2>()? = port.to_be_bytes();
    Some(change.and(checksum))
}

#[cold]
fn update_sctp(frame: &mut [u8], at: Headers, l4: usize, offset: usize, port: u16) -> Option<Change> {
    let following = at.segment_len(frame)?.checked_sub(4)?;
    let old: [u8; 4] = *frame.get(l4..)?.first_chunk()?;
    let mut new = old;
    new[offset..offset + 2].copy_from_slice(&port.to_be_bytes());
    let Some(field) = frame.get_mut(l4 + 8..).and_then(|rest| rest.first_chunk_mut::<4>()) else {
        return Some(Change::NONE);
    };
    let before = *field;
    *field = (u32::from_le_bytes(before) ^ crc32c::change(old, new, following)).to_le_bytes();
    Some(Change::NONE.bytes(&before, &*field))
}

/// Adds `by` to the TCP header field at `offset` (sequence or acknowledgement number). Returns `None`, and writes nothing, if
/// it is not present.
pub(crate) fn shift_number(frame: &mut [u8], at: Headers, offset: usize, by: u32) -> Option<Change> {
    let l4 = at.transport().filter(|_| at.proto == protocol::TCP)?;
    let field: &mut [u8; 4] = frame.get_mut(l4 + offset..)?.first_chunk_mut()?;
    let old = u32::from_be_bytes(*field);
    let new = old.wrapping_add(by);
    *field = new.to_be_bytes();
    let change = Change::NONE.u32(old, new);
    Some(change.and(update_checksum(frame, l4 + 16, false, change)))
}

/// Lowers the maximum segment size option of a TCP segment to `most` (RFC 9293 section 3.7.1). Returns `None`, and writes
/// nothing, if the option is absent or not larger than `most`, or the options are incomplete.
pub(crate) fn lower_segment_size(frame: &mut [u8], at: Headers, most: u16) -> Option<Change> {
    let l4 = at.transport().filter(|_| at.proto == protocol::TCP)?;
    let end = l4 + usize::from(*frame.get(l4 + 12)? >> 4) * 4;
    const MAXIMUM_SEGMENT: u8 = 2;
    let mut options = frame.get(l4 + Tcp::LEN..end)?;
    let place = loop {
        let (kind, data, behind) = next_option(options)?;
        if kind == MAXIMUM_SEGMENT && data.len() == 2 {
            break end - behind.len() - data.len();
        }
        options = behind;
    };
    let field: &mut [u8; 2] = frame.get_mut(place..)?.first_chunk_mut()?;
    let old = u16::from_be_bytes(*field);
    if old <= most {
        return None;
    }
    *field = most.to_be_bytes();
    // Options begin at any offset. At an odd offset the two bytes belong to different words and count as if they were swapped
    // (RFC 1071 section 2 B).
    let change = match (place - l4).is_multiple_of(2) {
        true => Change::NONE.u16(old, most),
        false => Change::NONE.u16(old.swap_bytes(), most.swap_bytes()),
    };
    Some(change.and(update_checksum(frame, l4 + 16, false, change)))
}

/// Sets the identifier of an ICMP or ICMPv6 query or reply. Returns `None`, and writes nothing, if there is none.
pub(crate) fn set_icmp_id(frame: &mut [u8], at: Headers, id: u16) -> Option<Change> {
    let place = at.icmp_id_at(frame)?;
    let field: &mut [u8; 2] = frame.get_mut(place..)?.first_chunk_mut()?;
    let change = Change::NONE.u16(u16::from_be_bytes(*field), id);
    *field = id.to_be_bytes();
    let checksum = update_checksum(frame, place - 2, false, change);
    if frame.get(place - 2..place) == Some(&[0, 0]) {
        sum_zeros(frame, at);
    }
    Some(change.and(checksum))
}

/// Corrects the checksum 0 of an ICMP message that consists of zeros: the sum of nothing but zeros is 0, and no correction of an older
/// checksum tells that from ffff, the sum of anything else that has this checksum.
#[cold]
fn sum_zeros(frame: &mut [u8], at: Headers) {
    let Some((l4, len)) = at.transport().zip(at.segment_len(frame)).filter(|_| !at.is_v6()) else { return };
    // The length is what a quoted header claims, which may end before the message's own header does.
    if let Some(message) = frame.get_mut(l4..l4 + len).filter(|message| message.len() >= Icmp::LEN)
        && message.iter().all(|byte| *byte == 0)
    {
        message[2..4].fill(0xff);
    }
}

//! Reads a frame into a packet with all its fields.

use braid_packet::IpVersion;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::build::{fill_ipv4_checksum, ipv4_checksum};
use super::packet::{Field, Packet, Value};
use super::words;
use crate::check_checksums;

/// Reads a frame; truncated parts are left out.
pub fn frame(bytes: &[u8]) -> Packet {
    let mut packet = Packet::default();
    let read = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
    let mac = |at: usize| {
        bytes.get(at..at + 6).map(|mac| mac.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(":"))
    };
    let (Some(destination), Some(source), Some(mut kind)) = (mac(0), mac(6), read(12)) else { return packet };
    packet.set(Field::MacSource, Value::Word(source));
    packet.set(Field::MacDestination, Value::Word(destination));
    let (mut at, mut tags) = (14, Vec::new());
    while let (0x8100 | 0x88a8, Some(tag), Some(next)) = (kind, read(at), read(at + 2)) {
        let (id, priority) = (tag & 0xfff, tag >> 13);
        tags.push(if priority == 0 { id.to_string() } else { format!("{id}/{priority}") });
        (kind, at) = (next, at + 4);
    }
    packet.set(Field::Vlan, Value::word(if tags.is_empty() { "none".to_owned() } else { tags.join(".") }));
    let rest = &bytes[at..];
    let known = match kind {
        0x0800 | 0x86dd => ip(&mut packet, rest),
        0x0806 => arp(&mut packet, rest),
        _ => None,
    };
    if known.is_none() {
        packet.set(Field::Kind, Value::Word(format!("{kind:#06x}")));
        data(&mut packet, rest);
    }
    packet.set(Field::Frame, Value::Number(bytes.len() as u64));
    checksums(&mut packet, bytes, at);
    packet
}

/// Adds whether the checksums are correct according to another library; the transport checksum only if its header is present.
fn checksums(packet: &mut Packet, bytes: &[u8], ip: usize) {
    let said = |is_right: bool| Value::word(if is_right { "right" } else { words::WRONG });
    let mut bytes = bytes.to_vec();
    if let Some(Value::Number(header)) = packet.field(Field::IpHeader)
        && let Some(header) = bytes.get_mut(ip..ip + 4 * *header as usize).filter(|header| header.len() >= 20)
    {
        let is_right = ipv4_checksum(header) == 0;
        fill_ipv4_checksum(header);
        packet.set(Field::IpChecksum, said(is_right));
    }
    let has_one = matches!(packet.word(Field::Kind), "udp" | "tcp" | "icmp" | "icmp6");
    if has_one && packet.field(Field::Checksum).is_none() {
        packet.set(Field::Checksum, said(check_checksums(&bytes).is_ok()));
    }
}

fn data(packet: &mut Packet, bytes: &[u8]) {
    packet.set(Field::Length, Value::Number(bytes.len() as u64));
    packet.set(Field::Data, Value::Bytes(bytes.to_vec()));
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn v4(bytes: &[u8], at: usize) -> Option<Value> {
    Some(Value::Address(Ipv4Addr::from(<[u8; 4]>::try_from(bytes.get(at..at + 4)?).ok()?).into()))
}

fn v6(bytes: &[u8], at: usize) -> Option<Value> {
    Some(Value::Address(Ipv6Addr::from(<[u8; 16]>::try_from(bytes.get(at..at + 16)?).ok()?).into()))
}

fn number(packet: &mut Packet, field: Field, value: impl Into<u64>) {
    packet.set(field, Value::Number(value.into()));
}

fn arp(packet: &mut Packet, bytes: &[u8]) -> Option<()> {
    let operation = match be16(bytes, 6)? {
        1 => "request".to_owned(),
        2 => "reply".to_owned(),
        other => other.to_string(),
    };
    packet.set(Field::Source, v4(bytes, 14)?);
    packet.set(Field::Destination, v4(bytes, 24)?);
    packet.set(Field::Kind, Value::word("arp"));
    packet.set(Field::Operation, Value::Word(operation));
    Some(())
}

/// Reads from the IP header on; stops if the header is incomplete.
fn ip(packet: &mut Packet, bytes: &[u8]) -> Option<()> {
    let is_v6 = bytes.first()? >> 4 == 6;
    let (protocol, body, offset) = if is_v6 { ip_v6(packet, bytes)? } else { ip_v4(packet, bytes)? };
    let known = match (protocol, offset) {
        (6, 0) => tcp(packet, body),
        (17, 0) => udp(packet, body),
        (1 | 58, 0) if (protocol == 58) == is_v6 => {
            icmp(packet, body, if is_v6 { IpVersion::V6 } else { IpVersion::V4 })
        }
        _ => None,
    };
    if known.is_none() {
        packet.set(Field::Kind, Value::word("ip"));
        number(packet, Field::Protocol, protocol);
        data(packet, body);
    }
    Some(())
}

fn piece(packet: &mut Packet, offset: usize, len: usize, more: bool) {
    if offset > 0 || more {
        packet.set(Field::Piece, Value::Word(format!("{offset}..{}", offset + len)));
    }
    number(packet, Field::More, u8::from(more));
}

fn ip_v4<'a>(packet: &mut Packet, bytes: &'a [u8]) -> Option<(u8, &'a [u8], usize)> {
    let header = usize::from(bytes[0] & 15) * 4;
    let total = usize::from(be16(bytes, 2)?).min(bytes.len());
    let place = be16(bytes, 6)?;
    number(packet, Field::IpHeader, bytes[0] & 15);
    number(packet, Field::IpLength, be16(bytes, 2)?);
    packet.set(Field::Source, v4(bytes, 12)?);
    packet.set(Field::Destination, v4(bytes, 16)?);
    number(packet, Field::Tos, *bytes.get(1)?);
    number(packet, Field::Identification, be16(bytes, 4)?);
    number(packet, Field::DontFragment, place >> 14 & 1);
    number(packet, Field::Ttl, *bytes.get(8)?);
    let body = bytes.get(header..total)?;
    if let Some(options) = bytes.get(20..header).filter(|options| !options.is_empty()) {
        packet.set(Field::IpOptions, Value::Bytes(options.to_vec()));
    }
    let offset = usize::from(place & 0x1fff) * 8;
    piece(packet, offset, body.len(), place & 0x2000 != 0);
    Some((*bytes.get(9)?, body, offset))
}

fn ip_v6<'a>(packet: &mut Packet, bytes: &'a [u8]) -> Option<(u8, &'a [u8], usize)> {
    packet.set(Field::Source, v6(bytes, 8)?);
    packet.set(Field::Destination, v6(bytes, 24)?);
    number(packet, Field::Tos, be16(bytes, 0)? >> 4 & 0xff);
    number(packet, Field::Ttl, *bytes.get(7)?);
    number(packet, Field::IpLength, be16(bytes, 4)?);
    let total = (40 + usize::from(be16(bytes, 4)?)).min(bytes.len());
    let (mut next, mut at, mut offset) = (bytes[6], 40, 0);
    while let 0 | 43 | 44 | 60 = next {
        let this = next;
        next = *bytes.get(at)?;
        if this == 44 {
            let place = be16(bytes, at + 2)?;
            offset = usize::from(place & 0xfff8);
            number(packet, Field::Identification, be32(bytes, at + 4)?);
            piece(packet, offset, total.checked_sub(at + 8)?, place & 1 != 0);
            at += 8;
        } else {
            let end = at + 8 + usize::from(*bytes.get(at + 1)?) * 8;
            if let Some(options) = bytes.get(at + 2..end).filter(|_| this == 0) {
                packet.set(Field::IpOptions, Value::Bytes(options.to_vec()));
            }
            at = end;
        }
    }
    Some((next, bytes.get(at..total)?, offset))
}

fn ports(packet: &mut Packet, bytes: &[u8], kind: &str) -> Option<()> {
    let (source, destination) = (be16(bytes, 0)?, be16(bytes, 2)?);
    packet.set(Field::Kind, Value::word(kind));
    number(packet, Field::SourcePort, source);
    number(packet, Field::DestinationPort, destination);
    Some(())
}

fn udp(packet: &mut Packet, bytes: &[u8]) -> Option<()> {
    ports(packet, bytes, "udp")?;
    if let Some(len) = be16(bytes, 4) {
        number(packet, Field::UdpLength, len);
    }
    if be16(bytes, 6) == Some(0) {
        packet.set(Field::Checksum, Value::word("none"));
    }
    data(packet, bytes.get(8..).unwrap_or_default());
    Some(())
}

fn tcp(packet: &mut Packet, bytes: &[u8]) -> Option<()> {
    ports(packet, bytes, "tcp")?;
    let Some(sequence) = be32(bytes, 4) else { return Some(()) };
    number(packet, Field::Sequence, sequence);
    let (Some(acknowledgment), Some(bits), Some(window)) = (be32(bytes, 8), be16(bytes, 12), be16(bytes, 14)) else {
        return Some(());
    };
    number(packet, Field::Acknowledgment, acknowledgment);
    number(packet, Field::Window, window);
    let letters = "FSRPAUEC".chars().enumerate().filter(|(n, _)| bits >> n & 1 == 1);
    let flags: String = letters.map(|(_, letter)| letter).collect();
    packet.set(Field::Flags, Value::Word(if flags.is_empty() { ".".to_owned() } else { flags }));
    let header = usize::from(bits >> 12) * 4;
    number(packet, Field::TcpHeader, bits >> 12);
    if let Some(options) = bytes.get(20..header) {
        packet.set(Field::Options, Value::Bytes(options.to_vec()));
    }
    data(packet, bytes.get(header..).unwrap_or_default());
    Some(())
}

fn icmp(packet: &mut Packet, bytes: &[u8], version: IpVersion) -> Option<()> {
    let (kind, code) = (*bytes.first()?, *bytes.get(1)?);
    packet.set(Field::Kind, Value::word(if version == IpVersion::V6 { "icmp6" } else { "icmp" }));
    packet.set(Field::Operation, Value::Word(words::type_name(kind, version)));
    number(packet, Field::Code, code);
    let body = bytes.get(8..).unwrap_or_default();
    if words::is_query(kind, version) {
        if let (Some(id), Some(sequence)) = (be16(bytes, 4), be16(bytes, 6)) {
            number(packet, Field::IcmpId, id);
            number(packet, Field::Sequence, sequence);
        }
    } else if let Some(mtu) = match version {
        IpVersion::V4 => be16(bytes, 6).map(u32::from),
        IpVersion::V6 => be32(bytes, 4),
    } {
        number(packet, Field::Mtu, mtu);
    }
    let said = words::quoted_length(kind, version).and_then(|(at, unit)| Some(usize::from(*bytes.get(4 + at)?) * unit));
    let quoted = said.filter(|len| *len > 0).unwrap_or(body.len());
    if let Some(extension) = body.get(quoted..).filter(|extension| !extension.is_empty()) {
        packet.set(Field::Extension, Value::Bytes(extension.to_vec()));
    }
    let body = body.get(..quoted).unwrap_or(body);
    data(packet, body);
    if words::is_error(kind, version) {
        let mut quote = Packet::default();
        if ip(&mut quote, body).is_some() {
            packet.set(Field::Quote, Value::Packet(Box::new(quote)));
        }
    }
    Some(())
}

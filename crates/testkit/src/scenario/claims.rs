//! Applies false claims to a packet: wrong lengths, wrong checksums, truncated or padded frames. Whatever a line does not mention
//! stays correct: a header with a wrong length has the correct checksum for that header.

use super::build::{fill_ipv4_checksum, ipv4_checksum, start_of_ip};
use super::packet::{Field, Packet, Value};
use super::{Wrong, words};

/// Fields that may contradict the packet.
const CLAIMS: [Field; 8] = [
    Field::IpHeader,
    Field::IpLength,
    Field::IpChecksum,
    Field::TcpHeader,
    Field::UdpLength,
    Field::Checksum,
    Field::Frame,
    Field::Captured,
];

/// The claims about the frame, which need no IP packet.
const OF_FRAMES: [Field; 2] = [Field::Frame, Field::Captured];

/// Whether a line makes a claim that may invalidate checksums of the packet or of the packet that it quotes.
pub fn are_made(packet: &Packet) -> bool {
    let claims = |field: &Field| *field != Field::Checksum || packet.word(*field) == words::WRONG;
    let of_quote = || matches!(packet.field(Field::Quote), Some(Value::Packet(quote)) if are_made(quote));
    CLAIMS.iter().any(|field| packet.field(*field).is_some() && claims(field)) || of_quote()
}

/// Applies the claims of a line to a frame, first those about the transport, then those about the surrounding headers.
pub fn made(mut frame: Vec<u8>, packet: &Packet) -> Result<Vec<u8>, Wrong> {
    let kind = packet.word(Field::Kind);
    let is_ip = kind != "arp" && !kind.starts_with("0x");
    if !is_ip && CLAIMS.iter().any(|field| !OF_FRAMES.contains(field) && packet.field(*field).is_some()) {
        let names: Vec<&str> = CLAIMS[..6].iter().map(|field| field.name()).collect();
        return Err(Wrong::new(
            "only IP packets have lengths and checksums",
            format!("leave out {}", names.join(", ")),
        ));
    }
    if is_ip {
        let ip = start_of_ip(packet);
        transport(&mut frame, ip, packet)?;
        header(&mut frame[ip..], packet)?;
    }
    if let Some(len) = frame_len(packet, Field::Frame, 9600)? {
        frame.resize(len, 0);
    }
    if let Some(len) = frame_len(packet, Field::Captured, frame.len() as u64)? {
        frame.truncate(len);
    }
    Ok(frame)
}

fn frame_len(packet: &Packet, field: Field, most: u64) -> Result<Option<usize>, Wrong> {
    match packet.field(field) {
        Some(Value::Number(len)) if (14..=most).contains(len) => Ok(Some(*len as usize)),
        Some(Value::Number(len)) => {
            Err(Wrong::new(format!("a frame of {len} bytes cannot be"), format!("write 14 to {most}")))
        }
        _ => Ok(None),
    }
}

/// Applies claims about lengths and checksum of TCP, UDP and ICMP.
fn transport(frame: &mut [u8], ip: usize, packet: &Packet) -> Result<(), Wrong> {
    let claims = [Field::TcpHeader, Field::UdpLength].iter().any(|field| packet.field(*field).is_some());
    if packet.field(Field::Piece).is_some() && (claims || packet.word(Field::Checksum) == words::WRONG) {
        return Err(Wrong::new("a piece has no transport's header of its own", "leave out doff, udplen and checksum"));
    }
    let (at, kind) = (start_of_transport(frame, ip, packet), packet.word(Field::Kind));
    let checksum_at = match kind {
        "tcp" => 16,
        "udp" => 6,
        _ => 2,
    };
    if let Some(offset) = claim(packet, Field::TcpHeader, 15)? {
        only(packet, Field::TcpHeader, kind == "tcp")?;
        let old = frame[at + 12];
        let new = old & 15 | (offset as u8) << 4;
        frame[at + 12] = new;
        adjust(frame, at + checksum_at, (u16::from(new) << 8, u16::from(old) << 8));
    }
    if let Some(len) = claim(packet, Field::UdpLength, u16::MAX)? {
        only(packet, Field::UdpLength, kind == "udp")?;
        frame[at + 4..at + 6].copy_from_slice(&len.to_be_bytes());
        let covered = at..(at + usize::from(len)).min(frame.len());
        if packet.word(Field::Checksum) != "none" && covered.len() >= 8 {
            frame[at + 6..at + 8].fill(0);
            let sum = udp_checksum(&frame[ip..], &frame[covered]);
            frame[at + 6..at + 8].copy_from_slice(&sum.to_be_bytes());
        }
    }
    if packet.word(Field::Checksum) == words::WRONG {
        only(packet, Field::Checksum, matches!(kind, "tcp" | "udp" | "icmp" | "icmp6"))?;
        spoil(&mut frame[at + checksum_at..]);
    }
    Ok(())
}

/// Applies claims about lengths and checksum of the IP header.
fn header(ip: &mut [u8], packet: &Packet) -> Result<(), Wrong> {
    let is_v4 = !packet.is_v6();
    let (header, len) = (claim(packet, Field::IpHeader, 15)?, claim(packet, Field::IpLength, u16::MAX)?);
    if let Some(header) = header {
        only(packet, Field::IpHeader, is_v4)?;
        ip[0] = 0x40 | header as u8;
    }
    if let Some(len) = len {
        let at = if is_v4 { 2 } else { 4 };
        ip[at..at + 2].copy_from_slice(&len.to_be_bytes());
    }
    if is_v4 && (header.is_some() || len.is_some()) {
        let end = (usize::from(ip[0] & 15) * 4).max(20).min(ip.len());
        fill_ipv4_checksum(&mut ip[..end]);
    }
    if packet.word(Field::IpChecksum) == words::WRONG {
        only(packet, Field::IpChecksum, is_v4)?;
        spoil(&mut ip[10..]);
    }
    Ok(())
}

fn claim(packet: &Packet, field: Field, most: u16) -> Result<Option<u16>, Wrong> {
    match packet.field(field) {
        Some(Value::Number(number)) => match u16::try_from(*number).ok().filter(|number| *number <= most) {
            Some(number) => Ok(Some(number)),
            None => Err(Wrong::new(format!("{} {number} is too large", field.name()), format!("write 0 to {most}"))),
        },
        _ => Ok(None),
    }
}

fn only(packet: &Packet, field: Field, has: bool) -> Result<(), Wrong> {
    let what = || format!("a packet of kind {} has no `{}`", packet.word(Field::Kind), field.name());
    if has { Ok(()) } else { Err(Wrong::new(what(), "leave it out, or write another kind")) }
}

/// Offset of the transport header, after the IP headers including hop-by-hop options and fragment headers.
fn start_of_transport(frame: &[u8], ip: usize, packet: &Packet) -> usize {
    if !packet.is_v6() {
        return ip + usize::from(frame[ip] & 15) * 4;
    }
    let (mut next, mut at) = (frame[ip + 6], ip + 40);
    while let (0 | 44, Some([this, len])) = (next, frame.get(at..at + 2)) {
        at += if next == 44 { 8 } else { 8 + usize::from(*len) * 8 };
        next = *this;
    }
    at
}

/// Corrects a checksum for a changed word (RFC 1624).
fn adjust(frame: &mut [u8], at: usize, (new, old): (u16, u16)) {
    let sum = u16::from_be_bytes([frame[at], frame[at + 1]]);
    let sum = [!sum, !old, new].map(u16::to_be_bytes).concat();
    frame[at..at + 2].copy_from_slice(&ipv4_checksum(&sum).to_be_bytes());
}

/// The checksum over addresses, protocol, length and the data covered by that length.
fn udp_checksum(ip: &[u8], segment: &[u8]) -> u16 {
    let addresses = if ip[0] >> 4 == 4 { &ip[12..20] } else { &ip[8..40] };
    let len = (segment.len() as u16).to_be_bytes();
    let mut covered = [addresses, &[0, 17], &len, segment].concat();
    covered.resize(covered.len().next_multiple_of(2), 0);
    match ipv4_checksum(&covered) {
        0 => 0xffff,
        sum => sum,
    }
}

/// Makes a checksum wrong, but not zero, which would mean none.
fn spoil(checksum: &mut [u8]) {
    if let Some([.., low]) = checksum.get_mut(..2) {
        *low ^= if *low == 1 { 2 } else { 1 };
    }
}

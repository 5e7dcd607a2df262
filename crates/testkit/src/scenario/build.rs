//! Builds a frame from a packet. Whatever a line omits is as in [`Frame`]: time to live 64, no fragmentation allowed, a TCP ACK.

use std::net::{IpAddr, SocketAddr};

use braid_packet::MacAddress;

use super::packet::{Field, Packet, Value};
use super::{Wrong, claims, words};
use crate::Frame;

const ETHERNET: usize = 14;
/// The most bytes behind the transport header: the longest IPv4 packet without the longest TCP header.
const PAYLOAD_MAX: u64 = 65_535 - 20 - 60;

/// Builds the frame of a packet without variables.
pub fn frame(packet: &Packet) -> Result<Vec<u8>, Wrong> {
    let frame = ethernet(of_kind(packet)?, packet)?.bytes();
    let frame = match (packet.field(Field::Piece), packet.field(Field::IpOptions)) {
        (Some(_), Some(_)) => {
            return Err(Wrong::new("a piece that comes in has no options", "leave out `ipoptions` or `piece`"));
        }
        (Some(Value::Word(piece)), None) => cut(&frame, piece, packet)?,
        (None, Some(Value::Bytes(options))) => with_options(frame, options, packet)?,
        _ => frame,
    };
    claims::made(frame, packet)
}

fn of_kind(packet: &Packet) -> Result<Frame, Wrong> {
    let kind = packet.word(Field::Kind);
    let frame = match kind {
        "udp" => {
            let (source, destination) = sockets(packet)?;
            let frame = Frame::udp(&source, &destination);
            if packet.word(Field::Checksum) == "none" { frame.without_checksum() } else { frame }
        }
        "tcp" => tcp(packet)?,
        "icmp" | "icmp6" => icmp(packet)?,
        "arp" => return arp(packet),
        "ip" => {
            let (source, destination) = addresses(packet)?;
            let number = byte(packet, Field::Protocol, 253)?;
            if number == 0 && source.is_ipv6() {
                let help = "write `ipoptions 0x050200000100` for a hop-by-hop header with these options";
                return Err(Wrong::new("proto 0 of IPv6 is hop-by-hop options", help));
            }
            Frame::ip(&source.to_string(), &destination.to_string(), number)
        }
        other => {
            let ether_type = other.strip_prefix("0x").and_then(|digits| u16::from_str_radix(digits, 16).ok());
            let Some(ether_type) = ether_type else {
                let help = "write udp, tcp, icmp, icmp6, arp, ip, or type 0x88cc";
                return Err(Wrong::new(format!("a packet that comes in needs a kind, not `{other}`"), help));
            };
            return payload(Frame::ethernet(ether_type), packet);
        }
    };
    let frame = if packet.field(Field::Quote).is_some() { frame } else { payload(frame, packet)? };
    let frame = frame.ttl(byte(packet, Field::Ttl, 64)?).tos(byte(packet, Field::Tos, 0)?);
    let frame = frame.identification(word(packet, Field::Identification, 1)?);
    Ok(if packet.number(Field::DontFragment, 1) == 0 { frame.may_be_fragmented() } else { frame })
}

fn tcp(packet: &Packet) -> Result<Frame, Wrong> {
    let (source, destination) = sockets(packet)?;
    let frame = Frame::tcp(&source, &destination);
    let flags = packet.word(Field::Flags);
    let frame = if flags.is_empty() { frame } else { frame.flags(flags.trim_matches('.')) };
    let frame = match packet.field(Field::Options) {
        Some(Value::Bytes(options)) if options.len() <= 40 => frame.options(options),
        Some(_) => return Err(Wrong::new("TCP options have at most 40 bytes", "leave some out")),
        None => frame,
    };
    let frame = frame.numbers(long(packet, Field::Sequence, 1)?, long(packet, Field::Acknowledgment, 0)?);
    Ok(frame.window(word(packet, Field::Window, 65_535)?))
}

fn icmp(packet: &Packet) -> Result<Frame, Wrong> {
    let (source, destination) = addresses(packet)?;
    let v6 = source.is_ipv6();
    if (packet.word(Field::Kind) == "icmp6") != v6 {
        return Err(Wrong::new("kind and addresses are of two families", "write icmp for IPv4 and icmp6 for IPv6"));
    }
    let operation = packet.word(Field::Operation);
    let Some(kind) = words::icmp_type(operation, packet.version()) else {
        let help = format!("write a number or one of: {}", words::type_names());
        return Err(Wrong::new(format!("`{operation}` is not known"), help));
    };
    let rest = match packet.field(Field::Mtu) {
        Some(_) => long(packet, Field::Mtu, 0)?,
        None => u32::from(word(packet, Field::IcmpId, 0)?) << 16 | u32::from(word(packet, Field::Sequence, 0)?),
    };
    let code = byte(packet, Field::Code, 0)?;
    let (mut rest, mut body) = (rest.to_be_bytes(), Vec::new());
    if let Some(Value::Packet(quote)) = packet.field(Field::Quote) {
        let quoted = self::frame(quote)?;
        let most = packet.number(Field::Length, u64::MAX).min(quoted.len() as u64 - ETHERNET as u64);
        body.extend(&quoted[ETHERNET..ETHERNET + most as usize]);
    }
    if let Some(Value::Bytes(extension)) = packet.field(Field::Extension) {
        let Some((at, unit)) = words::quoted_length(kind, packet.version()) else {
            let help = "write it to unreachable, exceeded or, of IPv4, parameter-problem";
            return Err(Wrong::new("this message has no extension (RFC 4884 section 4)", help));
        };
        body.resize(body.len().max(words::QUOTED_MIN).next_multiple_of(unit), 0);
        rest[at] = (body.len() / unit).try_into().map_err(|_| {
            let help = format!("quote at most {} bytes, as with len", unit * usize::from(u8::MAX));
            Wrong::new(format!("{} bytes are too many before an extension", body.len()), help)
        })?;
        body.extend(extension);
    }
    fits(body.len() as u64)?;
    let frame = Frame::icmp(&source.to_string(), &destination.to_string(), kind, code, rest);
    Ok(if body.is_empty() { frame } else { frame.payload(&body) })
}

fn arp(packet: &Packet) -> Result<Frame, Wrong> {
    let (source, destination) = addresses(packet)?;
    if source.is_ipv6() {
        return Err(Wrong::new("ARP asks for IPv4 addresses", "write two of them, or icmp6 neighbor-solicitation"));
    }
    let frame = Frame::arp(&source.to_string(), &destination.to_string());
    let is_request = packet.word(Field::Operation) == "request";
    let mut body = frame.clone().bytes()[ETHERNET..].to_vec();
    if packet.field(Field::MacSource).is_some() {
        body[8..14].copy_from_slice(&mac(packet.word(Field::MacSource))?);
    }
    if !is_request {
        body[7] = 2;
        body[18..24].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
    }
    Ok(if is_request { frame } else { Frame::ethernet(0x0806) }.payload(&body))
}

fn payload(frame: Frame, packet: &Packet) -> Result<Frame, Wrong> {
    let len = match packet.field(Field::Data) {
        Some(Value::Bytes(data)) => data.len() as u64,
        _ => packet.number(Field::Length, 0),
    };
    fits(len)?;
    Ok(match packet.field(Field::Data) {
        Some(Value::Bytes(data)) => frame.payload(data),
        _ if len == 0 => frame,
        _ => frame.payload(&(0..len).map(|n| n as u8).collect::<Vec<u8>>()),
    })
}

/// Checks that so many bytes can be written behind any headers.
fn fits(len: u64) -> Result<(), Wrong> {
    let help = || format!("write at most {PAYLOAD_MAX}, what fits behind the longest headers");
    if len > PAYLOAD_MAX { Err(Wrong::new(format!("{len} bytes are too many for a packet"), help())) } else { Ok(()) }
}

fn ethernet(mut frame: Frame, packet: &Packet) -> Result<Frame, Wrong> {
    if packet.field(Field::MacSource).is_some() {
        frame = frame.mac(mac(packet.word(Field::MacSource))?, mac(packet.word(Field::MacDestination))?);
    }
    let tags = packet.word(Field::Vlan);
    for tag in tags.split('.').filter(|tag| !tag.is_empty() && *tag != "none") {
        let (id, priority) = tag.split_once('/').unwrap_or((tag, "0"));
        let number = |text: &str, most: u16| text.parse::<u16>().ok().filter(|number| *number <= most);
        let control = number(id, 4095).zip(number(priority, 7)).map(|(id, priority)| priority << 13 | id);
        let help = "write 0 to 4095, with a priority 10/5";
        frame = frame.vlan(control.ok_or_else(|| Wrong::new(format!("`{tag}` is no VLAN"), help))?);
    }
    Ok(frame)
}

fn mac(text: &str) -> Result<[u8; 6], Wrong> {
    let wrong = |_| Wrong::new("a packet that comes in has both Ethernet addresses", "write eth MAC > MAC");
    text.parse::<MacAddress>().map(|mac| mac.0).map_err(wrong)
}

fn addresses(packet: &Packet) -> Result<(IpAddr, IpAddr), Wrong> {
    match (packet.field(Field::Source), packet.field(Field::Destination)) {
        (Some(Value::Address(a)), Some(Value::Address(b))) if a.is_ipv4() == b.is_ipv4() => Ok((*a, *b)),
        (Some(Value::Address(a)), Some(Value::Address(b))) => {
            Err(Wrong::new(format!("{a} and {b} are of two families"), "write two of one"))
        }
        _ => Err(Wrong::new("a packet that comes in has both addresses", "write SOURCE > DESTINATION")),
    }
}

fn sockets(packet: &Packet) -> Result<(String, String), Wrong> {
    let (source, destination) = addresses(packet)?;
    let port = |field| match packet.field(field) {
        Some(_) => word(packet, field, 0),
        None => Err(Wrong::new("a packet that comes in has both ports", "write ADDRESS:PORT")),
    };
    let from = SocketAddr::new(source, port(Field::SourcePort)?);
    Ok((from.to_string(), SocketAddr::new(destination, port(Field::DestinationPort)?).to_string()))
}

fn word(packet: &Packet, field: Field, default: u16) -> Result<u16, Wrong> {
    let number = packet.number(field, default.into());
    let help = "write a number from 0 to 65535";
    number.try_into().map_err(|_| Wrong::new(format!("{} {number} is too large", field.name()), help))
}

fn long(packet: &Packet, field: Field, default: u32) -> Result<u32, Wrong> {
    let number = packet.number(field, default.into());
    let help = "write a number from 0 to 4294967295";
    number.try_into().map_err(|_| Wrong::new(format!("{} {number} is too large", field.name()), help))
}

fn byte(packet: &Packet, field: Field, default: u8) -> Result<u8, Wrong> {
    let number = packet.number(field, default.into());
    let help = "write a number from 0 to 255";
    number.try_into().map_err(|_| Wrong::new(format!("{} {number} is too large", field.name()), help))
}

/// Cuts bytes `FROM..TO` out of the datagram, and gives them IP headers of their own.
fn cut(frame: &[u8], piece: &str, packet: &Packet) -> Result<Vec<u8>, Wrong> {
    let help = "write piece FROM..TO in bytes behind the IP header; FROM is a multiple of 8";
    let wrong = || Wrong::new(format!("`piece {piece}` is none"), help);
    let (from, to) = piece.split_once("..").ok_or_else(wrong)?;
    let (ip, v6) = (start_of_ip(packet), packet.is_v6());
    let body = ip + if v6 { 40 } else { 20 };
    let total = frame.len() - body;
    let from: usize = from.parse().map_err(|_| wrong())?;
    let to = if to.is_empty() { total } else { to.parse().map_err(|_| wrong())? };
    if !from.is_multiple_of(8) || from >= to || to > total {
        let what = format!("`piece {piece}` does not fit the {total} bytes of the datagram");
        return Err(Wrong::new(what, help));
    }
    let more = u16::from(packet.number(Field::More, u64::from(to < total)) != 0);
    let mut head = frame[..body].to_vec();
    let len = (to - from + if v6 { 8 } else { 20 }) as u16;
    if v6 {
        let [a, b] = (from as u16 | more).to_be_bytes();
        head[ip + 4..ip + 6].copy_from_slice(&len.to_be_bytes());
        let id = long(packet, Field::Identification, 1)?.to_be_bytes();
        let next = std::mem::replace(&mut head[ip + 6], 44);
        head.extend([next, 0, a, b]);
        head.extend(id);
    } else {
        // Pieces may be cut again unless the line says that they may not.
        let whole = u16::from(packet.number(Field::DontFragment, 0) != 0);
        let place = whole << 14 | more << 13 | (from / 8) as u16;
        head[ip + 2..ip + 4].copy_from_slice(&len.to_be_bytes());
        head[ip + 6..ip + 8].copy_from_slice(&place.to_be_bytes());
        fill_ipv4_checksum(&mut head[ip..]);
    }
    head.extend(&frame[body + from..body + to]);
    Ok(head)
}

/// Appends options to the IPv4 header, or inserts a hop-by-hop header with them after the IPv6 header; they
/// are padded to complete the header.
fn with_options(mut frame: Vec<u8>, options: &[u8], packet: &Packet) -> Result<Vec<u8>, Wrong> {
    let (ip, v6) = (start_of_ip(packet), packet.is_v6());
    let is_ip = !matches!(packet.word(Field::Kind), "arp") && !packet.word(Field::Kind).starts_with("0x");
    let (header, len_at, mut bytes) = if v6 { (40, ip + 4, vec![frame[ip + 6], 0]) } else { (20, ip + 2, Vec::new()) };
    bytes.extend(options);
    bytes.resize(bytes.len().next_multiple_of(if v6 { 8 } else { 4 }), 0);
    if !is_ip || bytes.len() > 40 {
        return Err(Wrong::new("options stand in IP packets, and take at most 40 bytes", "leave some out"));
    }
    let len = u16::from_be_bytes([frame[len_at], frame[len_at + 1]]) + bytes.len() as u16;
    frame[len_at..len_at + 2].copy_from_slice(&len.to_be_bytes());
    if v6 {
        frame[ip + 6] = 0;
        bytes[1] = (bytes.len() / 8 - 1) as u8;
    } else {
        frame[ip] += (bytes.len() / 4) as u8;
    }
    frame.splice(ip + header..ip + header, bytes);
    if !v6 {
        let header = usize::from(frame[ip] & 15) * 4;
        fill_ipv4_checksum(&mut frame[ip..ip + header]);
    }
    Ok(frame)
}

/// Offset of the IP header.
pub fn start_of_ip(packet: &Packet) -> usize {
    ETHERNET + 4 * packet.word(Field::Vlan).split('.').filter(|tag| !matches!(*tag, "" | "none")).count()
}

/// Writes the checksum of an IPv4 header.
pub fn fill_ipv4_checksum(header: &mut [u8]) {
    header[10..12].fill(0);
    let sum = ipv4_checksum(header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// RFC 791's header checksum, for a header whose checksum field is zero. A frame may end within the header, at an odd byte.
pub fn ipv4_checksum(header: &[u8]) -> u16 {
    let sum: u32 =
        header.chunks(2).map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low))).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}

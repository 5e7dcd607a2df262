//! Translation of ICMP errors, with the packets they quote (RFC 7915 sections 4.2, 4.3, 5.2, 5.3).
//!
//! They are written anew, so what comes with wrong checksums is dropped (RFC 5508 REQ-3). Extensions behind the quoted packet
//! (RFC 4884) go along as they are ([`super::extension`]).

use braid_nf::packet::headers::{Header, Ipv4, Ipv6};
use braid_nf::packet::parse::protocol;
use braid_nf::packet::{IpVersion, checksum};
use braid_nf::prelude::*;
use braid_nf::state::hash;

use super::Nat64;
use super::extension::{self, Layout};
use super::header::{self, Classes, NewHeader};
use super::icmp::{self, Message};
use super::rewrite::NO_ROOM;
use super::transport::{self, Addresses, NewPorts};
use crate::mappings::networks::Behind;
use crate::nat::{BAD_CHECKSUM, NO_MAPPING};
use crate::parts::forwarding::turn::turn;
use crate::parts::headers::version::write_version;

/// The other version has no corresponding error.
pub const NO_COUNTERPART: Reason = Reason("no_counterpart");

/// The maximum length of an error with its IP header, in bytes (RFC 4443 section 2.4 (c)).
const MOST: usize = 1280;
/// Length of an ICMP header, in bytes.
pub(super) const ICMP_LEN: usize = 8;

/// The new addresses and ports of an error and of the packet it quotes, and where it goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct ErrorRewrite {
    pub(super) ends: Addresses,
    pub(super) quoted: Addresses,
    /// Ports of the quoted packet.
    pub(super) ports: NewPorts,
    pub(super) to: Port,
    pub(super) behind: Behind,
}

impl Nat64 {
    pub(super) fn send_error(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, rewrite: &ErrorRewrite) -> Handled {
        if packet.ttl().is_some_and(|ttl| ttl <= 1) {
            return self.ttl_exceeded(cx, packet);
        }
        let to = rewrite.ends.0.version();
        if packet.is_short() {
            return Ok(Verdict::Drop(Reason::MALFORMED));
        }
        if !is_sound(packet) {
            return Ok(Verdict::Drop(BAD_CHECKSUM));
        }
        if to == IpVersion::V6 && packet.ip_version() == Some(IpVersion::V6) {
            return Ok(self.send_error_back_inside(cx, packet, rewrite));
        }
        let mut body = [0; MOST];
        let Some(message) = self.message(packet, to) else { return Ok(Verdict::Drop(NO_COUNTERPART)) };
        let Some(len) = self.compose(packet, rewrite, message, &mut body, cx.now()) else {
            return Ok(Verdict::Drop(NO_MAPPING));
        };
        let body = &mut body[..len];
        let number = if to == IpVersion::V4 { protocol::ICMP } else { protocol::ICMPV6 };
        let sum = match to {
            IpVersion::V4 => checksum::ipv4_header(body),
            IpVersion::V6 => checksum::transport(rewrite.ends.0, rewrite.ends.1, number, body),
        };
        body[2..4].copy_from_slice(&sum.to_be_bytes());
        let done = write_packet(packet, (rewrite.ends, self.settings.classes), number, body, cx.now());
        Ok(if done { self.leave(packet, rewrite.to, rewrite.behind) } else { Verdict::Drop(NO_ROOM) })
    }

    /// The ICMP message in the other version: type, code, and the word after the checksum.
    fn message(&self, packet: &Packet<'_>, to: IpVersion) -> Option<Message> {
        let message = packet.ip_payload();
        let [kind, code, _, _, rest @ ..] = *message.first_chunk::<ICMP_LEN>()?;
        let said = (kind, code, u32::from_be_bytes(rest));
        match to {
            IpVersion::V4 => icmp::to_v4(said, self.settings.mtus),
            IpVersion::V6 => {
                let quoted_len = Ipv4::parse(&message[ICMP_LEN..])?.total_len();
                icmp::to_v6(said, quoted_len, self.settings.mtus)
            }
        }
    }

    /// Writes the message with the quoted packet translated, and returns its length; `None` if the quoted packet cannot
    /// be translated.
    fn compose(
        &self,
        packet: &Packet<'_>,
        rewrite: &ErrorRewrite,
        (kind, code, rest): Message,
        body: &mut [u8; MOST],
        now: u64,
    ) -> Option<usize> {
        let (embedded, to) = (packet.embedded()?, rewrite.ends.0.version());
        let (quoted, extension) = extension::split(packet.ip_payload(), to.other())?;
        let header = quoted_header(quoted, rewrite, now)?;
        let (begin, carried) = (ICMP_LEN + header.bytes().len(), quoted.get(header.replaces..)?);
        let room = MOST - ICMP_LEN - to.header_len();
        let datagram = header.bytes().len() + carried.len().min(header.carried);
        let layout = Layout::new(kind, to, datagram, extension.len(), room);
        let (end, len) = (ICMP_LEN + layout.quoted, ICMP_LEN + layout.padded + layout.extension);
        body[..2].copy_from_slice(&[kind, code]);
        body[4..ICMP_LEN].copy_from_slice(&(rest | layout.length_field).to_be_bytes());
        body[ICMP_LEN..begin].copy_from_slice(header.bytes());
        body[begin..end].copy_from_slice(&carried[..end - begin]);
        body[ICMP_LEN + layout.padded..len].copy_from_slice(&extension[..layout.extension]);
        let old = (embedded.src_ip, embedded.dst_ip);
        let segment = &mut body[begin..end];
        let done = match embedded.protocol {
            number @ (protocol::TCP | protocol::UDP) => {
                transport::rewrite_ports(segment, number, old, rewrite.quoted, rewrite.ports)
            }
            _ => {
                let v6 = if to == IpVersion::V4 { old } else { rewrite.quoted };
                let id = rewrite.ports.source.or(rewrite.ports.destination)?;
                transport::rewrite_echo(segment, v6, to, header.carried, id)
            }
        };
        done.then_some(len)
    }

    /// Sends an error from one inside host to another about a hairpin, which stays ICMPv6.
    fn send_error_back_inside(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, rewrite: &ErrorRewrite) -> Verdict {
        packet.decrement_ttl();
        if let (Some(mut quoted), Some(source), Some(destination)) =
            (packet.embedded_mut(), rewrite.ports.source, rewrite.ports.destination)
        {
            quoted.set_src(rewrite.quoted.0, source);
            quoted.set_dst(rewrite.quoted.1, destination);
        }
        packet.set_src_ip(rewrite.ends.0);
        packet.set_dst_ip(rewrite.ends.1);
        if rewrite.to == packet.port() {
            turn(packet);
        }
        let way = self.way_back(cx, packet);
        let verdict = self.leave(packet, rewrite.to, rewrite.behind);
        way.send(cx, packet, verdict)
    }
}

/// Translates the quoted packet's header, with the TTL unchanged (RFC 7915 section 4.3).
fn quoted_header(quoted: &[u8], rewrite: &ErrorRewrite, now: u64) -> Option<NewHeader> {
    match (rewrite.quoted.0.v4(), rewrite.quoted.1.v4()) {
        (Some(source), Some(destination)) => header::to_v4(quoted, (source, destination), 0, now).ok(),
        _ => header::to_v6(quoted, rewrite.quoted, 0, usize::MAX).ok(),
    }
}

/// Whether the checksums of an error are correct: that of its message, and that of the IPv4 header it quotes.
fn is_sound(packet: &Packet<'_>) -> bool {
    let message = packet.ip_payload();
    if packet.ip_version() == Some(IpVersion::V6) {
        return checksum::transport_ok(packet.src_ip(), packet.dst_ip(), protocol::ICMPV6, message);
    }
    let header = message.get(ICMP_LEN..).unwrap_or_default();
    let len = header.first().map_or(0, |byte| usize::from(byte & 15) * 4);
    packet.checksums_ok() && header.get(..len).is_none_or(checksum::ipv4_header_ok)
}

/// Writes a packet anew after its link header, with the TTL decremented and the same traffic class, unless another one is wanted. False if there is no
/// room.
fn write_packet(
    packet: &mut Packet<'_>,
    (ends, classes): (Addresses, Classes),
    number: u8,
    body: &[u8],
    now: u64,
) -> bool {
    let (l3, ttl, link) = (packet.record().l3 as usize, packet.ttl().unwrap_or(1) - 1, packet.link());
    let class = match packet.ipv4() {
        Some(ip) => ip.dscp() << 2 | ip.ecn(),
        None => packet.ipv6().map_or(0, |ip| ip.traffic_class()),
    };
    let len = ends.0.version().header_len();
    if !packet.set_len(l3 + len + body.len()) || !write_version(packet.change(0..l3), ends.0.version(), Some(link)) {
        return false;
    }
    let rest = packet.change(l3..usize::MAX);
    match (ends.0.v4(), ends.1.v4()) {
        (Some(source), Some(destination)) => {
            let mut ip = Ipv4::new(number, body.len() as u16);
            ip.set_source(source);
            ip.set_destination(destination);
            ip.set_tos(classes.v4.unwrap_or(class));
            ip.set_ttl(ttl);
            ip.set_identification(hash::mixed(&body[..body.len().min(40)], now) as u16);
            ip.emit(rest);
            ip.set_checksum(checksum::ipv4_header(&rest[..Ipv4::LEN]));
            ip.emit(rest);
        }
        _ => {
            let mut ip = Ipv6::new(number, body.len() as u16);
            ip.set_source(ends.0.octets());
            ip.set_destination(ends.1.octets());
            ip.set_traffic_class(classes.v6.unwrap_or(class));
            ip.set_hop_limit(ttl);
            ip.emit(rest);
        }
    }
    rest[len..].copy_from_slice(body);
    packet.reparse();
    true
}

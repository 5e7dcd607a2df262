//! Packets that a function sends as answers: ICMP errors, TCP segments and UDP datagrams.
//!
//! They leave by the port on which the packet that caused them arrived. An answer refers to that packet as this function saw
//! it; functions earlier in the chain that had changed the packet undo their changes on the answer ([`Cx::emit_back`]).
//!
//! An answer has the link header of its cause, tags included, with the Ethernet addresses exchanged. Packets that must not be
//! answered are not (RFC 1122 section 3.2.2, RFC 4443 section 2.4 (e)): ICMP errors, later fragments, group addresses, and
//! links whose header has a length field of its own. `answer_rate.rs` limits how many are sent.

use std::net::{Ipv4Addr, Ipv6Addr};

use braid_nf::packet::headers::{
    Header, Icmp, Icmpv6, Ipv4, Ipv6, Tcp, Udp, View, ether_type, icmp_type, icmpv6_type, tcp_flags,
};
use braid_nf::packet::parse::protocol;
use braid_nf::packet::{IpAddress, IpVersion, Link, checksum};
use braid_nf::{Cx, Packet, Port};

use crate::config::ConfigError;
use crate::parts::headers::scope::{is_host_v4, is_routed_v6, is_unicast_v4};

/// The most bytes of an IPv4 error (RFC 1812 section 4.3.2.3) and of an IPv6 error (RFC 4443 section 2.4 (c)).
const MOST: [usize; 2] = [576, 1280];
/// Room for the longest answer and its link header.
const ROOM: usize = 1280 + 256;

/// The source addresses of ICMP errors that a function sends as a router, for example "time exceeded".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Router {
    /// The source of ICMP errors.
    pub v4: IpAddress,
    /// The source of ICMPv6 errors; without one, no ICMPv6 error is sent.
    pub v6: Option<IpAddress>,
}

impl Router {
    /// Checks the addresses that a plan gives under the two keys.
    pub fn check(
        (key_v4, v4): (&str, Ipv4Addr),
        (key_v6, v6): (&str, Option<Ipv6Addr>),
    ) -> Result<Router, ConfigError> {
        let wrong = |key: &str, reason: String| {
            Err(ConfigError::new(key, reason, "write an address that this function may call its own"))
        };
        if !is_host_v4(v4.octets()) {
            return wrong(key_v4, format!("{v4} is no host's address"));
        }
        match v6.filter(|v6| !is_routed_v6((*v6).into())) {
            Some(v6) => wrong(key_v6, format!("{v6} is no host's address beyond its link")),
            None => Ok(Router { v4: v4.into(), v6: v6.map(IpAddress::from) }),
        }
    }
}

/// Tells the sender that the packet's time to live or hop limit expired here.
#[cold]
pub fn time_exceeded(cx: &mut Cx<'_>, packet: &Packet<'_>, router: Router) {
    match packet.ip_version() {
        Some(IpVersion::V4) => error(cx, packet, router.v4, (icmp_type::TIME_EXCEEDED, 0), 0),
        Some(IpVersion::V6) => {
            if let Some(address) = router.v6 {
                error(cx, packet, address, (icmpv6_type::TIME_EXCEEDED, 0), 0);
            }
        }
        None => {}
    }
}

/// Tells the sender that the packet was not let through: "administratively prohibited", whatever its protocol (RFC 5508 REQ-8).
#[cold]
pub fn prohibited(cx: &mut Cx<'_>, packet: &Packet<'_>, router: Router) {
    match packet.ip_version() {
        Some(IpVersion::V4) => error(cx, packet, router.v4, (icmp_type::UNREACHABLE, 13), 0),
        Some(IpVersion::V6) => {
            if let Some(address) = router.v6 {
                error(cx, packet, address, (icmpv6_type::UNREACHABLE, 1), 0);
            }
        }
        None => {}
    }
}

/// Tells an IPv6 sender that there is no route for its packet (RFC 4443 section 3.1, code 0).
#[cold]
pub fn no_route(cx: &mut Cx<'_>, packet: &Packet<'_>, router: Router) {
    if let Some(address) = router.v6 {
        error(cx, packet, address, (icmpv6_type::UNREACHABLE, 0), 0);
    }
}

/// Tells the sender that its packet is longer than `mtu`, the longest packet that can be sent on (RFC 1191 section 4, RFC 4443
/// section 3.2). An IPv4 sender that allows fragmentation is not told.
#[cold]
pub fn too_big(cx: &mut Cx<'_>, packet: &Packet<'_>, router: Router, mtu: u16) {
    let mtu = u32::from(mtu);
    match (packet.ipv4(), router.v6) {
        (Some(ip), _) if ip.dont_fragment() => {
            error(cx, packet, router.v4, (icmp_type::UNREACHABLE, 4), mtu);
        }
        // No IPv6 link has a smaller MTU (RFC 8200 section 5).
        (None, Some(address)) => error(cx, packet, address, (icmpv6_type::PACKET_TOO_BIG, 0), mtu.max(1280)),
        _ => {}
    }
}

/// Rejects a packet: with a reset from its destination for TCP (RFC 9293 section 3.5.2), with "administratively prohibited" from
/// the address `from` for everything else (RFC 1812 section 5.2.7.1, RFC 4443 section 3.1). A damaged packet is not answered: the
/// connection that it names may be another one (RFC 9293 section 3.1, RFC 1122 section 4.1.3.4).
#[cold]
pub fn refuse(cx: &mut Cx<'_>, packet: &Packet<'_>, from: IpAddress) {
    match packet.protocol() {
        protocol::TCP if packet.checksums_ok() => reset(cx, packet),
        protocol::TCP => {}
        _ => unreachable(cx, packet, from, [13, 1]),
    }
}

/// Rejects a packet with "destination unreachable" from the address `from`, with the given code of ICMP or ICMPv6; not a damaged one.
#[cold]
pub fn unreachable(cx: &mut Cx<'_>, packet: &Packet<'_>, from: IpAddress, [v4, v6]: [u8; 2]) {
    match packet.ip_version() {
        _ if !packet.checksums_ok() => {}
        Some(IpVersion::V4) => error(cx, packet, from, (icmp_type::UNREACHABLE, v4), 0),
        Some(IpVersion::V6) => error(cx, packet, from, (icmpv6_type::UNREACHABLE, v6), 0),
        None => {}
    }
}

/// Sends an ICMP error of this type and code back, with source address `from`. `word` is what follows the checksum, such as an
/// MTU or a pointer.
#[cold]
pub fn error(cx: &mut Cx<'_>, packet: &Packet<'_>, from: IpAddress, (kind, code): (u8, u8), word: u32) {
    let Some(quoted) = datagram(packet).filter(|_| may_be_answered(packet)) else { return };
    error_to(cx, &Cause::of(packet), quoted, from, (kind, code), word);
}

/// Like [`error`], for a packet that [`may_be_answered`] and of which only the link header and the bytes to quote are left.
#[cold]
pub fn error_to(cx: &mut Cx<'_>, cause: &Cause<'_>, quoted: &[u8], from: IpAddress, (kind, code): (u8, u8), word: u32) {
    let is_v6 = !cause.sender.is_v4();
    let mut body = [0; MOST[1]];
    let most = MOST[usize::from(is_v6)] - if is_v6 { Ipv6::LEN } else { Ipv4::LEN };
    let len = most.min(Icmp::LEN + quoted.len());
    body[Icmp::LEN..len].copy_from_slice(&quoted[..len - Icmp::LEN]);
    body[..2].copy_from_slice(&[kind, code]);
    body[4..8].copy_from_slice(&word.to_be_bytes());
    let number = if is_v6 { protocol::ICMPV6 } else { protocol::ICMP };
    answer(cx, cause, from, number, &mut body[..len]);
}

/// What is being answered: the port it arrived on, its sender and its link header.
#[derive(Clone, Copy, Debug)]
pub struct Cause<'a> {
    /// The port on which the packet arrived.
    pub port: Port,
    /// For a packet that was held: the port by which it would have left.
    pub was_going: Option<Port>,
    /// The sender of the packet.
    pub sender: IpAddress,
    /// The link header as received.
    pub link: &'a [u8],
    /// Whether the link header begins with Ethernet addresses.
    pub is_ethernet: bool,
}

impl<'a> Cause<'a> {
    /// Takes the cause from a packet.
    pub fn of(packet: &'a Packet<'_>) -> Cause<'a> {
        Cause {
            port: packet.port(),
            was_going: None,
            sender: packet.src_ip(),
            link: packet.bytes().get(..packet.record().l3 as usize).unwrap_or_default(),
            is_ethernet: packet.ethernet().is_some(),
        }
    }
}

fn reset(cx: &mut Cx<'_>, packet: &Packet<'_>) {
    if let Some(tcp) = packet.tcp()
        && may_be_answered(packet)
    {
        reset_to(cx, &Cause::of(packet), packet.dst_ip(), tcp, packet.payload().len());
    }
}

/// Resets a TCP connection in the name of `from`, in answer to a segment with `payload` bytes of payload whose packet
/// [`may_be_answered`].
pub fn reset_to(cx: &mut Cx<'_>, cause: &Cause<'_>, from: IpAddress, tcp: View<'_, Tcp>, payload: usize) {
    if tcp.has(tcp_flags::RST) {
        return;
    }
    let mut header = Tcp::new(tcp.destination_port(), tcp.source_port());
    if tcp.has(tcp_flags::ACK) {
        header.set_sequence(tcp.acknowledgement());
        header.set_flags(tcp_flags::RST);
    } else {
        let controls = u32::from(tcp.has(tcp_flags::SYN)) + u32::from(tcp.has(tcp_flags::FIN));
        header.set_acknowledgement(tcp.sequence().wrapping_add(payload as u32 + controls));
        header.set_flags(tcp_flags::RST | tcp_flags::ACK);
    }
    let mut body = [0; Tcp::LEN];
    header.emit(&mut body);
    answer(cx, cause, from, protocol::TCP, &mut body);
}

/// Answers a TCP segment in the name of its destination with another segment: header and options, with a checksum of zero.
pub fn segment(cx: &mut Cx<'_>, cause: &Packet<'_>, segment: &mut [u8]) {
    if may_be_answered(cause) {
        answer(cx, &Cause::of(cause), cause.dst_ip(), protocol::TCP, segment);
    }
}

/// The most bytes of payload that [`udp`] sends: an IPv6 packet of the least MTU (RFC 8200 section 5) has room for them.
pub const UDP_PAYLOAD_MAX: usize = 1280 - Ipv6::LEN - Udp::LEN;

/// Answers a UDP datagram in the name of its destination: `payload` goes back to where the datagram came from. False if nothing was
/// sent, because the packet is no UDP datagram or must not be answered, or the payload is longer than [`UDP_PAYLOAD_MAX`].
pub fn udp(cx: &mut Cx<'_>, cause: &Packet<'_>, payload: &[u8]) -> bool {
    let ports = cause.udp().map(|asked| (asked.destination_port(), asked.source_port()));
    let Some((from, to)) = ports.filter(|_| payload.len() <= UDP_PAYLOAD_MAX && may_be_answered(cause)) else {
        return false;
    };
    let mut body = [0; Udp::LEN + UDP_PAYLOAD_MAX];
    let body = &mut body[..Udp::LEN + payload.len()];
    Udp::new(from, to, payload.len() as u16).emit(body);
    body[Udp::LEN..].copy_from_slice(payload);
    answer(cx, &Cause::of(cause), cause.dst_ip(), protocol::UDP, body);
    true
}

/// The precedence of ICMP errors (RFC 1812 section 4.3.2.5).
pub const INTERNETWORK_CONTROL: u8 = 6 << 5;

/// Puts headers before `body`, fills in its checksum, which is zero so far, and sends the packet.
fn answer(cx: &mut Cx<'_>, cause: &Cause<'_>, from: IpAddress, number: u8, body: &mut [u8]) {
    let to = cause.sender;
    let at = match number {
        protocol::TCP => 16,
        protocol::UDP => 6,
        _ => 2,
    };
    let sum = match number {
        protocol::ICMP => checksum::ipv4_header(body),
        protocol::UDP => checksum::udp_zero(checksum::transport(from, to, number, body)),
        _ => checksum::transport(from, to, number, body),
    };
    body[at..at + 2].copy_from_slice(&sum.to_be_bytes());

    let mut frame = [0; ROOM];
    let link = cause.link.len();
    frame[..link].copy_from_slice(cause.link);
    if cause.is_ethernet {
        frame[..6].copy_from_slice(&cause.link[6..12]);
        frame[6..12].copy_from_slice(&cause.link[..6]);
    }
    let rest = &mut frame[link..];
    let header = match (from.v4(), to.v4()) {
        (Some(from), Some(to)) => {
            let mut ip = Ipv4::new(number, body.len() as u16);
            if number == protocol::ICMP {
                ip.set_tos(INTERNETWORK_CONTROL);
            }
            ip.set_source(from);
            ip.set_destination(to);
            ip.emit(rest);
            let sum = checksum::ipv4_header(&rest[..Ipv4::LEN]);
            ip.set_checksum(sum);
            ip.emit(rest);
            Ipv4::LEN
        }
        (None, None) => {
            let mut ip = Ipv6::new(number, body.len() as u16);
            ip.set_source(from.octets());
            ip.set_destination(to.octets());
            ip.emit(rest);
            Ipv6::LEN
        }
        _ => return,
    };
    rest[header..header + body.len()].copy_from_slice(body);
    let frame = &frame[..link + header + body.len()];
    match cause.was_going {
        None => cx.emit_back(cause.port, frame),
        Some(was_going) => cx.emit_held_back(was_going, cause.port, frame),
    }
}

/// The packet from its IP header on, without link padding.
pub fn datagram<'p>(packet: &'p Packet<'_>) -> Option<&'p [u8]> {
    let promised = match packet.ipv4() {
        Some(ip) => usize::from(ip.total_len()),
        None => Ipv6::LEN + usize::from(packet.ipv6()?.payload_len()),
    };
    let bytes = packet.bytes().get(packet.record().l3 as usize..)?;
    bytes.get(..promised.min(bytes.len()))
}

/// Whether errors may be sent in answer to a packet.
pub fn may_be_answered(packet: &Packet<'_>) -> bool {
    let plain_link = match packet.link() {
        Link::Ethernet => {
            let group = packet.ethernet().is_none_or(|ethernet| ethernet.destination().is_group());
            !group && matches!(packet.ether_type(), Some(ether_type::IPV4 | ether_type::IPV6))
        }
        _ => true,
    };
    let is_host = match (packet.src_ip().v4(), packet.dst_ip().v4()) {
        (Some(source), Some(destination)) => is_unicast_v4(source, destination),
        _ => {
            let is_group = |address: IpAddress| address.octets()[0] == 0xff;
            !is_group(packet.dst_ip()) && !is_group(packet.src_ip()) && packet.src_ip() != IpAddress::UNSPECIFIED
        }
    };
    let is_error = packet.icmp().is_some_and(|icmp| icmp.is_error())
        || packet.icmpv6().is_some_and(|icmp: View<'_, Icmpv6>| icmp.is_error());
    // In IPv4 only first fragments are answered (RFC 1122 section 3.2.2). In IPv6 all are (RFC 4443 section 2.4 (e)), except where
    // they may belong to an error.
    let is_exempt = packet.is_later_fragment() && (packet.src_ip().is_v4() || packet.protocol() == protocol::ICMPV6);
    // A packet with a damaged header may have a forged source (RFC 1812 section 4.3.2.7).
    plain_link && is_host && !is_error && !is_exempt && packet.header_checksum_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_nf::prelude::*;
    use braid_testkit::{Bench, Frame};

    network_function! {
        /// Sends UDP datagrams back, with `extra` bytes more.
        struct Echo { extra: u64 }
    }

    impl NetworkFunction for Echo {
        type Set = ();
        const NAME: &'static str = "echo";

        fn orphan(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
            let payload = [packet.payload(), &vec![7; self.extra as usize]].concat();
            Ok(if udp(cx, packet, &payload) { Verdict::Drop(Reason("answered")) } else { cx.pass() })
        }
    }

    fn bench(extra: u64) -> Bench {
        Bench::new(2, |_| Box::new(braid_nf::Instance::new("echo", Echo { extra })))
    }

    #[test]
    fn a_datagram_is_answered_over_both_versions_with_its_tags() {
        let v4 = (["10.0.0.1:5", "192.0.2.1:53"], Ipv4::LEN);
        let v6 = (["[2001:db8::1]:5", "[2001:db8::2]:53"], Ipv6::LEN);
        for ([asks, answers], header) in [v4, v6] {
            let asked = Frame::udp(asks, answers).vlan(7).payload(b"who");
            let expected = Frame::udp(answers, asks).vlan(7).payload(b"who\x07").bytes();
            let sent = bench(1).send(0, 0, &asked.bytes());
            assert_eq!(sent.dropped, Some("answered"));
            let (port, made) = sent.only();
            // The Ethernet types and the tag, and what follows the IP header; the checksum has its addresses in it.
            let parts = |frame: &[u8]| [frame[12..18].to_vec(), frame[18 + header..].to_vec()];
            assert_eq!((port, parts(made)), (0, parts(&expected)), "{asks}");
        }
    }

    #[test]
    fn what_is_no_datagram_or_has_no_room_is_not_answered() {
        assert_eq!(bench(0).send(0, 0, &Frame::tcp("10.0.0.1:5", "192.0.2.1:53").bytes()).ports(), [1]);
        let asked = Frame::udp("10.0.0.1:5", "192.0.2.1:53").bytes();
        assert_eq!(bench(UDP_PAYLOAD_MAX as u64).send(0, 0, &asked).dropped, Some("answered"));
        assert_eq!(bench(UDP_PAYLOAD_MAX as u64 + 1).send(0, 0, &asked).ports(), [1]);
    }
}

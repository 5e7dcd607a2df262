//! Direct server return: a packet goes to its backend whole, within another IP packet, and the backend answers the client itself.
//!
//! ```text
//! | link | outer IP: router > backend | GRE or UDP | IP: client > service | … |
//! ```
//!
//! Or it goes as it is, and only its frame is addressed anew (direct routing): the backend is on the link.
//!
//! The outer packet has the inner one's traffic class (RFC 6040 section 4.1), may not be fragmented, and gets 64 hops. A packet that
//! has no room within the MTU is dropped, and its sender is told (RFC 2003 section 5.1, RFC 1191, RFC 8201); one that may be cut is
//! put into an outer packet that is cut, and the backend puts that together.

use braid_nf::packet::headers::{Gre, Header, Ipv4, Ipv6, Udp, ether_type};
use braid_nf::packet::parse::protocol;
use braid_nf::packet::{IpAddress, IpVersion, MacAddress, checksum};
use braid_nf::prelude::*;
use braid_nf::state::hash;

use super::LoadBalancer;
use super::config::Mode;
use super::settings::Server;
use crate::parts::answer;
use crate::router::fragment;

/// Within a tunnel it would be longer than the MTU.
pub const TOO_BIG: Reason = Reason("too_big");
/// The buffer has no room for an outer header, or there is no address to send from; or no Ethernet header to address anew.
pub const NO_TUNNEL: Reason = Reason("no_tunnel");

/// So many bytes of a packet make its identification.
const HASHED: usize = 40;
/// Where generic UDP encapsulation is listened for.
const GUE_PORT: u16 = 6080;
/// Protocol numbers of IPv4 and of IPv6 within IP.
const IP_IN_IP: [u8; 2] = [4, 41];

impl LoadBalancer {
    /// Sends a packet to its backend, whole.
    pub(super) fn send_whole(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, server: &Server) -> Handled {
        let (to, mode) = (server.address, server.mode);
        if mode == Mode::Direct {
            return Ok(self.send_direct(packet, server.mac));
        }
        let v6 = packet.ip_version() == Some(IpVersion::V6);
        let overhead = overhead(mode, v6);
        let l3 = packet.record().l3 as usize;
        let Some(inner) = inner_len(packet) else { return Ok(Verdict::Drop(Reason::MALFORMED)) };
        let is_long = inner + overhead > usize::from(self.settings.mtu);
        if is_long && packet.ipv4().is_none_or(|ip| ip.dont_fragment()) {
            if self.answers.admits(cx, packet)? {
                answer::too_big(cx, packet, self.settings.router, self.settings.mtu - overhead as u16);
            }
            return Ok(Verdict::Drop(TOO_BIG));
        }
        let from = if v6 { self.settings.router.v6 } else { Some(self.settings.router.v4) };
        let entropy = self.entropy(packet);
        let class = traffic_class(packet);
        // What may be cut needs an identification that its neighbours do not have (RFC 6864 section 4.2).
        let piecewise =
            is_long.then(|| hash::mixed(&packet.bytes()[l3..packet.len().min(l3 + HASHED)], cx.now()) as u16);
        let (Some(from), true) = (from, packet.push_front(overhead)) else { return Ok(Verdict::Drop(NO_TUNNEL)) };
        let frame = packet.bytes_mut();
        frame.copy_within(overhead..overhead + l3, 0);
        let (number, carried) = write_inner_header(mode, v6, frame, (l3, overhead), inner, (from, to, entropy));
        write_outer(&mut frame[l3..], (number, carried), class, (from, to), piecewise);
        packet.reparse();
        let across = self.settings.across(packet.port());
        let fits = !is_long || fragment::cut(cx, packet, across, self.settings.mtu);
        Ok(if fits { Verdict::Forward(across) } else { Verdict::Drop(TOO_BIG) })
    }

    /// Sends a frame on to a backend on the same link, in the name of whom the client's router took for the service.
    fn send_direct(&self, packet: &mut Packet<'_>, mac: MacAddress) -> Verdict {
        let across = self.settings.across(packet.port());
        let Some(ethernet) = packet.ethernet_mut() else { return Verdict::Drop(NO_TUNNEL) };
        let own = ethernet.destination();
        ethernet.set_source(own);
        ethernet.set_destination(mac);
        Verdict::Forward(across)
    }

    /// A number that is the same for all packets of a flow, for routers that spread by ports.
    fn entropy(&self, packet: &Packet<'_>) -> u16 {
        let (source, destination) = packet.ports().unwrap_or_default();
        let mut name = [0; 20];
        name[..16].copy_from_slice(&packet.src_ip().octets());
        name[16..18].copy_from_slice(&source.to_be_bytes());
        name[18..].copy_from_slice(&destination.to_be_bytes());
        // From the dynamic ports (RFC 6335 section 6).
        0xc000 | (hash::mixed(&name, 0) >> 48) as u16
    }
}

/// Bytes of all outer headers.
fn overhead(mode: Mode, v6: bool) -> usize {
    let ip = if v6 { Ipv6::LEN } else { Ipv4::LEN };
    ip + match mode {
        Mode::Nat | Mode::Ipip | Mode::Direct => 0,
        Mode::Gre => Gre::LEN,
        Mode::Gue => Udp::LEN,
    }
}

/// Bytes of the IP packet, as its header promises.
fn inner_len(packet: &Packet<'_>) -> Option<usize> {
    match packet.ipv4() {
        Some(ip) => Some(ip.total_len().into()),
        None => Some(usize::from(packet.ipv6()?.payload_len()) + Ipv6::LEN),
    }
}

fn traffic_class(packet: &Packet<'_>) -> u8 {
    match packet.ipv4() {
        Some(ip) => ip.dscp() << 2 | ip.ecn(),
        None => packet.ipv6().map_or(0, |ip| ip.traffic_class()),
    }
}

/// Writes what stands between the outer and the inner IP header; says which protocol the outer one carries, and how many bytes.
fn write_inner_header(
    mode: Mode,
    v6: bool,
    frame: &mut [u8],
    (l3, overhead): (usize, usize),
    inner: usize,
    (from, to, entropy): (IpAddress, IpAddress, u16),
) -> (u8, usize) {
    let inner_at = l3 + overhead;
    match mode {
        Mode::Nat | Mode::Ipip | Mode::Direct => (if v6 { IP_IN_IP[1] } else { IP_IN_IP[0] }, inner),
        Mode::Gre => {
            let kind = if v6 { ether_type::IPV6 } else { ether_type::IPV4 };
            frame[inner_at - Gre::LEN..inner_at].copy_from_slice(&[0, 0, (kind >> 8) as u8, kind as u8]);
            (protocol::GRE, inner + Gre::LEN)
        }
        Mode::Gue => {
            let len = inner + Udp::LEN;
            let mut udp = [0; Udp::LEN];
            let words = [entropy, GUE_PORT, len as u16, 0];
            udp.chunks_exact_mut(2).zip(words).for_each(|(bytes, word)| bytes.copy_from_slice(&word.to_be_bytes()));
            let at = inner_at - Udp::LEN;
            frame[at..inner_at].copy_from_slice(&udp);
            // IPv4 needs no checksum here (RFC 768), IPv6 does (RFC 8200 section 8.1).
            if v6 && let Some(datagram) = frame.get(at..at + len) {
                let sum = checksum::transport(from, to, protocol::UDP, datagram);
                frame[at + 6..at + 8].copy_from_slice(&sum.to_be_bytes());
            }
            (protocol::UDP, len)
        }
    }
}

/// Writes the outer IP header to the front of `bytes`; with an identification it may be cut.
fn write_outer(
    bytes: &mut [u8],
    (number, carried): (u8, usize),
    class: u8,
    (from, to): (IpAddress, IpAddress),
    piecewise: Option<u16>,
) {
    match (from.v4(), to.v4()) {
        (Some(from), Some(to)) => {
            let mut ip = Ipv4::new(number, carried as u16);
            ip.set_source(from);
            ip.set_destination(to);
            ip.set_tos(class);
            // What may not be fragmented needs no identification (RFC 6864 section 4.1).
            ip.set_identification(piecewise.unwrap_or(0));
            ip.set_fragment(piecewise.is_none(), false, 0);
            ip.emit(bytes);
            let sum = checksum::ipv4_header(&bytes[..Ipv4::LEN]);
            ip.set_checksum(sum);
            ip.emit(bytes);
        }
        _ => {
            let mut ip = Ipv6::new(number, carried as u16);
            ip.set_source(from.octets());
            ip.set_destination(to.octets());
            ip.set_traffic_class(class);
            ip.emit(bytes);
        }
    }
}

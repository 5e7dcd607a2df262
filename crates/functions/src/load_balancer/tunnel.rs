//! Direct server return: a backend gets the client's packet whole, in another IP packet, and answers the client itself.
//!
//! ```text
//! | link | outer IP: router > backend | GRE or UDP | IP: client > service | … |
//! ```
//!
//! With direct routing the backend is on the link: the packet stays as it is, and only its frame gets new addresses.
//!
//! The outer packet takes the inner one's traffic class (RFC 6040 section 4.1), forbids fragmentation and has a hop limit
//! of 64. If the encapsulated packet exceeds the MTU it is dropped and its sender is told (RFC 2003 section 5.1, RFC
//! 1191, RFC 8201), unless it may be fragmented: then the outer packet is fragmented, and the backend reassembles it. The
//! outer header is of the backend's IP version, the inner one of the service's. IPv4 in IPv6 is fragmented before
//! encapsulation. IPv6 packets of at most 1280 bytes in IPv4 are fragmented as outer packets, because every IPv6 link
//! carries that much (RFC 4213 section 3.2.2).

use braid_nf::Port;
use braid_nf::packet::headers::{Gre, Header, Ipv4, Ipv6, Udp, ether_type};
use braid_nf::packet::parse::protocol;
use braid_nf::packet::{IpAddress, IpVersion, Link, MacAddress, checksum};
use braid_nf::prelude::*;
use braid_nf::state::hash;

use super::LoadBalancer;
use super::config::Mode;
use super::settings::Server;
use crate::parts::answers::answer;
use crate::parts::headers::version::write_version;
use crate::router::fragment;

/// The packet exceeds the MTU of its tunnel.
pub const TOO_BIG: Reason = Reason("too_big");
/// The buffer has no room for an outer header, there is no source address for the tunnel, or there is no Ethernet header
/// to rewrite.
pub const NO_TUNNEL: Reason = Reason("no_tunnel");

/// How many bytes of a packet are hashed for its identification.
const HASHED: usize = 40;
/// The UDP port of generic UDP encapsulation.
pub(super) const GUE_PORT: u16 = 6080;
/// Protocol numbers of IPv4 in IP and of IPv6 in IP.
pub(super) const IP_IN_IP: [u8; 2] = [4, 41];

/// IPv6's minimum MTU, in bytes (RFC 8200 section 5).
const LEAST_V6: usize = 1280;

/// The maximum length of all outer headers, in bytes.
const OVERHEAD_MAX: usize = Ipv6::LEN + Udp::LEN;

impl LoadBalancer {
    /// Sends a whole packet to its backend, encapsulated or in a readdressed frame.
    pub(super) fn send_whole(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, server: &Server) -> Handled {
        let port = self.settings.to_backends(packet.port());
        if server.mode == Mode::Direct {
            return Ok(send_direct(packet, server.mac, port));
        }
        let l3 = usize::from(packet.record().l3);
        let Some(inner) = packet.bytes().get(l3..).and_then(Inner::read) else {
            return Ok(Verdict::Drop(Reason::MALFORMED));
        };
        let overhead = overhead(server.mode, server.address.version());
        let needs = inner.len + overhead;
        let mtu = self.mtu_to(cx, server, (inner.version, needs))?;
        let cut = if needs > usize::from(mtu) { inner.cut(server) } else { Cut::Nothing };
        if cut == Cut::Forbidden {
            if self.answers.admits(cx, packet)? {
                answer::too_big(cx, packet, self.settings.router, mtu - overhead as u16);
            }
            return Ok(Verdict::Drop(TOO_BIG));
        }
        let (flow, origin) = (FlowName::of(packet), Origin::of(packet));
        if cut == Cut::Inner {
            let room = mtu - overhead as u16;
            let send = |piece: &[u8]| {
                self.send_piece(cx, &origin, (server, mtu), (piece, l3));
            };
            if !fragment::cut_by(packet, room, send) {
                return Ok(Verdict::Drop(TOO_BIG));
            }
        }
        let is_long = cut == Cut::Outer;
        let Some(inner) = packet.bytes().get(l3..).and_then(Inner::read) else {
            return Ok(Verdict::Drop(Reason::MALFORMED));
        };
        let tunnel = self.tunnel(cx, server, (inner, is_long), flow);
        let Some(tunnel) = tunnel.filter(|_| packet.push_front(overhead)) else {
            return Ok(Verdict::Drop(NO_TUNNEL));
        };
        let frame = packet.bytes_mut();
        frame.copy_within(overhead..overhead + l3, 0);
        if !tunnel.write(frame, l3, origin.link) {
            return Ok(Verdict::Drop(NO_TUNNEL));
        }
        packet.reparse();
        let fits = !is_long || fragment::cut(cx, packet, port, mtu);
        Ok(if fits { Verdict::Forward(port) } else { Verdict::Drop(TOO_BIG) })
    }

    /// Does the same for a piece that waited for the first fragment of its datagram: a frame, and the offset of its IP
    /// header. `mtu` is the path MTU. Returns false, and drops the piece, if it does not fit and may not be fragmented:
    /// its sender was told about the first.
    pub(super) fn send_piece(
        &self,
        cx: &mut Cx<'_>,
        origin: &Origin,
        (server, mtu): (&Server, u16),
        (piece, l3): (&[u8], usize),
    ) -> bool {
        let port = self.settings.to_backends(origin.port);
        let mut room = [0; fragment::ROOM + OVERHEAD_MAX];
        if server.mode == Mode::Direct {
            let frame = &mut room[..piece.len()];
            frame.copy_from_slice(piece);
            let is_done = origin.link == Link::Ethernet && address(frame, server.mac);
            if is_done {
                cx.emit_onward(port, frame);
            }
            return is_done;
        }
        let Some(inner) = Inner::read(&piece[l3..]) else { return false };
        let overhead = overhead(server.mode, server.address.version());
        let cut = if inner.len + overhead > usize::from(mtu) { inner.cut(server) } else { Cut::Nothing };
        match cut {
            Cut::Forbidden => return false,
            Cut::Inner => {
                let send = |part: &[u8]| {
                    self.send_piece(cx, origin, (server, mtu), (part, l3));
                };
                return fragment::cut_frame(piece, l3, mtu - overhead as u16, send);
            }
            Cut::Nothing | Cut::Outer => {}
        }
        let tunnel = self.tunnel(cx, server, (inner, cut == Cut::Outer), origin.flow);
        let (Some(tunnel), Some(frame)) = (tunnel, room.get_mut(..overhead + piece.len())) else { return false };
        frame[..l3].copy_from_slice(&piece[..l3]);
        frame[overhead + l3..].copy_from_slice(&piece[l3..]);
        if !tunnel.write(frame, l3, origin.link) {
            return false;
        }
        if cut == Cut::Outer {
            return fragment::cut_frame(frame, l3, mtu, |part| cx.emit_onward(port, part));
        }
        cx.emit_onward(port, frame);
        true
    }

    /// Builds the tunnel for a packet of a flow to a backend. `is_long` says that the outer packet is to be fragmented. `None` if there is
    /// no source address for the tunnel.
    fn tunnel(
        &self,
        cx: &Cx<'_>,
        server: &Server,
        (inner, is_long): (Inner<'_>, bool),
        flow: FlowName,
    ) -> Option<Tunnel> {
        let from = if server.address.is_v4() { self.settings.router.v4 } else { self.settings.router.v6? };
        // A packet that may be fragmented needs an identification that its neighbours do not share (RFC 6864 section
        // 4.2).
        let name = &inner.bytes[..inner.bytes.len().min(HASHED)];
        let identification = is_long.then(|| hash::mixed(name, cx.now()) as u16);
        let entropy = flow.entropy();
        let (mode, to) = (server.mode, server.address);
        let Inner { len, class, version: carries, .. } = inner;
        Some(Tunnel { mode, from, to, carries, len, class, entropy, identification })
    }
}

/// Sends a frame on to a backend on the same link, with the address that the client's router sent it to as its source.
fn send_direct(packet: &mut Packet<'_>, mac: MacAddress, port: Port) -> Verdict {
    let is_done = packet.ethernet().is_some() && address(packet.change(0..2 * MAC), mac);
    if is_done { Verdict::Forward(port) } else { Verdict::Drop(NO_TUNNEL) }
}

/// Length of an Ethernet address, in bytes.
const MAC: usize = 6;

/// Makes a frame's destination its source, and the backend its destination. False if the frame is too short.
fn address(frame: &mut [u8], mac: MacAddress) -> bool {
    let Some(addresses) = frame.get_mut(..2 * MAC) else { return false };
    addresses.copy_within(..MAC, MAC);
    addresses[..MAC].copy_from_slice(&mac.0);
    true
}

/// Which flow a packet belongs to, as outer headers show it: routers and network cards spread flows by these.
#[derive(Clone, Copy)]
struct FlowName {
    client: IpAddress,
    /// The client's port and the service's; 0 of a fragment, all of which have to go the same way.
    ports: (u16, u16),
}

impl FlowName {
    /// The flow of a packet; of an ICMP error that of the packet it quotes, which a service has sent to a client.
    fn of(packet: &Packet<'_>) -> FlowName {
        if let Some(quoted) = packet.embedded() {
            let (service, client) = quoted.ports.unwrap_or_default();
            return FlowName { client: quoted.dst_ip, ports: (client, service) };
        }
        let ports = packet.ports().filter(|_| !packet.is_fragment());
        FlowName { client: packet.src_ip(), ports: ports.unwrap_or_default() }
    }

    /// A number that is the same for all packets of the flow.
    fn entropy(self) -> u64 {
        let mut name = [0; 20];
        name[..16].copy_from_slice(&self.client.octets());
        name[16..18].copy_from_slice(&self.ports.0.to_be_bytes());
        name[18..].copy_from_slice(&self.ports.1.to_be_bytes());
        hash::mixed(&name, 0)
    }
}

/// The length of all outer headers in bytes, over a version of IP.
pub(super) fn overhead(mode: Mode, over: IpVersion) -> usize {
    over.header_len()
        + match mode {
            Mode::Nat | Mode::Ipip | Mode::Direct => 0,
            Mode::Gre => Gre::LEN,
            Mode::Gue => Udp::LEN,
        }
}

/// Where a packet that is to be encapsulated came from; its pieces share it.
pub(super) struct Origin {
    flow: FlowName,
    port: Port,
    link: Link,
}

impl Origin {
    /// The origin of a packet.
    pub(super) fn of(packet: &Packet<'_>) -> Origin {
        let flow = FlowName { client: packet.src_ip(), ports: (0, 0) };
        Origin { flow, port: packet.port(), link: packet.link() }
    }
}

/// Which packet is fragmented if the encapsulated one exceeds the MTU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    /// Neither: it fits.
    Nothing,
    /// The outer packet: the backend's end of the tunnel reassembles it.
    Outer,
    /// The inner packet, as an IPv4 router would, because outer IPv6 packets are not fragmented. Its destination
    /// reassembles it.
    Inner,
    /// Neither may be fragmented: the sender is told.
    Forbidden,
}

/// A packet to be encapsulated.
struct Inner<'p> {
    /// The packet, from its IP header on.
    bytes: &'p [u8],
    version: IpVersion,
    /// Length in bytes, from its header.
    len: usize,
    /// Its traffic class.
    class: u8,
    may_be_cut: bool,
}

impl Inner<'_> {
    /// Which packet is fragmented if this one does not fit into the tunnel to a backend.
    fn cut(&self, server: &Server) -> Cut {
        match (self.may_be_cut, server.address.is_v4()) {
            (true, true) => Cut::Outer,
            (true, false) => Cut::Inner,
            // Whatever the IPv4 path carries: every IPv6 link carries a packet of this length (RFC 4213 section 3.2.2).
            (false, true) if self.version == IpVersion::V6 && self.len <= LEAST_V6 => Cut::Outer,
            _ => Cut::Forbidden,
        }
    }

    fn read(bytes: &[u8]) -> Option<Inner<'_>> {
        if bytes.first()? >> 4 == 4 {
            let ip = Ipv4::parse(bytes)?;
            let (class, may_be_cut) = (ip.dscp() << 2 | ip.ecn(), !ip.dont_fragment());
            return Some(Inner { bytes, version: IpVersion::V4, len: ip.total_len().into(), class, may_be_cut });
        }
        let ip = Ipv6::parse(bytes)?;
        let len = Ipv6::LEN + usize::from(ip.payload_len());
        Some(Inner { bytes, version: IpVersion::V6, len, class: ip.traffic_class(), may_be_cut: false })
    }
}

/// The headers ahead of an encapsulated packet.
struct Tunnel {
    mode: Mode,
    from: IpAddress,
    to: IpAddress,
    /// The version of the inner packet.
    carries: IpVersion,
    /// Length of the inner packet, in bytes.
    len: usize,
    class: u8,
    entropy: u64,
    /// Set if the outer packet may be fragmented.
    identification: Option<u16>,
}

impl Tunnel {
    /// Writes all outer headers at `at`, where the packet leaves room for them, and sets the IP version in the link
    /// header. False if the link header cannot express that version.
    fn write(&self, frame: &mut [u8], at: usize, link: Link) -> bool {
        let over = self.to.version();
        let (number, carried) = self.write_between(frame, at + overhead(self.mode, over));
        self.write_ip(&mut frame[at..], number, carried);
        self.carries == over || write_version(&mut frame[..at], over, Some(link))
    }

    /// Writes the header between the outer and the inner IP header. Returns the protocol that the outer header carries
    /// and the number of bytes it carries.
    fn write_between(&self, frame: &mut [u8], inner_at: usize) -> (u8, usize) {
        let is_v6 = !self.to.is_v4();
        match self.mode {
            Mode::Nat | Mode::Ipip | Mode::Direct => (IP_IN_IP[self.carries as usize], self.len),
            Mode::Gre => {
                let carries = match self.carries {
                    IpVersion::V4 => ether_type::IPV4,
                    IpVersion::V6 => ether_type::IPV6,
                };
                let [high, low] = carries.to_be_bytes();
                frame[inner_at - Gre::LEN..inner_at].copy_from_slice(&[0, 0, high, low]);
                (protocol::GRE, self.len + Gre::LEN)
            }
            Mode::Gue => {
                let (at, len) = (inner_at - Udp::LEN, self.len + Udp::LEN);
                // One of the dynamic ports (RFC 6335 section 6).
                let source = 0xc000 | (self.entropy >> 48) as u16;
                let words = [source, GUE_PORT, len as u16, 0];
                let udp = frame[at..inner_at].chunks_exact_mut(2);
                udp.zip(words).for_each(|(bytes, word)| bytes.copy_from_slice(&word.to_be_bytes()));
                // UDP needs no checksum over IPv4 (RFC 768), but does over IPv6 (RFC 8200 section 8.1).
                if is_v6 && let Some(datagram) = frame.get(at..at + len) {
                    let sum = checksum::udp_zero(checksum::transport(self.from, self.to, protocol::UDP, datagram));
                    frame[at + 6..at + 8].copy_from_slice(&sum.to_be_bytes());
                }
                (protocol::UDP, len)
            }
        }
    }

    /// Writes the outer IP header to the front of `bytes`.
    fn write_ip(&self, bytes: &mut [u8], number: u8, carried: usize) {
        match (self.from.v4(), self.to.v4()) {
            (Some(from), Some(to)) => {
                let mut ip = Ipv4::new(number, carried as u16);
                ip.set_source(from);
                ip.set_destination(to);
                ip.set_tos(self.class);
                // A packet that may not be fragmented needs no identification (RFC 6864 section 4.1).
                ip.set_identification(self.identification.unwrap_or(0));
                ip.set_fragment(self.identification.is_none(), false, 0);
                ip.emit(bytes);
                let sum = checksum::ipv4_header(&bytes[..Ipv4::LEN]);
                ip.set_checksum(sum);
                ip.emit(bytes);
            }
            _ => {
                let mut ip = Ipv6::new(number, carried as u16);
                ip.set_source(self.from.octets());
                ip.set_destination(self.to.octets());
                ip.set_traffic_class(self.class);
                // RFC 6438 section 3; 0 would say that there is none.
                ip.set_flow_label(((self.entropy >> 44) as u32).max(1));
                ip.emit(bytes);
            }
        }
    }
}

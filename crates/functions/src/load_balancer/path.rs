//! ICMP errors about tunnelled packets.
//!
//! The client is told about the inner packet (RFC 2003 section 4, RFC 2473 section 8). The path MTU to a backend that an
//! error reports (RFC 2003 section 5.1) is kept for ten minutes (RFC 1191 section 6.3, RFC 8201 section 4).
//!
//! Such an error is sent to the address that tunnels originate from, and quotes the outer packet. To forge one, an
//! attacker has to know both ends of a tunnel and a service, and cannot reduce a path MTU below what every link carries.

use braid_nf::packet::headers::{Gre, Header, Icmp, Icmpv6, Ipv4, Ipv6, Udp, icmp_type, icmpv6_type};
use braid_nf::packet::parse::protocol;
use braid_nf::packet::{Embedded, IpAddress, IpVersion};
use braid_nf::prelude::*;

use super::LoadBalancer;
use super::config::Mode;
use super::settings::Server;
use super::tunnel::{GUE_PORT, IP_IN_IP, overhead};
use crate::parts::answers::answer::INTERNETWORK_CONTROL;
use crate::parts::headers::lengths::{ip_len, plateau_below};
use crate::parts::headers::version::write_version;
use crate::parts::{SECOND, Side};

/// An error about a tunnelled packet that is not passed on: the client need not be told, or is unknown.
const ABOUT_TUNNEL: Reason = Reason("error_about_tunnel");

/// How long a learnt path MTU is used.
const LIFETIME_NS: u64 = 600 * SECOND;
/// The smallest path MTU of IPv4 outer packets that is believed; lower reports are raised to it.
const LEAST_V4: u16 = 576;
/// The minimum MTU of IPv6 (RFC 8200 section 5).
const LEAST_V6: u16 = 1280;

/// What is known of the path to a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Path {
    learnt_ns: u64,
    /// The longest outer packet that fits, in bytes; 0: unknown.
    mtu: u64,
}

/// What an ICMP error reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    /// The path carries no more than this, in bytes.
    TooBig(u16),
    /// The backend cannot be reached.
    Unreachable,
    /// Not relevant to a client (RFC 2003 sections 4.1 to 4.5).
    Other,
}

/// The tunnelled packet that an error quotes.
struct Quoted<'p> {
    /// Length of the outer packet in bytes, from its header.
    len: u16,
    /// Offset of the inner packet.
    within: usize,
    inner: &'p [u8],
}

impl LoadBalancer {
    /// The longest outer packet on the path to a backend, in bytes. `inner` is the inner packet's version and `needs` the
    /// outer packet's length: a packet that fits every path needs no look-up.
    pub(super) fn mtu_to(
        &self,
        cx: &mut Cx<'_>,
        server: &Server,
        (inner, needs): (IpVersion, usize),
    ) -> Result<u16, Conflict> {
        let (least, most) = (least(server, inner), self.settings.mtu);
        if needs <= usize::from(least) {
            return Ok(most);
        }
        Ok(self.known_mtu(cx, server)?.map_or(most, |mtu| mtu.clamp(least, most)))
    }

    /// The learnt path MTU, if there is a current one.
    pub(super) fn known_mtu(&self, cx: &mut Cx<'_>, server: &Server) -> Result<Option<u16>, Conflict> {
        let now = cx.now();
        let path = self.paths.get(cx, server.path.into())?.unwrap_or_default();
        Ok((path.mtu > 0 && now.saturating_sub(path.learnt_ns) <= LIFETIME_NS).then_some(path.mtu as u16))
    }

    /// Turns an error about a tunnelled packet into one about the inner packet; `None` if the error is about something
    /// else.
    pub(super) fn error_about_tunnel(
        &self,
        cx: &mut Cx<'_>,
        packet: &mut Packet<'_>,
        quoted: &Embedded,
    ) -> Result<Option<Verdict>, Conflict> {
        let own = if quoted.src_ip.is_v4() { Some(self.settings.router.v4) } else { self.settings.router.v6 };
        let is_own = own == Some(quoted.src_ip) && own == Some(packet.dst_ip());
        let from_backends = self.settings.sides.of(packet.port()) == Some(Side::Inside);
        let servers = self.settings.servers_at(quoted.dst_ip).map(|(_, server)| server);
        let Some(server) = { servers }.find(|server| server.mode.is_tunnel()).filter(|_| is_own && from_backends)
        else {
            return Ok(None);
        };
        let Some(outer) = Quoted::read(packet, server.mode) else { return Ok(None) };
        let (said, len) = (said(packet, outer.len), outer.len);
        let (within, overhead) = (outer.within, overhead(server.mode, quoted.src_ip.version()) as u16);
        let inner = match outer.inner.first() {
            Some(byte) if byte >> 4 == 6 => IpVersion::V6,
            _ => IpVersion::V4,
        };
        let client = self.client_of(outer.inner, quoted.src_ip.version());
        match said {
            // Only a report of less than the whole packet's length is credible.
            Said::TooBig(mtu) if mtu < len => {
                let mtu = mtu.max(least(server, inner));
                self.learn(cx, server, mtu)?;
                let Some(client) = client.filter(|client| !client.may_be_cut) else {
                    return Ok(Some(Verdict::Drop(ABOUT_TUNNEL)));
                };
                // IPv6 senders never go below 1280 bytes (RFC 8200 section 5); shorter packets are fragmented from now
                // on.
                let room = if inner == IpVersion::V6 { (mtu - overhead).max(LEAST_V6) } else { mtu - overhead };
                Ok(Some(self.tell(packet, &client, within, Said::TooBig(room))))
            }
            Said::Unreachable if client.is_some() => {
                Ok(client.map(|client| self.tell(packet, &client, within, Said::Unreachable)))
            }
            _ => Ok(Some(Verdict::Drop(ABOUT_TUNNEL))),
        }
    }

    /// Notes a path MTU if it is less than the known one.
    fn learn(&self, cx: &mut Cx<'_>, server: &Server, mtu: u16) -> Result<(), Conflict> {
        let before = self.known_mtu(cx, server)?.unwrap_or(self.settings.mtu);
        if mtu < before {
            let path = Path { learnt_ns: cx.now(), mtu: mtu.into() };
            self.paths.set(cx, server.path.into(), path)?;
        }
        Ok(())
    }

    /// The client that sent the quoted packet to a service. `None` if errors about that packet must not be sent (RFC 1122
    /// section 3.2.2, RFC 4443 section 2.4 (e)) or too little of it is quoted.
    fn client_of(&self, inner: &[u8], over: IpVersion) -> Option<Client> {
        const ENOUGH: usize = 8;
        let is_error = |number: u8, body: &[u8]| match number {
            protocol::ICMP => Icmp::parse(body).is_none_or(|icmp| icmp.is_error()),
            protocol::ICMPV6 => Icmpv6::parse(body).is_none_or(|icmp| icmp.is_error()),
            _ => body.len() < ENOUGH,
        };
        let (source, service, is_later, number, body, may_be_cut) = if inner.first()? >> 4 == 4 {
            let ip = Ipv4::parse(inner)?;
            let body = inner.get(ip.header_len()..)?;
            (ip.source(), ip.destination(), ip.fragment_offset() > 0, ip.protocol(), body, !ip.dont_fragment())
        } else {
            let ip = Ipv6::parse(inner)?;
            let mut extensions = ip.extensions();
            let is_later = extensions.by_ref().filter_map(|one| one.fragment()).any(|(offset, ..)| offset > 0);
            let (number, body) = extensions.upper();
            let len = Ipv6::LEN + usize::from(ip.payload_len());
            (ip.source(), ip.destination(), is_later, number, body, over == IpVersion::V4 && len <= LEAST_V6.into())
        };
        let is_ours = self.settings.is_service(service) && !is_later && !is_error(number, body);
        is_ours.then_some(Client { address: source, may_be_cut })
    }

    /// Rewrites an error about a tunnelled packet into one about the inner packet, from this end of the tunnel to the
    /// inner packet's sender, in the sender's IP version whatever the tunnel's is.
    fn tell(&self, packet: &mut Packet<'_>, client: &Client, within: usize, said: Said) -> Verdict {
        let (l3, link, was) = (usize::from(packet.record().l3), packet.link(), packet.dst_ip().version());
        let (to, router) = (client.address, self.settings.router);
        let own = if to.is_v4() { Some(router.v4) } else { router.v6 };
        let (Some(l4), Some(own)) = (packet.l4_offset(), own) else { return Verdict::Drop(ABOUT_TUNNEL) };
        // The quoted headers ahead of the inner packet are at least as long as the growth of the IP header.
        let (from, header) = (l4 + Icmp::LEN + within, to.version().header_len());
        let (end, body) = (packet.len().min(l3 + ip_len(packet)), l3 + header);
        let len = body + Icmp::LEN + end.saturating_sub(from);
        let frame = packet.change(0..end.max(len));
        frame.copy_within(from.min(end)..end, body + Icmp::LEN);
        frame[body..body + Icmp::LEN].copy_from_slice(&message(said, to.version()));
        let carried = (len - body) as u16;
        match (own.v4(), to.v4()) {
            (Some(own), Some(to)) => {
                let mut ip = Ipv4::new(protocol::ICMP, carried);
                ip.set_tos(INTERNETWORK_CONTROL);
                ip.set_source(own);
                ip.set_destination(to);
                ip.emit(&mut frame[l3..]);
            }
            _ => {
                let mut ip = Ipv6::new(protocol::ICMPV6, carried);
                ip.set_source(own.octets());
                ip.set_destination(to.octets());
                ip.emit(&mut frame[l3..]);
            }
        }
        if was != to.version() && !write_version(&mut frame[..l3], to.version(), Some(link)) {
            return Verdict::Drop(ABOUT_TUNNEL);
        }
        packet.set_len(len);
        packet.reparse();
        packet.fill_checksums();
        Verdict::Forward(self.settings.across(packet.port()))
    }
}

/// The sender of a tunnelled packet.
struct Client {
    address: IpAddress,
    /// Whether the packet that was too long is fragmented from now on.
    may_be_cut: bool,
}

impl<'p> Quoted<'p> {
    /// Reads the quoted packet, if it belongs to a tunnel of this mode and is not a later fragment.
    fn read(packet: &'p Packet<'_>, mode: Mode) -> Option<Quoted<'p>> {
        let bytes = packet.ip_payload().get(Icmp::LEN..)?;
        let is_v6 = bytes.first()? >> 4 == 6;
        let (header, len, number) = if is_v6 {
            let ip = Ipv6::parse(bytes)?;
            (Ipv6::LEN, Ipv6::LEN as u16 + ip.payload_len(), ip.next_header())
        } else {
            let ip = Ipv4::parse(bytes).filter(|ip| ip.fragment_offset() == 0)?;
            (ip.header_len(), ip.total_len(), ip.protocol())
        };
        let behind = bytes.get(header..)?;
        let (fits, between) = match mode {
            Mode::Ipip => (IP_IN_IP.contains(&number), 0),
            Mode::Gre => (number == protocol::GRE && Gre::parse(behind).is_some(), Gre::LEN),
            Mode::Gue => {
                let is_ours = Udp::parse(behind).is_some_and(|udp| udp.destination_port() == GUE_PORT);
                (number == protocol::UDP && is_ours, Udp::LEN)
            }
            Mode::Nat | Mode::Direct => (false, 0),
        };
        let inner = behind.get(between..).unwrap_or_default();
        fits.then_some(Quoted { len, within: header + between, inner })
    }
}

/// What an error reports; `len` is the quoted packet's length from its header, in bytes.
fn said(packet: &Packet<'_>, len: u16) -> Said {
    // A backend that does not support the tunnel's protocol counts as unreachable.
    if let Some(icmp) = packet.icmp() {
        return match (icmp.kind(), icmp.code()) {
            (icmp_type::UNREACHABLE, 4) => Said::TooBig(match icmp.rest() as u16 {
                0 => plateau_below(len),
                mtu => mtu,
            }),
            // The source route was not set by the client.
            (icmp_type::UNREACHABLE, 5) => Said::Other,
            (icmp_type::UNREACHABLE, _) | (icmp_type::TIME_EXCEEDED, 0) => Said::Unreachable,
            _ => Said::Other,
        };
    }
    match packet.icmpv6().map(|icmp| (icmp.kind(), icmp.code(), icmp.rest())) {
        Some((icmpv6_type::PACKET_TOO_BIG, _, mtu)) => Said::TooBig(u16::try_from(mtu).unwrap_or(u16::MAX)),
        Some(
            (icmpv6_type::UNREACHABLE, ..)
            | (icmpv6_type::TIME_EXCEEDED, 0, _)
            | (icmpv6_type::PARAMETER_PROBLEM, 1, _),
        ) => Said::Unreachable,
        _ => Said::Other,
    }
}

/// The ICMP header for the client: too big (RFC 2003 section 5.1), or host unreachable (RFC 2003 sections 4.1 and 4.4,
/// RFC 2473 section 8.2).
fn message(said: Said, version: IpVersion) -> [u8; Icmp::LEN] {
    let (kind, code, mtu) = match (said, version) {
        (Said::TooBig(mtu), IpVersion::V4) => (icmp_type::UNREACHABLE, 4, mtu),
        (Said::TooBig(mtu), IpVersion::V6) => (icmpv6_type::PACKET_TOO_BIG, 0, mtu),
        (_, IpVersion::V4) => (icmp_type::UNREACHABLE, 1, 0),
        (_, IpVersion::V6) => (icmpv6_type::UNREACHABLE, 3, 0),
    };
    let [high, low] = mtu.to_be_bytes();
    [kind, code, 0, 0, 0, 0, high, low]
}

/// The smallest path MTU to a backend: over IPv6, an inner IPv6 packet may always have 1280 bytes.
fn least(server: &Server, inner: IpVersion) -> u16 {
    match (server.address.version(), inner) {
        (IpVersion::V4, _) => LEAST_V4,
        (IpVersion::V6, IpVersion::V6) => LEAST_V6 + overhead(server.mode, IpVersion::V6) as u16,
        (IpVersion::V6, IpVersion::V4) => LEAST_V6,
    }
}

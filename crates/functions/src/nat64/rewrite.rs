//! Translates packets. Between versions a packet grows or shrinks at its front, so its link header moves.

use braid_nf::packet::parse::protocol;
use braid_nf::packet::{IpAddress, IpVersion};
use braid_nf::prelude::*;

use super::cut;
use super::find::FRAGMENTED_ICMP;
use super::header::{self, NewHeader, Untranslatable};
use super::transport::{self, Addresses, NewPorts};
use super::{Nat64, Session};
use crate::mappings::networks::Behind;
use crate::mappings::session::Heading;
use crate::nat::{FILTERED, MAPPING_TABLE_FULL, NETWORK_QUOTA, NO_FREE_PORT, NO_MAPPING, NOT_TRANSLATABLE, PORT_QUOTA};
use crate::parts::answers::answer;
use crate::parts::forwarding::hairpin::Way;
use crate::parts::forwarding::turn::turn;
use crate::parts::headers::tags::NO_ROOM_FOR_TAG;
use crate::parts::headers::version::write_version;
use crate::parts::{Fate, Fragments, fragments};
use crate::router;

/// The packet exceeds the next link's MTU and must not be fragmented; its sender is told.
pub const TOO_BIG: Reason = Reason("too_big");
/// A fragmented UDP datagram without a checksum, which IPv6 does not allow (RFC 7915 section 4.5).
pub const NO_CHECKSUM: Reason = Reason("udp_without_checksum");
/// The packet has an unfinished source route; its sender is told.
pub const SOURCE_ROUTE: Reason = Reason("source_route");
/// The buffer has no room for a longer header, or the link header cannot express the other version.
pub const NO_ROOM: Reason = Reason("no_room");

/// Reasons to drop a first fragment that its later fragments do not reveal, so that they have to be remembered.
pub(super) const ENDS: [Reason; 14] = [
    Reason::TTL_EXCEEDED,
    Reason::MALFORMED,
    Reason::SET_TABLE_FULL,
    TOO_BIG,
    NO_CHECKSUM,
    SOURCE_ROUTE,
    NO_MAPPING,
    FILTERED,
    NOT_TRANSLATABLE,
    NO_FREE_PORT,
    PORT_QUOTA,
    NETWORK_QUOTA,
    MAPPING_TABLE_FULL,
    FRAGMENTED_ICMP,
];

/// The maximum length of a translated fragment that has waited.
const PIECE_ROOM: usize = fragments::PIECE_MAX + header::GROWTH + header::FRAGMENT_LEN;

/// The new addresses and ports of a packet, and where it goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rewrite {
    pub(super) ends: Addresses,
    pub(super) ports: NewPorts,
    pub(super) to: Port,
    pub(super) behind: Behind,
}

impl From<Fate> for Rewrite {
    /// The rewrite of a later fragment: addresses only.
    fn from(fate: Fate) -> Rewrite {
        let behind = Behind::from_bits(fate.behind);
        Rewrite { ends: (fate.source, fate.destination), ports: NewPorts::default(), to: fate.port, behind }
    }
}

impl Nat64 {
    /// The rewrite that a known flow applies to its packets.
    #[inline(always)]
    pub(super) fn rewrite_of(&self, packet: &Packet<'_>, session: &Session) -> Option<Rewrite> {
        let (prefix, port) = (&self.settings.prefix, Some(session.port));
        Some(match session.heading() {
            Heading::Outward => Rewrite {
                ends: (session.address, IpAddress::from_v4(prefix.extract(packet.dst_ip())?)),
                ports: NewPorts { source: port, destination: None },
                to: session.to,
                behind: Behind::Outside,
            },
            Heading::Inward => Rewrite {
                ends: (prefix.embed(packet.src_ip().v4()?), session.address),
                ports: NewPorts { source: None, destination: port },
                to: session.to,
                behind: Behind::Network(session.network),
            },
        })
    }

    /// Translates a packet and sends it on.
    pub(super) fn send(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, rewrite: &Rewrite) -> Handled {
        if packet.ttl().is_some_and(|ttl| ttl <= 1) {
            return self.ttl_exceeded(cx, packet);
        }
        let header = match self.header(packet, rewrite, cx.now()) {
            None => return self.send_hairpin(cx, packet, rewrite),
            Some(Ok(header)) => header,
            Some(Err(reason)) => return self.complain(cx, packet, reason),
        };
        let (to_v4, growth) = (rewrite.ends.0.is_v4(), header.bytes().len());
        let mtu = if to_v4 { self.settings.mtus.v4 } else { self.settings.mtus.v6 };
        if header.whole && header.packet_len() > mtu.into() {
            // What the other version has in addition: the longer IP header, and a fragment header if the packet is a
            // fragment.
            let told = if to_v4 { mtu + header::GROWTH as u16 } else { mtu - (growth - header::IPV4_LEN) as u16 };
            if self.answers.admits(cx, packet)? {
                answer::too_big(cx, packet, self.settings.router, told);
            }
            return self.fragments.drop(cx, packet, TOO_BIG);
        }
        if packet.is_fragment() && !packet.is_later_fragment() {
            if !to_v4 && lacks_checksum(packet) {
                // Communication administratively prohibited (RFC 7915 section 4.4).
                self.refuse(cx, packet, (Some(13), 1))?;
                return self.fragments.drop(cx, packet, NO_CHECKSUM);
            }
            if let Err(reason) = self.let_pieces_follow(cx, packet, rewrite)? {
                return Ok(Verdict::Drop(reason));
            }
        }
        if let Err(reason) = self.translate(packet, &header, rewrite) {
            return Ok(Verdict::Drop(reason));
        }
        if !self.settings.networks.retag(packet, rewrite.behind) {
            return Ok(Verdict::Drop(NO_ROOM_FOR_TAG));
        }
        self.cut_if_long(cx, packet, &header, rewrite.to, mtu)
    }

    /// Whether [`send`](Self::send) will not let a packet to `server` go on: its hops are used up, or it is too long and must not be fragmented.
    pub(super) fn ends_here(&self, packet: &Packet<'_>, server: [u8; 4], now: u64) -> bool {
        let (ip, mtu) = (packet.bytes().get(packet.record().l3 as usize..).unwrap_or_default(), self.settings.mtus.v4);
        let is_too_long = || {
            let header = header::to_v4(ip, (server, server), 1, now);
            header.is_ok_and(|header| header.whole && header.packet_len() > mtu.into())
        };
        packet.ttl().is_some_and(|ttl| ttl <= 1) || ip.len() > mtu.into() && is_too_long()
    }

    /// The new header; `None` if the packet's version does not change.
    fn header(&self, packet: &Packet<'_>, rewrite: &Rewrite, now: u64) -> Option<Result<NewHeader, Untranslatable>> {
        let ip = packet.bytes().get(packet.record().l3 as usize..).unwrap_or_default();
        let is_crossed = (packet.ip_version()? == IpVersion::V6) == rewrite.ends.0.is_v4();
        is_crossed.then(|| self.new_header(ip, rewrite, now))
    }

    /// The header in the version of the new addresses, for a packet of the other one.
    fn new_header(&self, ip: &[u8], rewrite: &Rewrite, now: u64) -> Result<NewHeader, Untranslatable> {
        let header = match (rewrite.ends.0.v4(), rewrite.ends.1.v4()) {
            (Some(source), Some(destination)) => header::to_v4(ip, (source, destination), 1, now),
            _ => header::arrived_to_v6(ip, rewrite.ends, self.settings.lowest_mtu.into()),
        };
        header.map(|header| header.classed(self.settings.classes))
    }

    /// Rewrites what follows the IP header, and then that header.
    fn translate(&self, packet: &mut Packet<'_>, header: &NewHeader, rewrite: &Rewrite) -> Result<(), Reason> {
        let old = (packet.src_ip(), packet.dst_ip());
        let (l3, number, later) = (packet.record().l3 as usize, packet.protocol(), packet.is_later_fragment());
        let to = rewrite.ends.0.version();
        let lacks_checksum = to == IpVersion::V6 && !later && lacks_checksum(packet);
        if lacks_checksum && packet.is_short() {
            return Err(NO_CHECKSUM);
        }
        if !later {
            let from = l3 + header.replaces;
            // No TCP option is changed, so the first bytes suffice.
            let segment = packet.change(from..from + 20);
            let done = match number {
                protocol::TCP | protocol::UDP => {
                    transport::rewrite_ports(segment, number, old, rewrite.ends, rewrite.ports)
                }
                _ => {
                    let v6 = if to == IpVersion::V6 { rewrite.ends } else { old };
                    let id = rewrite.ports.source.or(rewrite.ports.destination).unwrap_or(0);
                    transport::rewrite_echo(segment, v6, to, header.carried, id)
                }
            };
            if !done {
                return Err(Reason::MALFORMED);
            }
        }
        if !replace_header(packet, header) {
            return Err(NO_ROOM);
        }
        if lacks_checksum {
            let (at, end) = (packet.l4_offset().unwrap_or(packet.len()), packet.len());
            transport::fill_checksum(packet.change(at..end), rewrite.ends);
        }
        Ok(())
    }

    /// Translates both ends of a packet from one inside host to the external endpoint of another.
    fn send_hairpin(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, rewrite: &Rewrite) -> Handled {
        if packet.is_fragment()
            && !packet.is_later_fragment()
            && let Err(reason) = self.let_pieces_follow(cx, packet, rewrite)?
        {
            return Ok(Verdict::Drop(reason));
        }
        packet.decrement_ttl();
        if rewrite.to == packet.port() {
            turn(packet);
        }
        match (rewrite.ports.source, rewrite.ports.destination) {
            (Some(source), Some(destination)) => {
                packet.set_src(rewrite.ends.0, source);
                packet.set_dst(rewrite.ends.1, destination);
            }
            _ => {
                packet.set_src_ip(rewrite.ends.0);
                packet.set_dst_ip(rewrite.ends.1);
            }
        }
        let way = self.way_back(cx, packet);
        let verdict = self.leave(packet, rewrite.to, rewrite.behind);
        Ok(way.send(cx, packet, verdict))
    }

    /// How a hairpin goes back inside.
    pub(super) fn way_back(&self, cx: &Cx<'_>, packet: &Packet<'_>) -> Way {
        Way::of(cx, packet, self.way_out.of(cx, packet.port()))
    }

    /// Remembers the fate of a first fragment, and releases the fragments that have waited for it.
    fn let_pieces_follow(
        &self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        rewrite: &Rewrite,
    ) -> Result<Result<(), Reason>, Conflict> {
        let fate = Fate::new(rewrite.to, Some(rewrite.ends.0), Some(rewrite.ends.1)).behind(rewrite.behind.to_bits());
        if !self.fragments.remember(cx, packet, fate)? {
            return Ok(Err(Fragments::forgotten(packet)));
        }
        let is_v4 = packet.ip_version() == Some(IpVersion::V4);
        if is_v4 != rewrite.ends.0.is_v4() {
            self.fragments.release_by(cx, packet, 1, |cx, frame, ip| self.emit_piece(cx, frame, ip, rewrite))?;
        } else {
            let networks = &self.settings.networks;
            let retag = |frame: &[u8], ip, into: &mut [u8]| networks.retagged(frame, ip, rewrite.behind, into);
            self.fragments.release_tagged(cx, packet, (&fate, 1, self.way_back(cx, packet)), retag)?;
        }
        Ok(Ok(()))
    }

    /// Sends a later fragment that has waited, as a packet of the function's own.
    fn emit_piece(&self, cx: &mut Cx<'_>, frame: &[u8], l3: usize, rewrite: &Rewrite) {
        let ip = frame.get(l3..).unwrap_or_default();
        let Ok(header) = self.new_header(ip, rewrite, cx.now()) else { return };
        let (is_v4, mtus) = (rewrite.ends.0.is_v4(), self.settings.mtus);
        // What must not be fragmented and does not fit is not sent, as when it comes after its first piece.
        let most = match (is_v4, header.whole) {
            (true, _) => mtus.v4,
            (false, true) => mtus.v6,
            (false, false) => self.settings.lowest_mtu,
        };
        if header.whole && header.packet_len() > most.into() {
            return;
        }
        let Some(carried) = ip.get(header.replaces..header.replaces + header.carried) else { return };
        let (begin, len) = (l3 + header.bytes().len(), header.bytes().len() + l3 + carried.len());
        let mut piece = [0; PIECE_ROOM];
        let Some(room) = piece.get_mut(..len) else { return };
        room[..l3].copy_from_slice(&frame[..l3]);
        room[l3..begin].copy_from_slice(header.bytes());
        room[begin..].copy_from_slice(carried);
        if !write_version(&mut room[..l3], rewrite.ends.0.version(), None) {
            return;
        }
        let most = if is_v4 { usize::MAX } else { most.into() };
        let mut tagged = [0; PIECE_ROOM + fragments::TAGS_MAX];
        match self.settings.networks.retagged(room, l3, rewrite.behind, &mut tagged) {
            Some(now) => cut::emit_pieces(cx, rewrite.to, &tagged[..now], l3 + now - len, most, 0),
            None => cut::emit_pieces(cx, rewrite.to, room, l3, most, 0),
        }
    }

    /// Sends a translated packet, in fragments if it is too long and may be fragmented.
    fn cut_if_long(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, header: &NewHeader, to: Port, mtu: u16) -> Handled {
        let is_v4 = packet.ip_version() == Some(IpVersion::V4);
        let most = if is_v4 { mtu } else { self.settings.lowest_mtu };
        if header.whole || header.packet_len() <= most.into() {
            return Ok(Verdict::Forward(to));
        }
        let done = match is_v4 {
            true => router::fragment::cut(cx, packet, to, most),
            false => cut::cut(cx, packet, to, most),
        };
        Ok(if done { Verdict::Forward(to) } else { Verdict::Drop(Reason::MALFORMED) })
    }

    /// Tells the sender why a packet cannot be translated, if there is an error for that.
    #[cold]
    fn complain(&self, cx: &mut Cx<'_>, packet: &Packet<'_>, reason: Untranslatable) -> Handled {
        let router = self.settings.router;
        let reason = match reason {
            Untranslatable::Malformed => Reason::MALFORMED,
            Untranslatable::Extension => {
                // Communication administratively prohibited (RFC 7915 section 5.4).
                self.refuse(cx, packet, (Some(13), 1))?;
                NOT_TRANSLATABLE
            }
            Untranslatable::SourceRoute(at) => {
                match (packet.ip_version(), router.v6) {
                    _ if !self.answers.admits(cx, packet)? => {}
                    // Source route failed (RFC 7915 section 4.1); erroneous header field (section 5.1).
                    (Some(IpVersion::V4), _) => answer::error(cx, packet, router.v4, (3, 5), 0),
                    (_, Some(router)) => answer::error(cx, packet, router, (4, 0), at),
                    _ => {}
                }
                SOURCE_ROUTE
            }
        };
        self.fragments.drop(cx, packet, reason)
    }
}

/// Whether a packet is a first fragment or a whole datagram of UDP without a checksum.
fn lacks_checksum(packet: &Packet<'_>) -> bool {
    packet.protocol() == protocol::UDP && !transport::has_checksum(packet.ip_payload())
}

/// Replaces the IP header. False if there is no room for the new one.
pub(super) fn replace_header(packet: &mut Packet<'_>, header: &NewHeader) -> bool {
    let (l3, new, old) = (packet.record().l3 as usize, header.bytes().len(), header.replaces);
    let to = if new == header::IPV4_LEN { IpVersion::V4 } else { IpVersion::V6 };
    let link = packet.link();
    if packet.len() > l3 + old + header.carried {
        // Removes link padding.
        packet.set_len(l3 + old + header.carried);
    }
    if packet.len() < l3 + old {
        return false;
    }
    if new >= old {
        if !packet.push_front(new - old) {
            return false;
        }
        packet.change(0..new - old + l3).copy_within(new - old.., 0);
    } else {
        packet.change(0..old - new + l3).copy_within(..l3, old - new);
        packet.pop_front(old - new);
    }
    packet.change(l3..l3 + new).copy_from_slice(header.bytes());
    if !write_version(packet.change(0..l3), to, Some(link)) {
        return false;
    }
    packet.reparse();
    true
}

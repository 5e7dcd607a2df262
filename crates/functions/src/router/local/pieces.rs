//! Fragments of packets for the router itself: a reassembled datagram is answered like one that arrived whole. The fragments
//! themselves are dropped, including the last one; a reply is a packet of the router's own, fragmented for the link by which it
//! leaves.

use braid_nf::packet::headers::{Header, Ipv6, Tcp, Udp, icmp_type, icmpv6_type};
use braid_nf::packet::parse::{parse, protocol};
use braid_nf::packet::{Flags, IpAddress, Link, checksum};
use braid_nf::prelude::*;
use braid_nf::{Cx, Handled};

use super::headers::{self, Objection};
use super::reassembly::{Expired, Outcome};
use super::{Answer, FOR_ROUTER};
use crate::parts::answers::answer::{self, Cause};
use crate::parts::fragments::Datagram;
use crate::router::interface::Interface;
use crate::router::objections::{BAD_CHECKSUM, BAD_SOURCE};
use crate::router::{Complaint, Router, fragment};

impl Router {
    /// Receives a fragment of such a packet, and answers the datagram that it completes.
    #[cold]
    pub(in crate::router) fn receive_piece(
        &self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        interface: &Interface,
    ) -> Handled {
        if packet.src_ip() == IpAddress::UNSPECIFIED {
            return Ok(Verdict::Drop(BAD_SOURCE));
        }
        let mut expired = Vec::new();
        let outcome = self.reassembly.add(cx, packet, interface, &mut expired)?;
        self.tell_expired(cx, &expired)?;
        match outcome {
            Outcome::Ends(reason) => Ok(Verdict::Drop(reason)),
            Outcome::Whole(datagram) => self.receive_whole(cx, packet, interface, &datagram),
            Outcome::Wrong(at) => {
                if let Some(quoted) = answer::datagram(packet) {
                    let cause = (Cause::of(packet), quoted);
                    self.errors.send_about(cx, cause, interface, Complaint::WrongField(at))?;
                }
                Ok(Verdict::Drop(Reason::MALFORMED))
            }
        }
    }

    /// Tells the senders of datagrams whose fragments have waited in vain (RFC 792, RFC 4443 section 3.3).
    pub(in crate::router) fn tell_expired(&self, cx: &mut Cx<'_>, all: &[Expired]) -> Result<(), Conflict> {
        for expired in all {
            if let Some(came) = self.links.get(expired.link(&self.links)) {
                self.errors.send_about(cx, expired.cause(), came, Complaint::PiecesMissing)?;
            }
        }
        Ok(())
    }

    /// Receives a reassembled packet for the router; `last` is its last fragment to arrive.
    fn receive_whole(&self, cx: &mut Cx<'_>, last: &Packet<'_>, interface: &Interface, datagram: &[u8]) -> Handled {
        let found = parse(datagram, Link::RawIp);
        let is_whole = found.l4 > 0 && !found.flags.has(Flags::SHORT);
        let body = datagram.get(usize::from(found.l4) * 4..).filter(|_| is_whole);
        let (Some(body), from, to) = (body, last.src_ip(), last.dst_ip()) else {
            return Ok(Verdict::Drop(Reason::MALFORMED));
        };
        // Headers ahead of the fragment header are gone, so hop-by-hop options stood behind it (RFC 8200 section 4.1).
        let is_misplaced = !from.is_v4() && datagram[headers::FIRST as usize] == protocol::HOP_BY_HOP;
        let walked = match is_misplaced {
            true => Err(Objection::Told(Complaint::NoProtocol(headers::FIRST))),
            false => headers::walk(datagram),
        };
        let number_at = match walked {
            Ok(at) => at,
            Err(Objection::Told(complaint)) => {
                self.errors.send_about(cx, (Cause::of(last), datagram), interface, complaint)?;
                return Ok(Verdict::Drop(FOR_ROUTER));
            }
            Err(Objection::Silent) => return Ok(Verdict::Drop(FOR_ROUTER)),
        };
        let udp_len = || Udp::parse(body).map_or(0, |udp| usize::from(udp.length()));
        if found.proto == protocol::UDP && !(Udp::LEN..=body.len()).contains(&udp_len()) {
            return Ok(Verdict::Drop(Reason::MALFORMED));
        }
        let is_right = match found.proto {
            protocol::ICMP => checksum::ipv4_header_ok(body),
            protocol::UDP if Udp::parse(body).is_some_and(|udp| udp.checksum() == 0) => from.is_v4(),
            protocol::TCP | protocol::UDP | protocol::ICMPV6 => checksum::transport_ok(from, to, found.proto, body),
            _ => true,
        };
        if !is_right {
            return Ok(Verdict::Drop(BAD_CHECKSUM));
        }
        match Answer::to(to.version(), (found.proto, number_at), body) {
            Answer::Echo => echo_whole(cx, last, interface, datagram, body),
            Answer::Reset => {
                if let Some(tcp) = Tcp::parse(body)
                    && self.errors.admits_by(cx, last.port())?
                {
                    answer::reset_to(cx, &Cause::of(last), to, tcp, body.len() - tcp.header_len());
                }
            }
            Answer::Error(complaint) => {
                self.errors.send_about(cx, (Cause::of(last), datagram), interface, complaint)?;
            }
            Answer::Nothing => {}
        }
        Ok(Verdict::Drop(FOR_ROUTER))
    }
}

/// Answers an echo request that arrived in fragments or with extension headers; the reply is fragmented for the link if
/// necessary.
pub(in crate::router) fn echo_whole(
    cx: &mut Cx<'_>,
    last: &Packet<'_>,
    interface: &Interface,
    request: &[u8],
    body: &[u8],
) {
    let (asker, own, port, mtu) = (last.src_ip(), last.dst_ip(), last.port(), interface.mtu);
    let link = last.bytes().get(..last.record().l3.into()).unwrap_or_default();
    let header = if asker.is_v4() { request.len() - body.len() } else { Ipv6::LEN };
    let mut frame = [link, &request[..header], body].concat();
    if last.ethernet().is_some() {
        frame.copy_within(6..12, 0);
        frame[6..12].copy_from_slice(&interface.mac.0);
    }
    let l3 = link.len();
    let (head, echo) = frame[l3..].split_at_mut(header);
    echo[..4].copy_from_slice(&[if asker.is_v4() { icmp_type::ECHO_REPLY } else { icmpv6_type::ECHO_REPLY }, 0, 0, 0]);
    match (own.v4(), asker.v4()) {
        (Some(own), Some(asker)) => {
            let sum = checksum::ipv4_header(echo);
            echo[2..4].copy_from_slice(&sum.to_be_bytes());
            head[8] = 64;
            head[12..16].copy_from_slice(&own);
            head[16..20].copy_from_slice(&asker);
            fragment::rewrite(head, echo.len(), false, 0);
        }
        _ => {
            let sum = checksum::transport(own, asker, protocol::ICMPV6, echo);
            echo[2..4].copy_from_slice(&sum.to_be_bytes());
            if let Some(mut ip) = Ipv6::parse_mut(head) {
                ip.set_payload_len(echo.len() as u16);
                ip.set_next_header(protocol::ICMPV6);
                ip.set_hop_limit(64);
                ip.set_source(own.octets());
                ip.set_destination(asker.octets());
            }
        }
    }
    let identification = Datagram::of(last).map_or(0, |datagram| datagram.identification());
    match frame.len() - l3 <= usize::from(mtu) {
        true => cx.emit_back(port, &frame),
        false if asker.is_v4() => {
            fragment::cut_frame(&frame, l3, mtu, |piece| cx.emit_back(port, piece));
        }
        false => fragment::cut_own_v6(&frame, l3, mtu, identification, |piece| cx.emit_back(port, piece)),
    }
}

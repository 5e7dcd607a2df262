//! The ICMP errors of a router, limited to a number per second on each port (RFC 1812 section 4.3.2.8, RFC 4443 section 2.4
//! (f)).

use std::sync::Arc;

use braid_nf::packet::headers::{Header, Ipv6, icmp_type, icmpv6_type};
use braid_nf::packet::{IpAddress, IpVersion};
use braid_nf::prelude::*;
use braid_nf::state::{StateBuilder, StateObject};
use braid_nf::{Cx, Findings, Handled, Part};

use super::interface::Interface;
use crate::ConfigError;
use crate::parts::AnswerRate;
use crate::parts::answers::answer::{self, Cause};
use crate::parts::headers::scope::{is_link_local_v4, is_link_local_v6};

/// What a router reports about a packet to its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Complaint {
    /// Its time to live or hop limit has expired.
    TimeExceeded,
    /// No route leads to its destination.
    NoRoute,
    /// A route declares the destination unreachable.
    Unreachable,
    /// A route prohibits traffic to the destination.
    Prohibited,
    /// Its source is a link-local address, and its destination is beyond that link (RFC 4443 section 3.1, code 2).
    BeyondScope,
    /// The host, or the next router, does not answer.
    HostAbsent,
    /// It is longer than the MTU of the next link, which is given in bytes.
    TooLong(u16),
    /// Nothing on this router uses that port.
    NoPort,
    /// This router does not support its protocol. The offset of the protocol number in an IPv6 packet is given.
    NoProtocol(u32),
    /// This router does not know an IPv6 option, whose offset is given.
    UnknownOption(u32),
    /// A field of an IPv6 packet, whose offset is given, has an impossible or unsupported value.
    WrongField(u32),
    /// Its other fragments have not arrived in time.
    PiecesMissing,
}

impl Complaint {
    /// Type, code and the word after the checksum: for IPv4 (RFC 792, RFC 1191) or IPv6 (RFC 4443).
    fn message(self, version: IpVersion) -> ((u8, u8), u32) {
        use IpVersion::{V4, V6};
        use icmp_type as v4;
        use icmpv6_type as v6;
        match (self, version) {
            (Complaint::TimeExceeded, V4) => ((v4::TIME_EXCEEDED, 0), 0),
            (Complaint::TimeExceeded, V6) => ((v6::TIME_EXCEEDED, 0), 0),
            (Complaint::NoRoute, V4) => ((v4::UNREACHABLE, 0), 0),
            (Complaint::NoRoute, V6) => ((v6::UNREACHABLE, 0), 0),
            (Complaint::Unreachable, V4) => ((v4::UNREACHABLE, 1), 0),
            (Complaint::Unreachable, V6) => ((v6::UNREACHABLE, 0), 0),
            (Complaint::Prohibited, V4) => ((v4::UNREACHABLE, 13), 0),
            (Complaint::Prohibited, V6) => ((v6::UNREACHABLE, 1), 0),
            (Complaint::BeyondScope, V4) => ((v4::UNREACHABLE, 1), 0),
            (Complaint::BeyondScope, V6) => ((v6::UNREACHABLE, 2), 0),
            (Complaint::HostAbsent, V4) => ((v4::UNREACHABLE, 1), 0),
            (Complaint::HostAbsent, V6) => ((v6::UNREACHABLE, 3), 0),
            (Complaint::TooLong(mtu), V4) => ((v4::UNREACHABLE, 4), mtu.into()),
            (Complaint::TooLong(mtu), V6) => ((v6::PACKET_TOO_BIG, 0), mtu.into()),
            (Complaint::NoPort, V4) => ((v4::UNREACHABLE, 3), 0),
            (Complaint::NoPort, V6) => ((v6::UNREACHABLE, 4), 0),
            (Complaint::NoProtocol(_), V4) => ((v4::UNREACHABLE, 2), 0),
            (Complaint::NoProtocol(at), V6) => ((v6::PARAMETER_PROBLEM, 1), at),
            (Complaint::UnknownOption(at), _) => ((v6::PARAMETER_PROBLEM, 2), at),
            (Complaint::PiecesMissing, V4) => ((v4::TIME_EXCEEDED, 1), 0),
            (Complaint::PiecesMissing, V6) => ((v6::TIME_EXCEEDED, 1), 0),
            (Complaint::WrongField(at), V4) => ((v4::PARAMETER_PROBLEM, 0), at << 24),
            (Complaint::WrongField(at), V6) => ((v6::PARAMETER_PROBLEM, 0), at),
        }
    }

    /// Whether it concerns a packet addressed to the router itself.
    fn is_about_own(self) -> bool {
        use Complaint::*;
        matches!(self, NoPort | NoProtocol(_) | UnknownOption(_) | WrongField(_) | PiecesMissing)
    }

    /// The source address of an error about a packet from `sender` to `to`. About an IPv6 packet for the router itself, it is
    /// the address to which the packet was sent (RFC 4443 section 2.2 (a)); otherwise an address of the interface (RFC 1812
    /// section 4.3.2.4).
    fn speaker(self, interface: &Interface, sender: IpAddress, to: Option<IpAddress>) -> Option<IpAddress> {
        // No router forwards packets from IPv4 link-local addresses (RFC 3927 section 7).
        let stays = |own: &IpAddress| is_link_local_v4(*own) && !is_link_local_v4(sender);
        let near = || interface.address_towards(sender).filter(|own| !stays(own));
        to.filter(|to| self.is_about_own() && !to.is_v4()).or_else(near)
    }
}

/// In whose name a router speaks over IPv4 that has no such address (RFC 7600 section 4.8).
const DUMMY: [u8; 4] = [192, 0, 0, 8];

/// The errors, and how many of them may be sent.
pub struct Errors {
    rate: AnswerRate,
    /// In whose name they are sent by an interface without an address of the family: of IPv4, of IPv6.
    elsewhere: [Option<IpAddress>; 2],
}

impl Errors {
    /// Allows `per_second` errors by each port, in bursts of a tenth of a second's worth (at least 10). An interface without an address of a family
    /// uses that of another one, the first that has any: a translator before the router may have made one family of the other.
    pub fn new(
        builder: &mut StateBuilder,
        (per_second, ports): (u64, u16),
        interfaces: &[Option<Interface>],
    ) -> Result<Errors, ConfigError> {
        let own = || interfaces.iter().flatten().flat_map(|interface| &interface.addresses).map(|(own, _)| *own);
        let v4 = own().find(|own| own.is_v4() && !is_link_local_v4(*own)).unwrap_or(IpAddress::from_v4(DUMMY));
        let v6 = own().find(|own| !own.is_v4() && !is_link_local_v6(*own));
        Ok(Errors { rate: AnswerRate::new(builder, per_second, ports)?, elsewhere: [Some(v4), v6] })
    }

    /// The source address of errors to `sender` from an interface that has no address of its family.
    fn elsewhere(&self, sender: IpAddress) -> Option<IpAddress> {
        self.elsewhere[usize::from(!sender.is_v4())]
    }

    /// Drops a packet for `reason`, and sends its sender an error if that is allowed and within the limit.
    #[cold]
    pub fn send(
        &self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        interface: &Interface,
        complaint: Complaint,
        reason: Reason,
    ) -> Handled {
        let own = complaint.speaker(interface, packet.src_ip(), Some(packet.dst_ip()));
        let admits = match complaint {
            Complaint::TooLong(_) => AnswerRate::admits_too_long,
            _ => AnswerRate::admits,
        };
        if let Some(own) = own.or_else(|| self.elsewhere(packet.src_ip()))
            && admits(&self.rate, cx, packet)?
        {
            let (head, word) = complaint.message(own.version());
            answer::error(cx, packet, own, head, word);
        }
        Ok(Verdict::Drop(reason))
    }

    /// Sends an error about a packet that is no longer there, from its cause and the bytes to quote. The packet arrived by
    /// `interface`.
    #[cold]
    pub fn send_about(
        &self,
        cx: &mut Cx<'_>,
        (cause, quoted): (Cause<'_>, &[u8]),
        interface: &Interface,
        complaint: Complaint,
    ) -> Result<(), Conflict> {
        let to = Ipv6::parse(quoted).filter(|_| !cause.sender.is_v4()).map(|ip| ip.destination());
        if let Some(own) = complaint.speaker(interface, cause.sender, to).or_else(|| self.elsewhere(cause.sender))
            && self.admits_by(cx, cause.port)?
        {
            let (head, word) = complaint.message(own.version());
            answer::error_to(cx, &cause, quoted, own, head, word);
        }
        Ok(())
    }

    /// Tells a neighbour that `next`, on its own network, is a better first hop for its packet: an ICMP redirect for a host
    /// (RFC 1812 section 5.2.7.2). Only for IPv4; the packet is forwarded nevertheless.
    #[cold]
    pub fn redirect(
        &self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        interface: &Interface,
        next: IpAddress,
    ) -> Result<(), Conflict> {
        let (from, Some(gateway)) = (packet.src_ip(), next.v4()) else { return Ok(()) };
        let own = interface.address_towards(from);
        let shares = interface.reaches(from) && interface.reaches(next) && own == interface.address_towards(next);
        if let Some(own) = own.filter(|_| shares)
            && self.admits(cx, packet)?
        {
            const FOR_HOST: u8 = 1;
            answer::error(cx, packet, own, (icmp_type::REDIRECT, FOR_HOST), u32::from_be_bytes(gateway));
        }
        Ok(())
    }

    /// Whether one more error may be sent in answer to the packet.
    pub fn admits(&self, cx: &mut Cx<'_>, packet: &Packet<'_>) -> Result<bool, Conflict> {
        self.rate.admits(cx, packet)
    }

    /// Like [`admits`](Self::admits), for a packet that may be answered at all and arrived on this port.
    pub fn admits_by(&self, cx: &mut Cx<'_>, port: Port) -> Result<bool, Conflict> {
        self.rate.admits_by(cx, port)
    }

    /// Reports how many packets were not answered because of the limit.
    pub fn report(&self, cx: &mut Cx<'_>, into: &mut Findings) -> Result<(), Conflict> {
        self.rate.report(cx, into)
    }
}

impl Part for Errors {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.rate.objects(into);
    }
}

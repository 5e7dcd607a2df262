//! Messages to neighbours, as whole frames: ARP (RFC 826) and neighbour discovery (RFC 4861).

use braid_nf::packet::headers::{Arp, ArpOperation, Ethernet, Header, ether_type, icmpv6_type};
use braid_nf::packet::{IpAddress, MacAddress};

use super::icmpv6::{ALL_NODES, BODY, Envelope, Node, complete, solicited_node, to_group};

/// A frame in an array: an ARP message at the shortest frame length, or a neighbour discovery message with its option.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    bytes: [u8; 86],
    len: usize,
}

const ARP_FRAME: usize = 60;
const DISCOVERY_FRAME: usize = 86;
/// The hop limit of neighbour discovery; it shows that no router has forwarded the message (RFC 4861 section 7.1).
const UNTOUCHED: u8 = 255;

/// The flag of an advertisement that answers a question.
const SOLICITED: u8 = 0x40;

/// Who answers a neighbour solicitation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// A router, for one of its own addresses.
    Router,
    /// A router, for an address that is also other routers': the answer does not override theirs (RFC 4861 section 7.2.7).
    OneRouter,
    /// A proxy, for an address of another node: the answer does not override what the asker already knows (RFC 4861 section
    /// 7.2.4).
    Proxy,
}

impl Message {
    /// The bytes of the frame.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Asks who has `target`, by ARP or neighbour discovery according to its family. `None` if the two addresses are of
    /// different families.
    pub fn ask(mac: MacAddress, own: IpAddress, target: IpAddress) -> Option<Message> {
        match (own.v4(), target.v4()) {
            (Some(own), Some(target)) => {
                let mut arp = Arp::new(ArpOperation::Request);
                arp.set_sender(mac, own);
                arp.set_target(MacAddress::default(), target);
                Some(Message::arp(MacAddress::BROADCAST, mac, &arp))
            }
            (None, None) => {
                let head = [icmpv6_type::NEIGHBOUR_SOLICITATION, 0];
                Some(Message::discovery(to_group(solicited_node(target)), Node { mac, address: own }, head, 0, target))
            }
            _ => None,
        }
    }

    /// Asks for `target` only the station that had it when it was last heard of, which answers if it still has (RFC 1122 section 2.3.2.1 (2),
    /// RFC 4861 section 7.3.3).
    pub fn ask_station(mac: MacAddress, own: IpAddress, target: IpAddress, station: MacAddress) -> Option<Message> {
        let mut question = Message::ask(mac, own, target)?;
        if target.is_v4() {
            question.bytes[..6].copy_from_slice(&station.0);
            return Some(question);
        }
        let head = [icmpv6_type::NEIGHBOUR_SOLICITATION, 0];
        Some(Message::discovery(Node { mac: station, address: target }, Node { mac, address: own }, head, 0, target))
    }

    /// Announces one of a router's own addresses to everybody on its link.
    pub fn announcement(mac: MacAddress, own: IpAddress) -> Message {
        let nobody = Node { mac: MacAddress::default(), address: IpAddress::UNSPECIFIED };
        let arp = if own.is_v4() { Message::ask(mac, own, own) } else { None };
        arp.unwrap_or_else(|| Message::advertisement(mac, own, nobody, By::Router))
    }

    /// Answers an ARP request.
    pub fn arp_reply(request: &Arp, mac: MacAddress, own: [u8; 4], asker: [u8; 4]) -> Message {
        let mut arp = Arp::new(ArpOperation::Reply);
        arp.set_sender(mac, own);
        arp.set_target(request.sender_mac(), asker);
        Message::arp(request.sender_mac(), mac, &arp)
    }

    /// Answers a neighbour solicitation from `asker`. If the asker has no address yet, the answer goes to all nodes.
    pub fn advertisement(mac: MacAddress, own: IpAddress, asker: Node, by: By) -> Message {
        const ROUTER: u32 = 1 << 31;
        const SOLICITED: u32 = 1 << 30;
        const OVERRIDE: u32 = 1 << 29;
        let flags = match by {
            By::Router => ROUTER | OVERRIDE,
            By::OneRouter => ROUTER,
            By::Proxy => 0,
        };
        let (head, from) = ([icmpv6_type::NEIGHBOUR_ADVERTISEMENT, 0], Node { mac, address: own });
        if asker.address == IpAddress::UNSPECIFIED {
            return Message::discovery(to_group(ALL_NODES), from, head, flags, own);
        }
        Message::discovery(asker, from, head, flags | SOLICITED, own)
    }

    fn arp(to: MacAddress, from: MacAddress, arp: &Arp) -> Message {
        let mut bytes = [0; DISCOVERY_FRAME];
        bytes[..6].copy_from_slice(&to.0);
        bytes[6..12].copy_from_slice(&from.0);
        bytes[12..14].copy_from_slice(&ether_type::ARP.to_be_bytes());
        arp.emit(&mut bytes[Ethernet::LEN..]);
        Message { bytes, len: ARP_FRAME }
    }

    fn discovery(to: Node, from: Node, head: [u8; 2], flags: u32, target: IpAddress) -> Message {
        let mut message = Message { bytes: [0; DISCOVERY_FRAME], len: DISCOVERY_FRAME };
        let body = &mut message.bytes[BODY..];
        body[..2].copy_from_slice(&head);
        body[4..8].copy_from_slice(&flags.to_be_bytes());
        body[8..24].copy_from_slice(&target.octets());
        // The option's type is 1 (source) in a solicitation and 2 (target) in an advertisement; its length is one unit of eight
        // bytes.
        let option = if head[0] == icmpv6_type::NEIGHBOUR_SOLICITATION { 1 } else { 2 };
        body[24..26].copy_from_slice(&[option, 1]);
        body[26..32].copy_from_slice(&from.mac.0);
        complete(&mut message.bytes, &Envelope { to, from, hop_limit: UNTOUCHED, hop_by_hop: &[] });
        message
    }
}

/// Whether a neighbour solicitation or advertisement is valid (RFC 4861 sections 7.1.1 and 7.1.2). The hop limit and checksum
/// are not checked here.
pub fn is_valid(body: &[u8], source: IpAddress, destination: IpAddress) -> bool {
    const SOURCE_OPTION: u8 = 1;
    let [kind, code, _, _, flags, ..] = *body else { return false };
    let is_group = |address: IpAddress| address.octets()[0] == 0xff;
    let target_is_host = heard(body, 0).is_some_and(|(target, _)| !is_group(target));
    let is_fit = match kind {
        // A node that has no address yet asks the target's solicited-node group, and sends no link-layer address to learn.
        icmpv6_type::NEIGHBOUR_SOLICITATION if source == IpAddress::UNSPECIFIED => {
            const NODES: [u8; 13] = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff];
            destination.octets().starts_with(&NODES) && heard(body, SOURCE_OPTION).is_some_and(|(_, mac)| mac.is_none())
        }
        icmpv6_type::NEIGHBOUR_ADVERTISEMENT => !(is_group(destination) && flags & SOLICITED != 0),
        _ => true,
    };
    code == 0 && target_is_host && is_fit
}

/// Whether an advertisement overrides what is already known (RFC 4861 section 4.4).
pub fn overrides(body: &[u8]) -> bool {
    const OVERRIDE: u8 = 0x20;
    body.get(4).is_some_and(|flags| flags & OVERRIDE != 0)
}

/// Whether an advertisement answers a question (RFC 4861 section 4.4).
pub fn is_solicited(body: &[u8]) -> bool {
    body.get(4).is_some_and(|flags| flags & SOLICITED != 0)
}

/// What a neighbour discovery message says: its target, and the link-layer address in its option of this type.
pub fn heard(body: &[u8], kind: u8) -> Option<(IpAddress, Option<MacAddress>)> {
    let target = IpAddress::from_v6(*body.get(8..)?.first_chunk()?);
    Some((target, option(body.get(24..)?, kind)?))
}

/// The link-layer address in the option of this type; `None` if the options are malformed.
pub fn option(mut options: &[u8], wanted: u8) -> Option<Option<MacAddress>> {
    let mut mac = None;
    while let [kind, units, ..] = options {
        // An option of length zero is malformed (RFC 4861 section 4.6).
        let len = usize::from(*units) * 8;
        let whole = options.get(..len).filter(|whole| !whole.is_empty())?;
        if *kind == wanted {
            mac = whole.get(2..8).and_then(|bytes| bytes.first_chunk()).map(|bytes| MacAddress(*bytes));
        }
        options = &options[len..];
    }
    Some(mac.filter(|mac| !mac.is_group()))
}

//! Answers neighbours' queries for addresses that no interface has: proxy ARP (RFC 1027) and its counterpart in neighbour
//! discovery (RFC 4861 section 7.2.8).
//!
//! An answer leaves by the port on which the query arrived, with the query's VLAN tags. Nothing else is learnt from a query: a
//! function that translates has no neighbour table.

use braid_nf::packet::headers::{ArpOperation, Ethernet, icmpv6_type};
use braid_nf::packet::{IpAddress, MacAddress};
use braid_nf::{Cx, Packet, Reason};

use super::discovery::{self, By, Message};
use super::icmpv6::Node;
use crate::config::ConfigError;
use crate::parts::WrittenMac;
use crate::parts::headers::tags::TAG;

/// A query for one of the function's own addresses; it has been answered.
pub const ANSWERED: Reason = Reason("neighbour_answered");

/// Bytes of both Ethernet addresses.
const ADDRESSES: usize = 12;
/// Room for the longest answer with two tags, and some to spare.
const ROOM: usize = 128;

/// The station that answers.
#[derive(Clone, Copy, Debug)]
pub struct Proxy {
    mac: MacAddress,
}

braid_nf::plain!(Proxy);

impl Proxy {
    /// Checks the Ethernet address that a plan file gives under `mac`; `None` if it gives none.
    pub fn check(mac: Option<WrittenMac>) -> Result<Option<Proxy>, ConfigError> {
        let Some(WrittenMac(mac)) = mac else { return Ok(None) };
        if mac.is_group() || mac == MacAddress::default() {
            let instead = "write the address of one station, as 02:00:00:00:00:01";
            return Err(ConfigError::new("mac", format!("{mac} is no station's"), instead));
        }
        Ok(Some(Proxy { mac }))
    }

    /// Answers a packet that asks for an address that is `ours`. Returns whether it did.
    #[cold]
    pub fn answers(&self, cx: &mut Cx<'_>, packet: &Packet<'_>, ours: impl Fn(IpAddress) -> bool) -> bool {
        let message = match packet.arp() {
            Some(arp) => match (arp.operation(), arp.target_ip().v4(), arp.sender_ip().v4()) {
                // A host that asks for its own address is announcing it (RFC 5227 section 1.1).
                (ArpOperation::Request, Some(target), Some(asker)) if target != asker && ours(arp.target_ip()) => {
                    Message::arp_reply(arp, self.mac, target, asker)
                }
                _ => return false,
            },
            None => match self.asked(packet).filter(|(target, _)| ours(*target)) {
                Some((target, mac)) => {
                    let asker = Node { mac, address: packet.src_ip() };
                    Message::advertisement(self.mac, target, asker, By::Proxy)
                }
                None => return false,
            },
        };
        send(cx, packet, message.bytes());
        true
    }

    /// Returns the address that a neighbour solicitation asks for, and the Ethernet address of the asker.
    fn asked(&self, packet: &Packet<'_>) -> Option<(IpAddress, MacAddress)> {
        let is_question = packet.icmpv6()?.kind() == icmpv6_type::NEIGHBOUR_SOLICITATION;
        let body = packet.ip_payload();
        let is_heard = is_question
            && packet.ttl() == Some(255)
            && packet.checksums_ok()
            && discovery::is_valid(body, packet.src_ip(), packet.dst_ip());
        let (target, mac) = discovery::heard(body, 1).filter(|_| is_heard)?;
        Some((target, mac.or(packet.ethernet().map(Ethernet::source))?))
    }
}

/// Sends an untagged frame back with the tags of the packet that caused it.
fn send(cx: &mut Cx<'_>, cause: &Packet<'_>, frame: &[u8]) {
    let tags = cause.bytes().get(ADDRESSES..ADDRESSES + cause.vlans().count() * TAG).unwrap_or_default();
    let (mut tagged, mut len) = ([0; ROOM], 0);
    for part in [&frame[..ADDRESSES], tags, &frame[ADDRESSES..]] {
        let Some(room) = tagged.get_mut(len..len + part.len()) else { return };
        room.copy_from_slice(part);
        len += part.len();
    }
    cx.emit(cause.port(), &tagged[..len]);
}

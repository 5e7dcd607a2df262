//! Packets to an external address that a router behind a translator also has, and that match no mapping: the router takes
//! the configured kinds.

use std::collections::HashSet;
use std::net::Ipv4Addr;

use braid_nf::packet::IpAddress;
use braid_nf::packet::headers::{icmp_type, icmpv6_type};
use braid_nf::packet::parse::protocol;
use braid_nf::prelude::*;

use super::config::ForRouter;
use super::networks::Behind;
use crate::config::ConfigError;
use crate::parts::{Fate, Fragments};

/// The packets to some addresses that are left to the router behind, unless they match a mapping.
#[derive(Clone, Debug)]
pub(crate) struct LeftToRouter {
    addresses: HashSet<IpAddress>,
    kinds: Box<[ForRouter]>,
}

impl LeftToRouter {
    /// `address` is configured under `key`, `others` under `for_router_addresses`. Packets to addresses that are not external pass without this.
    pub(crate) fn check(
        kinds: &[ForRouter],
        (key, address): (&str, Ipv4Addr),
        others: &[Ipv4Addr],
        is_external: impl Fn(Ipv4Addr) -> bool,
    ) -> Result<LeftToRouter, ConfigError> {
        let wrong = |key: &str, reason: String, instead: String| Err(ConfigError::new(key, reason, instead));
        if !kinds.is_empty() && !is_external(address) {
            let reason = format!("`{key}`, {address}, is no external address, so nothing comes for it here");
            let instead = format!("write as `{key}` the external address that the router behind has");
            return wrong("for_router", reason, instead);
        }
        if kinds.is_empty() && !others.is_empty() {
            let instead = "write for_router = [\"echo\"] too, or leave it out".to_owned();
            return wrong("for_router_addresses", "nothing is left to a router".to_owned(), instead);
        }
        let mut addresses = HashSet::from([IpAddress::from(address)]);
        for other in others {
            if !is_external(*other) {
                let reason = format!("{other} is no external address, so nothing comes for it here");
                return wrong("for_router_addresses", reason, "write an address of `external`".to_owned());
            }
            if !addresses.insert(IpAddress::from(*other)) {
                let reason = format!("{other} stands there twice, or is `{key}`");
                return wrong("for_router_addresses", reason, "write it once".to_owned());
            }
        }
        Ok(LeftToRouter { addresses, kinds: kinds.into() })
    }

    /// Whether a packet to `to` is left to the router.
    pub(crate) fn takes(&self, packet: &Packet<'_>, to: IpAddress) -> bool {
        let kind = match packet.protocol() {
            protocol::UDP => ForRouter::Udp,
            protocol::ICMP if packet.icmp().is_some_and(|icmp| icmp.kind() == icmp_type::ECHO_REQUEST) => {
                ForRouter::Echo
            }
            protocol::ICMPV6 if packet.icmpv6().is_some_and(|icmp| icmp.kind() == icmpv6_type::ECHO_REQUEST) => {
                ForRouter::Echo
            }
            _ => return false,
        };
        self.kinds.contains(&kind) && self.addresses.contains(&to)
    }

    /// Whether a fragment of an ICMP message to `to` may belong to one that is left to the router.
    pub(crate) fn takes_echoes(&self, to: IpAddress) -> bool {
        self.kinds.contains(&ForRouter::Echo) && self.addresses.contains(&to)
    }
}

/// Lets a packet pass to the router behind, unchanged and without decrementing its TTL, and also the fragments that have
/// waited for it or follow.
pub(crate) fn leave(cx: &mut Cx<'_>, packet: &Packet<'_>, pieces: &Fragments) -> Handled {
    let from = packet.port();
    if packet.is_fragment() && !packet.is_later_fragment() {
        let fate = Fate::new(from, None, None).behind(Behind::Here.to_bits());
        if !pieces.remember(cx, packet, fate)? {
            return Ok(Verdict::Drop(Fragments::forgotten(packet)));
        }
        pieces.release(cx, packet, &fate, 0)?;
    }
    Ok(Verdict::Forward(from))
}

//! Packets to an external address that a router behind a translator also has, and that match no mapping: the router takes
//! the configured kinds.

use braid_nf::packet::IpAddress;
use braid_nf::packet::headers::{icmp_type, icmpv6_type};
use braid_nf::packet::parse::protocol;
use braid_nf::prelude::*;

use super::config::ForRouter;
use super::networks::Behind;
use crate::config::ConfigError;
use crate::parts::{Fate, Fragments};

/// The packets to one address that are left to the router behind, unless they match a mapping.
#[derive(Clone, Debug)]
pub(crate) struct LeftToRouter {
    address: IpAddress,
    kinds: Box<[ForRouter]>,
}

impl LeftToRouter {
    /// `address` is configured under `key`. Packets to addresses that are not external pass without this.
    pub(crate) fn check(
        kinds: &[ForRouter],
        (key, address): (&str, IpAddress),
        is_external: bool,
    ) -> Result<LeftToRouter, ConfigError> {
        if !kinds.is_empty() && !is_external {
            let reason = format!("`{key}`, {address}, is no external address, so nothing comes for it here");
            let instead = format!("write as `{key}` the external address that the router behind has");
            return Err(ConfigError::new("for_router", reason, instead));
        }
        Ok(LeftToRouter { address, kinds: kinds.into() })
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
        to == self.address && self.kinds.contains(&kind)
    }

    /// Whether a fragment of an ICMP message to `to` may belong to one that is left to the router.
    pub(crate) fn takes_echoes(&self, to: IpAddress) -> bool {
        to == self.address && self.kinds.contains(&ForRouter::Echo)
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

//! What comes for the external address that a router behind a translator has as well, and is no mapping's: that router takes it, as far as is said.

use braid_nf::packet::IpAddress;
use braid_nf::packet::headers::{icmp_type, icmpv6_type};
use braid_nf::packet::parse::protocol;
use braid_nf::prelude::*;

use super::config::ForRouter;
use super::networks::Behind;
use crate::config::ConfigError;
use crate::parts::{Fate, Fragments, fragments};

/// Of what comes for one address, that which goes on to the router behind unless it is a mapping's.
#[derive(Clone, Debug)]
pub(crate) struct LeftToRouter {
    address: IpAddress,
    kinds: Box<[ForRouter]>,
}

impl LeftToRouter {
    /// `address` stands in the plan under `key`. What comes for any other than external ones passes without.
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

    /// Whether a packet for `to` is left to the router.
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

    /// Whether a piece of an ICMP message for `to` may be of one that is.
    pub(crate) fn takes_echoes(&self, to: IpAddress) -> bool {
        to == self.address && self.kinds.contains(&ForRouter::Echo)
    }
}

/// Lets a packet go on to the router behind as it came and uncounted, and those of its pieces that have waited and are to come.
pub(crate) fn leave(cx: &mut Cx<'_>, packet: &Packet<'_>, pieces: &Fragments) -> Handled {
    let from = packet.port();
    if packet.is_fragment() && !packet.is_later_fragment() {
        let fate = Fate::new(from, None, None).behind(Behind::Here.to_bits());
        if !pieces.remember(cx, packet, fate)? {
            return Ok(Verdict::Drop(fragments::TABLE_FULL));
        }
        pieces.release(cx, packet, &fate, 0)?;
    }
    Ok(Verdict::Forward(from))
}

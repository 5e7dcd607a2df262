//! Translation of nothing but what goes to some endpoints outside, and of what comes from them: where most of what both sides exchange is
//! routed as it is, such as what servers ask the world whose clients are translated.

use std::net::SocketAddrV4;

use braid_nf::packet::IpAddress;
use braid_nf::packet::parse::protocol;
use braid_nf::prelude::*;

use super::config::Config;
use crate::config::ConfigError;
use crate::parts::Side;
use crate::parts::config::endpoints::Endpoints;

/// The endpoints outside that are reached by translation alone; empty: all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OnlyTo(Box<[Endpoints<SocketAddrV4>]>);

impl OnlyTo {
    /// Beside other keys that say what is translated it would contradict them.
    pub(super) fn check(config: &Config) -> Result<OnlyTo, ConfigError> {
        let wrong = |reason: String, instead: &str| Err(ConfigError::new("only_to", reason, instead));
        let others = [
            ("static", config.fixed.is_empty()),
            ("one_to_one", config.one_to_one.is_empty()),
            ("exempt", config.exempt.is_empty()),
        ];
        let listed = !config.only_to.is_empty();
        if let Some((key, _)) = others.into_iter().find(|(_, is_empty)| listed && !is_empty) {
            return wrong(format!("`{key}` translates by other rules"), "leave one of them out");
        }
        let is_inside =
            |end: &&Endpoints<SocketAddrV4>| config.inside.iter().any(|range| range.contains(end.address()));
        if let Some(end) = config.only_to.iter().find(is_inside) {
            return wrong(format!("{end} is inside"), "write endpoints outside, or smaller `inside` ranges");
        }
        Ok(OnlyTo(config.only_to.clone().into()))
    }

    #[inline(always)]
    pub(super) fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a packet from one of both sides is to or from none of them; of an ICMP error what it quotes. A later fragment may be if its
    /// address may.
    #[inline(always)]
    pub(super) fn leaves_out(&self, packet: &Packet<'_>, from: Side) -> bool {
        !self.is_everything() && self.has_no_end_of(packet, from)
    }

    #[cold]
    fn has_no_end_of(&self, packet: &Packet<'_>, from: Side) -> bool {
        if let Some(quoted) = packet.embedded() {
            let (source, destination) = quoted.ports.unwrap_or_default();
            return match from {
                Side::Inside => !self.has((quoted.src_ip, source), quoted.protocol),
                Side::Outside => !self.has((quoted.dst_ip, destination), quoted.protocol),
            };
        }
        let (address, port) = match from {
            Side::Inside => (packet.dst_ip(), packet.ports().map(|(_, to)| to)),
            Side::Outside => (packet.src_ip(), packet.ports().map(|(from, _)| from)),
        };
        match port {
            Some(port) => !self.has((address, port), packet.protocol()),
            None => {
                !(packet.is_later_fragment()
                    && is_carried(packet.protocol())
                    && self.0.iter().any(|end| end.address() == address))
            }
        }
    }

    fn has(&self, (address, port): (IpAddress, u16), number: u8) -> bool {
        let is_it = |end: &Endpoints<SocketAddrV4>| end.address() == address && end.has(port);
        is_carried(number) && self.0.iter().any(is_it)
    }
}

/// Whether endpoints of a protocol can be listed.
fn is_carried(number: u8) -> bool {
    matches!(number, protocol::TCP | protocol::UDP)
}

//! Frames without an IP packet: neighbour and topology protocols, and whatever else stations may say to each other. No rule sees them.

use braid_nf::packet::headers::ether_type;
use braid_nf::prelude::*;

use crate::config::ConfigError;
use crate::parts::forwarding::others::Others;

/// A frame with a value up to this where others have their type has its length there (IEEE 802.3), and an LLC header behind it.
const LENGTH_MAX: u16 = 1500;

/// What becomes of them.
#[derive(Clone, Debug)]
pub(super) struct NonIp {
    others: Others,
    /// The Ethernet types that pass in any case, behind all tags; 0 for frames with a length instead.
    passing: Vec<u16>,
}

impl NonIp {
    pub(super) fn check(others: Others, types: Option<Vec<u16>>) -> Result<NonIp, ConfigError> {
        if types.is_some() && others == Others::Pass {
            let instead = "write non_ip = \"drop\", or leave it out";
            return Err(ConfigError::new("non_ip_types", "all frames without IP pass as it is", instead));
        }
        let passing = types.unwrap_or_else(|| vec![ether_type::ARP]);
        let is_length = |kind: &&u16| (1..=LENGTH_MAX).contains(*kind);
        let is_ip = |kind: &&u16| matches!(**kind, ether_type::IPV4 | ether_type::IPV6);
        if let Some(kind) = passing.iter().find(is_length) {
            let instead = "write 0 for frames that have a length there: spanning tree, IS-IS and other LLC";
            return Err(ConfigError::new("non_ip_types", format!("{kind} is a length, and no Ethernet type"), instead));
        }
        if let Some(kind) = passing.iter().find(is_ip) {
            let reason = format!("{kind:#06x} is IP, about which the rules decide");
            return Err(ConfigError::new("non_ip_types", reason, "leave it out"));
        }
        Ok(NonIp { others, passing })
    }

    /// The verdict on a packet without an IP header.
    pub(super) fn judge(&self, cx: &Cx<'_>, packet: &Packet<'_>) -> Verdict {
        let kind = packet.ether_type().filter(|kind| *kind > LENGTH_MAX).unwrap_or(0);
        let others = if self.passing.contains(&kind) { Others::Pass } else { self.others };
        others.judge_orphan(cx, packet)
    }
}

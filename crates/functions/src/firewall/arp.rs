//! ARP packets, if the rule file speaks of them: who may say which address is whose. As in nftables they meet the chains of
//! tables `bridge`, `netdev` and `arp`, belong to no connection, and are `invalid` to `ct state`.
//!
//! Out of scope: ARP of other than Ethernet and IPv4, which is dropped where rules look at ARP.

use braid_nf::packet::headers::ether_type;
use braid_nf::prelude::*;

use super::conditions::facts::Context;
use super::connection::states::State;
use super::effects::Outcome;
use super::effects::marks::Marks;
use super::rules::Action;
use super::{DENIED, Firewall};

impl Firewall {
    /// Handles a frame without an IP packet. What the rules let pass, or are not asked about, passes unless `non_ip` says
    /// otherwise.
    pub(super) fn frame(&self, cx: &mut Cx<'_>, packet: &Packet<'_>) -> Handled {
        if self.settings.policy.asks(State::Arp)
            && packet.ether_type() == Some(ether_type::ARP)
            && let Some(reason) = self.objection_to_arp(cx, packet)?
        {
            return Ok(Verdict::Drop(reason));
        }
        Ok(self.settings.non_ip.judge(cx, packet))
    }

    /// Why the rules drop an ARP packet, if they do.
    #[cold]
    fn objection_to_arp(&self, cx: &mut Cx<'_>, packet: &Packet<'_>) -> Result<Option<Reason>, Conflict> {
        let Some(arp) = packet.arp() else { return Ok(Some(Reason::MALFORMED)) };
        let Some(side) = self.settings.sides.of(packet.port()) else { return Ok(None) };
        let policy = &self.settings.policy;
        let exits = if policy.asks_exits() { self.settings.exits.of(cx.leaves_by(), packet, side) } else { 0 };
        let (mut fields, mut marks) = (None, Marks::default());
        let context = Context { wall_ns: cx.wall(), exits, ..Context::default() };
        let facts = policy.facts_of_arp(packet, arp, side, &context, &mut fields);
        let meets =
            |number| self.effects.meet(cx, (packet, &facts), number, &mut Outcome { met: None, marks: &mut marks });
        let (_, action) = policy.decide(&facts, meets)?;
        // Nobody can be told by ARP: what is rejected is dropped, as in the kernel.
        Ok((action != Action::Allow).then_some(DENIED))
    }
}

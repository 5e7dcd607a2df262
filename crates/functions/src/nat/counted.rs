//! Which mappings a packet set holds: it is counted for them from its first packet until it ends.
//!
//! A set is over the mapping of its flow. That of a TCP hairpin is over those of both hosts, so each holds its mapping as long as in any other
//! connection: the receiver's is in the set, the sender's is found by the set's key.

use braid_nf::packet::IpAddress;
use braid_nf::prelude::*;
use braid_nf::state::Handle;

use super::Nat;
use crate::mappings::endpoint::{Endpoint, Inside, ends};
use crate::mappings::flows::Counted;
use crate::mappings::session::{Heading, Session};

impl Nat {
    /// Caches a flow, if there is room.
    pub(super) fn keep(
        &self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        set: &mut NewSet<'_, Session>,
        (session, held): (Session, &Counted),
    ) -> Result<Result<(), Reason>, Conflict> {
        let peer = || {
            let (inside, remote) = ends(packet).filter(|_| session.heading() == Heading::Outward)?;
            Some((self.settings.inside(packet, inside), remote))
        };
        self.flows.keep(cx, peer, held, |cx| set.register(cx, session))
    }

    /// Moves a flow to other mappings, if they are others.
    pub(super) fn exchange(
        &self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        session: &Session,
        (fresh, held): (Session, &Counted),
    ) -> Result<(), Conflict> {
        if session.is_beside(&fresh) {
            return Ok(());
        }
        let before = self.held_by(cx, session, || Some(self.settings.inside(packet, ends(packet)?.0)))?;
        self.flows.detach(cx, session.protocol(), before.into_iter().flatten())?;
        self.flows.attach(cx, held)
    }

    /// The mappings of a TCP flow, of a hairpin the sender's too, if they still exist; other flows are not counted.
    pub(super) fn held_by(
        &self,
        cx: &mut Cx<'_>,
        session: &Session,
        sender: impl FnOnce() -> Option<Inside>,
    ) -> Result<[Option<Handle>; 2], Conflict> {
        let (mut own, mut senders) = (None, None);
        let mappings = &self.flows.mappings;
        if mappings.counts_sets(session.protocol()) {
            own = mappings.at(cx, session.index())?.map(|(handle, ..)| handle).filter(|handle| session.uses(*handle));
            if session.is_between()
                && let Some(sender) = sender()
            {
                senders = mappings.handle_of(cx, sender)?.filter(|handle| session.is_from(*handle));
            }
        }
        Ok([own, senders])
    }

    /// The endpoints of a packet from inside, from its key.
    pub(super) fn ends_of(&self, key: &SetKey) -> Option<(Inside, Endpoint)> {
        let parts = key.parts();
        let ([Some(source), Some(destination)], [Some(ours), Some(theirs)]) = (parts.ips, parts.ports) else {
            return None;
        };
        let number = parts.number(FieldId::IpProto)? as u8;
        let network = self.settings.networks.of_key(&parts);
        let inside = Inside::new(network, IpAddress::from_v4(source.v4()?), ours, number);
        Some((inside, Endpoint::new(destination.v4()?, theirs, number)))
    }
}

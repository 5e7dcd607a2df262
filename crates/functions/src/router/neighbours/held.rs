//! The packets that wait for neighbours, sixteen at most for each.

use braid_nf::prelude::*;
use braid_nf::state::{Inserted, Share};

use super::entry::Hop;
use super::{Neighbours, REST_NS, Resolved, SWEEP_WAITING};
use crate::parts::SECOND;
use crate::parts::tables::sweep::{keys, rows};
use crate::router::waiting::WaitingPacket;

/// A packet waited, and its neighbour did not answer.
const IN_VAIN: Reason = Reason("waited_in_vain");
/// A packet waited, and made room for a later one of the same neighbour.
const REPLACED: Reason = Reason("replaced_while_waiting");
/// The most packets that wait for one neighbour.
pub(super) const PLACES: u8 = 16;

impl Neighbours {
    /// Keeps a packet until the neighbour answers, replacing the earliest one if sixteen are waiting already. Returns false if
    /// there is no room.
    pub fn hold(&self, cx: &mut Cx<'_>, hop: Hop, held: &WaitingPacket) -> Result<bool, Conflict> {
        let mut earliest = (u64::MAX, hop);
        for place in hop.places() {
            match self.waiting.get(cx, &place)? {
                Some(other) if other.since_ns < earliest.0 => earliest = (other.since_ns, place),
                Some(_) => {}
                None => return Ok(self.waiting.insert(cx, &place, held)? != Inserted::Full),
            }
        }
        cx.lose(REPLACED);
        Ok(self.waiting.insert(cx, &earliest.1, held)? != Inserted::Full)
    }

    /// Reports how many neighbours made room for others.
    pub fn report(&self, cx: &mut Cx<'_>, into: &mut Findings) -> Result<(), Conflict> {
        let sum = self.crowded_out.read(cx, |sum, part| *sum += part)?;
        if sum > 0 {
            into.add("silent_neighbours_crowded_out", sum);
        }
        Ok(())
    }

    /// The neighbours for which packets wait, from one piece of the table.
    pub fn waited_for(&self, cx: &mut Cx<'_>) -> Result<Vec<Hop>, Conflict> {
        let piece = SWEEP_WAITING.piece(cx.now(), self.waiting.capacity(), Share::ALL);
        let mut hops = keys(cx, &self.waiting, piece, |_, _| true)?;
        hops.iter_mut().for_each(|hop| hop.place = 0);
        hops.sort_unstable_by_key(|hop: &Hop| (hop.address, hop.port, hop.vlan));
        hops.dedup();
        Ok(hops)
    }

    /// When the first of the packets that wait is due: its neighbour is asked again, or it is given up.
    pub fn due_ns(&self, cx: &mut Cx<'_>) -> Result<Option<u64>, Conflict> {
        let mut first_ns: Option<u64> = None;
        for place in keys(cx, &self.waiting, rows(self.waiting.capacity()), |_, _| true)? {
            let mut hop = place;
            hop.place = 0;
            let asked = self.table.get(cx, &hop)?;
            let again_ns = asked.map_or(0, |neighbour| neighbour.asked_ns.saturating_add(SECOND));
            let since_ns = self.waiting.get(cx, &place)?.map_or(0, |held| held.since_ns);
            let due_ns = again_ns.min(since_ns.saturating_add(REST_NS));
            first_ns = Some(first_ns.map_or(due_ns, |first_ns| first_ns.min(due_ns)));
        }
        Ok(first_ns)
    }

    /// The packets that wait, as lost if no neighbour answers any more.
    pub fn held_in_vain(&self) -> Vec<(Reason, u64)> {
        vec![(IN_VAIN, self.waiting.len() as u64)]
    }

    /// Removes the packets that wait for a neighbour: all of them if it is absent, otherwise those that have waited long
    /// enough.
    pub fn give_up(&self, cx: &mut Cx<'_>, hop: Hop, resolved: Resolved) -> Result<Vec<WaitingPacket>, Conflict> {
        let now = cx.now();
        let mut given_up = Vec::new();
        for place in hop.places() {
            let Some(held) = self.waiting.get(cx, &place)? else { continue };
            if resolved == Resolved::Absent || held.since_ns.saturating_add(REST_NS) <= now {
                self.waiting.remove(cx, &place)?;
                cx.lose(IN_VAIN);
                given_up.push(held);
            }
        }
        Ok(given_up)
    }
}

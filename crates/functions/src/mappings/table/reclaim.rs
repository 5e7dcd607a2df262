//! Reclaims ports and entries of mappings that have ended and rested, if they are needed before a sweep finds them.

use std::iter::once;
use std::ops::RangeInclusive;

use braid_nf::prelude::*;

use super::Mappings;
use crate::mappings::endpoint::{Inside, Kept, slot};
use crate::mappings::hosts::{BLOCKS_MAX, Place};
use crate::mappings::ports::claim::Claim;
use crate::mappings::ports::row;
use crate::mappings::ports::search_backoff::Pause;
use crate::parts::tables::sweep::{make_room, scaled};

/// How many ports to check for one that is no longer needed if none is free, and entries at a time if all are in use.
const SEARCH: u32 = 64;
/// The number of slots that hosts' searches for their own ports are hashed to.
pub(crate) const HOSTS: u32 = 1024;

/// The holder of an external port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    Nobody,
    /// The port was just reclaimed from an ended mapping.
    Ended,
    /// The port has an owner, or is configured for one.
    Other,
}

impl<K: Kept> Mappings<K> {
    /// Searches for ports that are no longer needed if none is free. True if one was found. If not, no search is repeated
    /// for a moment, so that a flood of refused flows is cheap.
    #[cold]
    pub(crate) fn reclaim_some(&self, cx: &mut Cx<'_>, claim: &Claim) -> Result<bool, Conflict> {
        if self.reclaim_own(cx, claim)? {
            return Ok(true);
        }
        let (slot, home) = (slot(claim.inside.protocol), claim.home);
        self.search((cx, &self.searched, 1 + row(slot, home)), |cx| {
            let mut found = false;
            for port in some_of(cx.now(), claim, self.first_port..=self.last_port) {
                found |= self.reclaim(cx, slot, (home, port))? == Holder::Ended;
            }
            Ok(found)
        })
    }

    /// Does the same for ports that the host has to itself. No other host would get them, so they need not rest (RFC 6888
    /// REQ-8 b). Hosts whose ports are all in use do not keep others from searching.
    fn reclaim_own(&self, cx: &mut Cx<'_>, claim: &Claim) -> Result<bool, Conflict> {
        let Some(searched) = &self.searched_by_hosts else { return Ok(false) };
        self.search((cx, searched, scaled(claim.number, HOSTS)), |cx| {
            for number in 0..BLOCKS_MAX {
                let Some((address, block)) = self.hosts.own_block(&self.roster, claim, number) else { break };
                for port in some_of(cx.now(), claim, block) {
                    // One is enough: with its last mapping a host would lose its block.
                    if self.end_own(cx, claim, (address, port))? {
                        return Ok(true);
                    }
                }
            }
            Ok(false)
        })
    }

    /// Ends an ended mapping of the claim's host, even if it still rests.
    fn end_own(&self, cx: &mut Cx<'_>, claim: &Claim, (address, port): Place) -> Result<bool, Conflict> {
        let Some(owner) = self.ports.owner(cx, slot(claim.inside.protocol), address, port)? else { return Ok(false) };
        let now = cx.now();
        let is_own = |inside: &K| self.hosts.is_one(inside.inside(), claim.inside);
        match self.at(cx, owner)?.filter(|(_, inside, entry)| entry.ends_ns <= now && is_own(inside)) {
            Some((_, inside, entry)) => self.end(cx, inside.inside(), &entry).map(|()| true),
            None => Ok(false),
        }
    }

    /// Does the same for entries of the table if all are in use.
    #[cold]
    pub(crate) fn reclaim_entries(&self, cx: &mut Cx<'_>, inside: Inside) -> Result<bool, Conflict> {
        let size = (SEARCH, self.entries.capacity());
        self.search((cx, &self.searched, 0), |cx| {
            make_room(cx, &K::of(inside), size, |cx, among| self.take_out(cx, once(among), SEARCH))
        })
    }

    /// Searches, unless a recent search found nothing.
    fn search(
        &self,
        (cx, searched, row): (&mut Cx<'_>, &Pause, u32),
        search: impl FnOnce(&mut Cx<'_>) -> Result<bool, Conflict>,
    ) -> Result<bool, Conflict> {
        if searched.is_on(cx, row)? {
            return Ok(false);
        }
        let found = search(cx)?;
        if !found {
            searched.begin(cx, row)?;
        }
        Ok(found)
    }

    /// The holder of a port; a mapping that has ended and rested gives it back.
    #[inline(always)]
    pub(crate) fn reclaim(&self, cx: &mut Cx<'_>, slot: u32, (address, port): Place) -> Result<Holder, Conflict> {
        if !self.gives_out(port) {
            return Ok(Holder::Nobody);
        }
        if self.ports.is_reserved(slot, address, port) {
            return Ok(Holder::Other);
        }
        let Some(owner) = self.ports.owner(cx, slot, address, port)? else { return Ok(Holder::Nobody) };
        let now = cx.now();
        match self.at(cx, owner)?.filter(|(_, _, entry)| self.is_free(now, entry.ends_ns)) {
            Some((_, inside, entry)) => self.end(cx, inside.inside(), &entry).map(|()| Holder::Ended),
            None => Ok(Holder::Other),
        }
    }
}

/// The ports of a range to check, from a pseudo-random position on.
fn some_of(now: u64, claim: &Claim, among: RangeInclusive<u16>) -> impl Iterator<Item = u16> + use<> {
    let (first, ports) = (*among.start(), u32::from(among.end() - among.start()) + 1);
    let near = scaled(now ^ u64::from(claim.inside.port), ports);
    (0..SEARCH.min(ports)).map(move |n| first + ((near + n) % ports) as u16)
}

//! Ports and entries of mappings that are over and have rested, for those who want them before a sweep finds them.

use std::iter::once;
use std::ops::RangeInclusive;

use braid_nf::prelude::*;

use super::claim::Claim;
use super::endpoint::{Inside, Kept, slot};
use super::hosts::{BLOCKS_MAX, Place};
use super::mappings::Mappings;
use super::pause::Pause;
use super::ports::row;
use crate::parts::sweep::{make_room, scaled};

/// Ports that are looked at for one that is no longer needed when none is free; entries that are looked at at a time when all are in use.
const SEARCH: u32 = 64;
/// Searches of hosts for ports of their own are told apart by so many numbers.
pub(super) const HOSTS: u32 = 1024;

/// Whose an external port is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    Nobody,
    /// It was somebody's who no longer needed it.
    Ended,
    /// Another one's, or configured for one.
    Other,
}

impl<K: Kept> Mappings<K> {
    /// Looks for ports that are no longer needed when none is free. True if one was found. If not, nobody looks again for a moment: whoever
    /// floods with flows that are refused makes no more work than that.
    #[cold]
    pub(super) fn reclaim_some(&self, cx: &mut Cx<'_>, claim: &Claim) -> Result<bool, Conflict> {
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

    /// The same of ports that its host has to itself: nobody else would get them, so they need not rest (RFC 6888 REQ-8 b). Hosts whose ports are all in
    /// use do not keep others from looking.
    fn reclaim_own(&self, cx: &mut Cx<'_>, claim: &Claim) -> Result<bool, Conflict> {
        let Some(searched) = &self.searched_by_hosts else { return Ok(false) };
        self.search((cx, searched, scaled(claim.number, HOSTS)), |cx| {
            for number in 0..BLOCKS_MAX {
                let Some((address, block)) = self.hosts.own_block(&self.roster, claim, number) else { break };
                for port in some_of(cx.now(), claim, block) {
                    // One is enough: with its last mapping a host would give its block back.
                    if self.end_own(cx, claim, (address, port))? {
                        return Ok(true);
                    }
                }
            }
            Ok(false)
        })
    }

    /// Ends a mapping of the host of a claim that is over, though it rests.
    fn end_own(&self, cx: &mut Cx<'_>, claim: &Claim, (address, port): Place) -> Result<bool, Conflict> {
        let Some(owner) = self.ports.owner(cx, slot(claim.inside.protocol), address, port)? else { return Ok(false) };
        let now = cx.now();
        let is_own = |inside: &K| self.hosts.is_one(inside.inside(), claim.inside);
        match self.at(cx, owner)?.filter(|(_, inside, entry)| entry.ends_ns <= now && is_own(inside)) {
            Some((_, inside, entry)) => self.end(cx, inside.inside(), &entry).map(|()| true),
            None => Ok(false),
        }
    }

    /// The same for entries of the table when all are in use.
    #[cold]
    pub(super) fn reclaim_entries(&self, cx: &mut Cx<'_>, inside: Inside) -> Result<bool, Conflict> {
        let size = (SEARCH, self.entries.capacity());
        self.search((cx, &self.searched, 0), |cx| {
            make_room(cx, &K::of(inside), size, |cx, among| self.take_out(cx, once(among), SEARCH))
        })
    }

    /// Searches, unless somebody did a moment ago and found nothing.
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

    /// Whose a port is; a mapping that is over and has rested gives it back.
    #[inline(always)]
    pub(super) fn reclaim(&self, cx: &mut Cx<'_>, slot: u32, (address, port): Place) -> Result<Holder, Conflict> {
        if !(self.first_port..=self.last_port).contains(&port) {
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

/// As many ports of a range as are looked at, from anywhere on.
fn some_of(now: u64, claim: &Claim, among: RangeInclusive<u16>) -> impl Iterator<Item = u16> + use<> {
    let (first, ports) = (*among.start(), u32::from(among.end() - among.start()) + 1);
    let near = scaled(now ^ u64::from(claim.inside.port), ports);
    (0..SEARCH.min(ports)).map(move |n| first + ((near + n) % ports) as u16)
}

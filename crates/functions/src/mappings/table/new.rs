//! How mappings begin.

use braid_nf::prelude::*;
use braid_nf::state::Vacancy;

use super::entry::{Entry, Heard, NEVER};
use super::{Mapping, Mappings};
use crate::mappings::census::NETWORK_QUOTA;
use crate::mappings::endpoint::{Inside, Kept, slot};
use crate::mappings::hosts::{Entered, MAPPING_TABLE_FULL, NO_FREE_PORT};
use crate::mappings::ports::claim::Claim;
use crate::parts::tables::tallies::Tally;

impl<K: Kept> Mappings<K> {
    /// The claim of an inside endpoint that may have no mapping yet. Prefetches the mapping that has its preferred port,
    /// so that it arrives while the endpoint is looked up.
    #[inline(always)]
    pub(crate) fn expect(&self, inside: Inside) -> Claim {
        let claim = self.hosts.expected(&self.roster, inside);
        if self.gives_out(inside.port)
            && let Some(owner) = self.ports.owner_hint(slot(inside.protocol), claim.home, inside.port)
        {
            self.prefetch(owner);
        }
        claim
    }

    /// Makes a new mapping for an inside endpoint that has none.
    #[inline(always)]
    pub(crate) fn create(
        &self,
        cx: &mut Cx<'_>,
        (mut claim, vacancy): (Claim, Vacancy),
        home: Port,
        lives_ns: u64,
    ) -> Result<Result<Mapping, Reason>, Conflict> {
        let inside = claim.inside;
        if let Some(fixed) = self.statics.of_inside(inside)
            && let Some(mapping) = self.make_at_once(cx, fixed)?
        {
            return Ok(Ok(mapping));
        }
        if self.census.is_full(cx, inside.network)? {
            return self.refuse(cx, inside, NETWORK_QUOTA);
        }
        self.hosts.recall(cx, &self.roster, &mut claim)?;
        // The preferred port may belong to a mapping that has ended.
        claim.own = self.reclaim(cx, slot(inside.protocol), (claim.home, inside.port))?;
        let mut place = self.hosts.choose(cx, (&self.ports, &self.roster), &claim)?;
        if place == Err(NO_FREE_PORT) && self.reclaim_some(cx, &claim)? {
            self.hosts.recall(cx, &self.roster, &mut claim)?;
            place = self.hosts.choose(cx, (&self.ports, &self.roster), &claim)?;
        }
        let (address, port) = match place {
            Ok(place) => place,
            Err(reason) => return self.refuse(cx, inside, reason),
        };
        let heard = if self.counts_sets(inside.protocol) { Heard::Nothing } else { Heard::Answered };
        let mut entry = Entry { address, port, home, heard, ..Entry::default() };
        entry.prolong(cx.now(), lives_ns, &self.waits);
        self.insert(cx, (inside, vacancy), entry)
    }

    #[inline(always)]
    pub(crate) fn insert(
        &self,
        cx: &mut Cx<'_>,
        (inside, vacancy): (Inside, Vacancy),
        mut entry: Entry,
    ) -> Result<Result<Mapping, Reason>, Conflict> {
        let (place, is_counted) = ((entry.address, entry.port), entry.ends_ns != NEVER);
        // Configured mappings do not count against quotas, and are in no block.
        let mut entered = match is_counted {
            true => self.hosts.enter(cx, &self.roster, inside, place)?,
            false => Some(Entered::default()),
        };
        if entered.is_none() && self.reclaim_entries(cx, inside)? {
            entered = self.hosts.enter(cx, &self.roster, inside, place)?;
        }
        let Some(Entered { is_known, change }) = entered else { return self.refuse(cx, inside, MAPPING_TABLE_FULL) };
        entry.is_known = is_known;
        let mut filled = self.entries.fill(cx, vacancy, &K::of(inside), &entry.into())?;
        if filled.is_none() && self.reclaim_entries(cx, inside)? {
            filled = self.entries.fill(cx, vacancy, &K::of(inside), &entry.into())?;
        }
        let Some(handle) = filled else {
            if is_known {
                self.hosts.leave(cx, inside, place)?;
            }
            return self.refuse(cx, inside, MAPPING_TABLE_FULL);
        };
        if is_counted {
            self.census.count(cx, inside.network, Tally::BEGUN)?;
        }
        self.note(cx, change)?;
        if self.gives_out(entry.port) {
            self.ports.set_owner(cx, slot(inside.protocol), entry.address, entry.port, Some(handle.index))?;
        }
        Ok(Ok(self.mapping(inside, handle, &entry)))
    }

    #[cold]
    fn refuse<T>(&self, cx: &mut Cx<'_>, inside: Inside, reason: Reason) -> Result<Result<T, Reason>, Conflict> {
        self.census.count(cx, inside.network, Tally::REFUSED)?;
        Ok(Err(reason))
    }
}

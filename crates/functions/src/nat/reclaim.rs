//! Ports and entries of mappings that are over and have rested, for those who want them before a sweep finds them.

use std::iter::once;

use braid_nf::prelude::*;

use super::endpoint::{Inside, Kept, slot};
use super::hosts::Place;
use super::mappings::Mappings;
use super::ports::row;
use crate::parts::sweep::{make_room, scaled};

/// Ports that are looked at for one that is no longer needed when none is free; entries that are looked at at a time when all are in use.
const SEARCH: u32 = 64;

/// Whose an external port is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    Nobody,
    /// It was somebody's who no longer needed it.
    Ended,
    Other,
}

impl<K: Kept> Mappings<K> {
    /// Looks for ports that are no longer needed when none is free. True if one was found. If not, nobody looks again for a moment: whoever
    /// floods with flows that are refused makes no more work than that.
    #[cold]
    pub(super) fn reclaim_some(&self, cx: &mut Cx<'_>, inside: Inside, home: u32) -> Result<bool, Conflict> {
        let (slot, ports) = (slot(inside.protocol), u32::from(self.last_port - self.first_port) + 1);
        self.search(cx, 1 + row(slot, home), |cx| {
            let (near, mut found) = (scaled(cx.now() ^ u64::from(inside.port), ports), false);
            for n in 0..SEARCH.min(ports) {
                let port = self.first_port + ((near + n) % ports) as u16;
                found |= self.reclaim(cx, slot, (home, port))? == Holder::Ended;
            }
            Ok(found)
        })
    }

    /// The same for entries of the table when all are in use.
    #[cold]
    pub(super) fn reclaim_entries(&self, cx: &mut Cx<'_>, inside: Inside) -> Result<bool, Conflict> {
        let size = (SEARCH, self.entries.capacity());
        self.search(cx, 0, |cx| make_room(cx, &K::of(inside), size, |cx, among| self.take_out(cx, once(among), SEARCH)))
    }

    /// Searches, unless somebody did a moment ago and found nothing.
    fn search(
        &self,
        cx: &mut Cx<'_>,
        row: u32,
        search: impl FnOnce(&mut Cx<'_>) -> Result<bool, Conflict>,
    ) -> Result<bool, Conflict> {
        if self.searched.is_on(cx, row)? {
            return Ok(false);
        }
        let found = search(cx)?;
        if !found {
            self.searched.begin(cx, row)?;
        }
        Ok(found)
    }

    /// Whose a port is; a mapping that is over and has rested gives it back.
    #[inline(always)]
    pub(super) fn reclaim(&self, cx: &mut Cx<'_>, slot: u32, (address, port): Place) -> Result<Holder, Conflict> {
        if !(self.first_port..=self.last_port).contains(&port) {
            return Ok(Holder::Nobody);
        }
        let Some(owner) = self.ports.owner(cx, slot, address, port)? else { return Ok(Holder::Nobody) };
        let now = cx.now();
        match self.at(cx, owner)?.filter(|(_, _, entry)| self.is_free(now, entry.ends_ns)) {
            Some((_, inside, entry)) => self.end(cx, inside.inside(), &entry).map(|()| Holder::Ended),
            None => Ok(Holder::Other),
        }
    }
}

//! Ports of mappings that are over and have rested, for those who want them before a sweep finds them.

use braid_nf::prelude::*;

use super::endpoint::{Inside, Kept, scaled, slot};
use super::hosts::Place;
use super::mappings::Mappings;

/// Ports that are looked at for one that is no longer needed when none is free.
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
        let mut found = false;
        if self.ports.pauses(cx, slot(inside.protocol), home)? {
            return Ok(false);
        }
        let ports = u32::from(self.last_port - self.first_port) + 1;
        let near = scaled(cx.now() ^ u64::from(inside.port), ports);
        for n in 0..SEARCH.min(ports) {
            let port = self.first_port + ((near + n) % ports) as u16;
            found |= self.reclaim(cx, slot(inside.protocol), (home, port))? == Holder::Ended;
        }
        if !found {
            self.ports.pause(cx, slot(inside.protocol), home)?;
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
        match self.at(cx, owner)?.filter(|(_, _, entry)| self.is_free(now, entry)) {
            Some((_, inside, entry)) => self.end(cx, inside.inside(), &entry).map(|()| Holder::Ended),
            None => Ok(Holder::Other),
        }
    }
}

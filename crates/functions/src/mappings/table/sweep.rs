//! Removes mappings that have ended and rested, a few at a time.

use std::ops::Range;
use std::time::Duration;

use braid_nf::prelude::*;
use braid_nf::state::Share;

use super::Mappings;
use super::entry::{Entry, Packed};
use crate::mappings::endpoint::{Kept, slot};
use crate::parts::tables::sweep::{Over, Sweep, take_out};

/// The schedule of the sweep.
const SWEEP: Sweep = Sweep { every: SWEEP_EVERY, round: Duration::from_secs(2) };
/// The interval between two steps of the sweep.
pub(crate) const SWEEP_EVERY: Duration = Duration::from_millis(1);
/// The maximum number to remove at once, so that no packet waits long.
const MOST: u32 = 2048;

/// Selects mappings that can be removed at this time.
struct At<'a, K> {
    mappings: &'a Mappings<K>,
    now: u64,
}

impl<K: Kept> Over<K, Packed> for At<'_, K> {
    #[inline(always)]
    fn is_over(&self, _: &K, packed: &Packed) -> bool {
        self.mappings.is_free(self.now, packed.ends_ns())
    }

    #[inline(always)]
    fn prefetch(&self, inside: &K, packed: &Packed) {
        let entry = Entry::from(*packed);
        self.mappings.ports.prefetch(slot(inside.inside().protocol), entry.address, entry.port);
    }

    fn ended(&mut self, cx: &mut Cx<'_>, inside: &K, packed: &Packed) -> Result<(), Conflict> {
        let change = self.mappings.give_back(cx, inside.inside(), &Entry::from(*packed))?;
        self.mappings.note(cx, change)
    }
}

impl<K: Kept> Mappings<K> {
    /// Removes mappings that have ended and rested, in the piece of the share that is due.
    pub(crate) fn sweep(&self, cx: &mut Cx<'_>, share: Share) -> Result<(), Conflict> {
        let piece = SWEEP.piece(cx.now(), self.entries.capacity(), share);
        self.take_out(cx, piece, MOST).map(drop)
    }

    /// Removes at most `most` mappings that have ended and rested among these entries, and returns their number.
    pub(crate) fn take_out(
        &self,
        cx: &mut Cx<'_>,
        among: impl Iterator<Item = Range<u32>>,
        most: u32,
    ) -> Result<u32, Conflict> {
        let now = cx.now();
        take_out(cx, &self.entries, among, most, &mut At { mappings: self, now })
    }
}

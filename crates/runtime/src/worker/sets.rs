//! The packet sets of one group on one worker: tables, and the keys and places of the packets of a batch.

use braid_memory::HugePages;
use braid_nf::packet::key::Keys;
use braid_nf::{Found, PassSets, SetTables};
use braid_packet::Batch;

use crate::chain::Group;
use crate::expiry::Scan;

/// The sets of one group on this worker.
pub(super) struct Sets {
    pub(super) tables: SetTables,
    pub(super) keys: Box<Keys>,
    pub(super) found: Box<Found>,
    pub(super) scan: Scan,
    pub(super) ready: bool,
}

impl Sets {
    pub(super) fn new(group: &Group, sets: usize, pages: HugePages) -> Result<Sets, braid_memory::Error> {
        Ok(Sets {
            tables: SetTables::new(group.capacity(sets), group.state_bytes, group.extractor.shape(), pages)?,
            keys: Keys::boxed(),
            found: Found::boxed(),
            scan: Scan::default(),
            ready: false,
        })
    }

    #[inline]
    pub(super) fn look_up(&mut self, group: &Group, batch: &Batch, todo: &[u16], now_ns: &[u64; 256]) {
        group.extractor.extract_batch(batch, &mut self.keys);
        if !group.shared {
            self.lend().look_up(todo, now_ns);
        }
        self.ready = true;
    }

    pub(super) fn lend(&mut self) -> PassSets<'_> {
        PassSets { tables: &mut self.tables, keys: &self.keys, found: &mut self.found }
    }
}

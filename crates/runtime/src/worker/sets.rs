//! The packet sets of one group on one worker: tables, and the keys and places of the packets of a batch.

use braid_memory::HugePages;
use braid_nf::packet::key::Keys;
use braid_nf::{PassSets, SetSlot, SetTables};
use braid_packet::Batch;

use crate::chain::Group;
use crate::expiry::Scan;

/// The sets of one group on this worker.
pub(super) struct Sets {
    pub(super) tables: SetTables,
    pub(super) keys: Box<Keys>,
    pub(super) slots: Box<[SetSlot; 256]>,
    pub(super) idle_ms: Box<[u32; 256]>,
    pub(super) scan: Scan,
    pub(super) ready: bool,
}

impl Sets {
    pub(super) fn new(group: &Group, sets: usize, pages: HugePages) -> Result<Sets, braid_memory::Error> {
        Ok(Sets {
            tables: SetTables::new(group.capacity(sets), group.state_bytes, group.extractor.shape(), pages)?,
            keys: Keys::boxed(),
            slots: Box::new([SetSlot::MISS; 256]),
            idle_ms: Box::new([0; 256]),
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
        PassSets { tables: &mut self.tables, keys: &self.keys, slots: &mut self.slots, idle_ms: &mut self.idle_ms }
    }
}

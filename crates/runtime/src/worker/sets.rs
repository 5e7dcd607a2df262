//! The packet sets of one group on one worker: their tables, and the keys and slots of the packets in the current batch.

use braid_memory::HugePages;
use braid_nf::packet::key::Keys;
use braid_nf::{Found, Index, PassSets, SetTables};
use braid_packet::Batch;

use crate::chain::{Chain, Group};
use crate::expiry::{Eviction, Scan, begun_max};

/// Creates the worker's indexes, one for each function that has sets shared by workers and uses an index.
pub(super) fn indexes(chain: &Chain) -> Vec<Option<Index>> {
    (0..chain.stages().len()).map(|position| chain.indexed(position).map(Index::new)).collect()
}

/// The packet sets of one group on this worker.
pub(super) struct Sets {
    pub(super) tables: SetTables,
    pub(super) keys: Box<Keys>,
    pub(super) found: Box<Found>,
    pub(super) scan: Scan,
    pub(super) eviction: Eviction,
    /// `keys` holds the keys of the current batch.
    keyed: bool,
    /// The packets of the current batch have been looked up.
    pub(super) ready: bool,
}

impl Sets {
    pub(super) fn new(group: &Group, sets: usize, pages: HugePages) -> Result<Sets, braid_memory::Error> {
        let mut tables = SetTables::new(group.capacity(sets), group.state_bytes, group.extractor.shape(), pages)?;
        tables.keep_begun(begun_max(group.shortest_timeout_ns));
        Ok(Sets {
            tables,
            keys: Keys::boxed(),
            found: Found::boxed(),
            scan: Scan::default(),
            eviction: Eviction::default(),
            keyed: false,
            ready: false,
        })
    }

    /// Resets the batch state when a new batch has arrived.
    pub(super) fn forget(&mut self) {
        (self.keyed, self.ready) = (false, false);
    }

    /// Parses the batch and extracts its keys in the same pass.
    #[inline]
    pub(super) fn parse(&mut self, group: &Group, batch: &mut Batch) {
        group.extractor.parse_and_extract(batch, &mut self.keys);
        self.keyed = true;
    }

    #[inline]
    pub(super) fn look_up(&mut self, group: &Group, batch: &Batch, todo: &[u16], now_ns: &[u64; 256]) {
        // The keys were either extracted while parsing, or are extracted here from the packets as earlier functions left them.
        if !std::mem::take(&mut self.keyed) {
            group.extractor.extract_batch(batch, &mut self.keys);
        }
        if !group.shared {
            self.lend().look_up(todo, now_ns);
        }
        self.ready = true;
    }

    pub(super) fn lend(&mut self) -> PassSets<'_> {
        PassSets { tables: &mut self.tables, keys: &self.keys, found: &mut self.found }
    }
}

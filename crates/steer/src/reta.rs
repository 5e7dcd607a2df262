//! The indirection table, which maps the low bits of a hash to a worker.
//!
//! NICs call it RETA. Its length is a power of two, and by default entry *i* belongs to worker *i* modulo the number of workers. Moving load
//! means changing entries: all packet sets of an entry move together, so a change in a running system must hand over the sets of those
//! entries.

/// The length in most NICs (82599, ENA, virtio).
pub const ENTRIES_DEFAULT: usize = 128;
/// Maximum length of a table.
pub const ENTRIES_MAX: usize = 1 << 16;

/// Why a table cannot be created or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RetaError {
    /// The number of entries is not a power of two from 1 to [`ENTRIES_MAX`].
    #[error("an indirection table has a power of two of entries, at most {ENTRIES_MAX}, not {0}")]
    Entries(usize),
    /// There are no workers, or more than entries.
    #[error("{workers} workers do not fit an indirection table of {entries} entries: every worker needs one")]
    Workers {
        /// Number of workers requested.
        workers: usize,
        /// Number of entries in the table.
        entries: usize,
    },
    /// The entry does not exist.
    #[error("entry {entry} is beyond the table's {entries}")]
    NoSuchEntry {
        /// The requested entry.
        entry: usize,
        /// Number of entries in the table.
        entries: usize,
    },
    /// The worker does not exist.
    #[error("worker {worker} does not exist: there are {workers}")]
    NoSuchWorker {
        /// The requested worker.
        worker: usize,
        /// Number of workers.
        workers: usize,
    },
}

/// The indirection table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reta {
    entries: Box<[u16]>,
    workers: usize,
}

impl Reta {
    /// Creates a table of `entries` entries, distributed over the workers in turn.
    pub fn new(entries: usize, workers: usize) -> Result<Reta, RetaError> {
        if !entries.is_power_of_two() || entries > ENTRIES_MAX {
            return Err(RetaError::Entries(entries));
        }
        if workers == 0 || workers > entries || workers > usize::from(u16::MAX) {
            return Err(RetaError::Workers { workers, entries });
        }
        Ok(Reta { entries: (0..entries).map(|i| (i % workers) as u16).collect(), workers })
    }

    /// Number of workers.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// The worker of each entry.
    pub fn entries(&self) -> &[u16] {
        &self.entries
    }

    /// Number of bits of a hash that select the entry: the lowest ones.
    pub fn index_bits(&self) -> u32 {
        self.entries.len().trailing_zeros()
    }

    /// The entry of a hash.
    #[inline(always)]
    pub fn entry(&self, hash: u32) -> usize {
        hash as usize & (self.entries.len() - 1)
    }

    /// The worker of a hash.
    #[inline(always)]
    pub fn worker(&self, hash: u32) -> usize {
        self.entries[hash as usize & (self.entries.len() - 1)] as usize
    }

    /// Assigns an entry, and with it all of its packet sets, to another worker.
    pub fn assign(&mut self, entry: usize, worker: usize) -> Result<(), RetaError> {
        if worker >= self.workers {
            return Err(RetaError::NoSuchWorker { worker, workers: self.workers });
        }
        let entries = self.entries.len();
        *self.entries.get_mut(entry).ok_or(RetaError::NoSuchEntry { entry, entries })? = worker as u16;
        Ok(())
    }

    /// The number of packets of each worker, if entry *i* saw `per_entry[i]` packets.
    pub fn load(&self, per_entry: &[u64]) -> Vec<u64> {
        let mut load = vec![0; self.workers];
        for (&worker, &packets) in self.entries.iter().zip(per_entry) {
            load[worker as usize] += packets;
        }
        load
    }

    /// Moves entries from the busiest to the least busy worker, one at a time and only while that helps, until the imbalance is at most `goal`.
    /// Returns the entries that moved as (entry, from, to). A greedy version of RSS++ (Barbette et al., CoNEXT 2019).
    pub fn rebalance(&mut self, per_entry: &[u64], goal: f64) -> Vec<(usize, usize, usize)> {
        let mut moved = Vec::new();
        let mut load = self.load(per_entry);
        while imbalance(&load) > goal && moved.len() < self.entries.len() {
            let Some(from) = (0..self.workers).max_by_key(|&w| load[w]) else { break };
            let Some(to) = (0..self.workers).min_by_key(|&w| load[w]) else { break };
            let gap = load[from] - load[to];
            let packets_of = |entry: usize| per_entry.get(entry).copied().unwrap_or(0);
            let fits = |&entry: &usize| self.entries[entry] as usize == from && (1..gap).contains(&packets_of(entry));
            // The best entry closes half of the gap; any load smaller than the gap lowers the maximum of the two.
            let Some(entry) = (0..self.entries.len()).filter(fits).min_by_key(|&e| packets_of(e).abs_diff(gap / 2))
            else {
                break;
            };
            load[from] -= packets_of(entry);
            load[to] += packets_of(entry);
            self.entries[entry] = to as u16;
            moved.push((entry, from, to));
        }
        moved
    }
}

/// The busiest worker's load divided by the mean: 1 is even, the number of workers is the worst. 1 if there was no load.
pub fn imbalance(load: &[u64]) -> f64 {
    let total: u64 = load.iter().sum();
    let most = load.iter().copied().max().unwrap_or(0);
    if total == 0 { 1.0 } else { most as f64 * load.len() as f64 / total as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_go_round_the_workers() {
        let reta = Reta::new(128, 3).unwrap();
        assert_eq!(&reta.entries()[..5], &[0, 1, 2, 0, 1]);
        assert_eq!((reta.worker(127), reta.worker(128), reta.index_bits()), (1, 0, 7));
    }

    #[test]
    fn impossible_tables_are_refused() {
        assert_eq!(Reta::new(100, 2), Err(RetaError::Entries(100)));
        assert_eq!(Reta::new(0, 1), Err(RetaError::Entries(0)));
        assert_eq!(Reta::new(128, 0), Err(RetaError::Workers { workers: 0, entries: 128 }));
        assert_eq!(Reta::new(2, 3), Err(RetaError::Workers { workers: 3, entries: 2 }));
    }

    #[test]
    fn a_changed_entry_takes_its_hashes_along() {
        let mut reta = Reta::new(512, 2).unwrap();
        reta.assign(4, 1).unwrap();
        assert_eq!((reta.worker(4), reta.worker(516), reta.worker(6)), (1, 1, 0));
        assert_eq!(reta.assign(512, 0), Err(RetaError::NoSuchEntry { entry: 512, entries: 512 }));
        assert_eq!(reta.assign(0, 2), Err(RetaError::NoSuchWorker { worker: 2, workers: 2 }));
    }

    #[test]
    fn imbalance_is_the_busiest_over_the_mean() {
        assert_eq!(imbalance(&[10, 10]), 1.0);
        assert_eq!(imbalance(&[30, 10]), 1.5);
        assert_eq!(imbalance(&[8, 0, 0, 0]), 4.0);
        assert_eq!(imbalance(&[0, 0]), 1.0);
    }

    #[test]
    fn rebalancing_moves_few_entries_and_never_makes_it_worse() {
        let mut reta = Reta::new(128, 4).unwrap();
        let per_entry: Vec<u64> = (0..128).map(|i| if i % 4 == 0 { 100 } else { 20 }).collect();
        assert!(imbalance(&reta.load(&per_entry)) > 2.0);
        let moved = reta.rebalance(&per_entry, 1.05);
        assert!(imbalance(&reta.load(&per_entry)) <= 1.05, "{:?}", reta.load(&per_entry));
        assert!(moved.len() < 40, "{} entries moved", moved.len());
    }

    #[test]
    fn one_heavy_entry_cannot_be_split() {
        let mut reta = Reta::new(4, 2).unwrap();
        assert!(reta.rebalance(&[1000, 0, 0, 0], 1.1).is_empty());
    }
}

//! A count-min sketch (Cormode and Muthukrishnan, Journal of Algorithms 55, 2005) of an interval, with a part for each
//! worker.
//!
//! Each row has a cell for every key, chosen by the row's own hash. A key's weight is added to its cells, and the least
//! of them is its estimate. Cells are sums, so the sketch of all workers is the cell-by-cell sum of their parts: the
//! estimate does not depend on which worker saw which packet. With *c* columns, *r* rows, and a *total* weight of all
//! keys in the interval:
//!
//! - an estimate is never below the truth;
//! - with probability 1 - e^-*r* it is at most e · *total* / *c* above (the paper's theorem 1).
//!
//! Six cells share a cache line with the number of their interval. A line of an earlier interval counts as empty, so
//! lines are never cleared.

use std::sync::Arc;

use braid_nf::Part;
use braid_nf::prelude::*;
use braid_nf::state::hash::mixed;
use braid_nf::state::{DistributedVector, DistributedVectorConfig, StateBuilder, StateError, StateObject, Tx};

/// Cells per line.
pub const CELLS: u32 = 6;

/// Some cells of one row, and the interval they belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Line {
    interval: u64,
    sums: [u64; CELLS as usize],
}

impl Line {
    /// Adds another worker's line; of two intervals the later one wins.
    fn merge(&mut self, part: &Line) {
        if part.interval > self.interval {
            *self = *part;
        } else if part.interval == self.interval {
            self.sums.iter_mut().zip(part.sums).for_each(|(sum, more)| *sum = sum.saturating_add(more));
        }
    }
}

/// A count-min sketch of the current interval.
#[derive(Debug)]
pub struct Sketch {
    lines: DistributedVector<Line>,
    rows: u32,
    columns: u32,
}

impl Sketch {
    /// An empty sketch; `columns` must be a multiple of `CELLS`.
    pub fn new(builder: &mut StateBuilder, rows: u32, columns: u32) -> Result<Sketch, StateError> {
        let config = DistributedVectorConfig { name: "sketch".into(), len: rows * (columns / CELLS) };
        Ok(Sketch { lines: DistributedVector::new(builder, &config, Line::merge)?, rows, columns })
    }

    /// Whether keys have the same cells in `other`.
    pub fn is_like(&self, other: &Sketch) -> bool {
        (self.rows, self.columns) == (other.rows, other.columns)
    }

    /// The line and the cell of a key in a row.
    #[inline(always)]
    fn cell(&self, hash: u64, row: u32) -> (u32, usize) {
        let hash = mixed(&hash.to_ne_bytes(), row.into());
        let column = (((hash >> 32) * u64::from(self.columns)) >> 32) as u32;
        (row * (self.columns / CELLS) + column / CELLS, (column % CELLS) as usize)
    }

    /// Adds to a key in the worker's own part, and returns the estimate of that part.
    #[inline]
    pub fn add(&self, tx: &mut Tx, hash: u64, interval: u64, weight: u64) -> Result<u64, Conflict> {
        let mut least = u64::MAX;
        for row in 0..self.rows {
            let (line, cell) = self.cell(hash, row);
            let sum = self.lines.update(tx, line, |line| {
                if line.interval != interval {
                    *line = Line { interval, sums: [0; CELLS as usize] };
                }
                line.sums[cell] = line.sums[cell].saturating_add(weight);
                line.sums[cell]
            })?;
            least = least.min(sum.unwrap_or(0));
        }
        Ok(least)
    }

    /// The estimate over all workers' parts.
    pub fn estimate(&self, tx: &mut Tx, hash: u64, interval: u64) -> Result<u64, Conflict> {
        let mut least = u64::MAX;
        for row in 0..self.rows {
            let (line, cell) = self.cell(hash, row);
            let mut sum = 0u64;
            self.lines.visit(tx, line, |line| {
                if line.interval == interval {
                    sum = sum.saturating_add(line.sums[cell]);
                }
            })?;
            least = least.min(sum);
        }
        Ok(least)
    }
}

impl Part for Sketch {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.lines.objects(into);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use braid_nf::state::{Domain, HugePages};
    use proptest::prelude::*;

    use super::*;

    /// A sketch, and a transaction for each worker.
    fn made(workers: usize, rows: u32, columns: u32) -> (Sketch, Vec<Tx>) {
        let domain = Domain::new(workers);
        let sketch = Sketch::new(&mut StateBuilder::new(&domain, HugePages::Never), rows, columns).expect("small");
        (sketch, (0..workers).map(|worker| Tx::new(&domain, worker)).collect())
    }

    fn hash(key: u32) -> u64 {
        mixed(&key.to_le_bytes(), 7)
    }

    /// Adds packets, each seen by some worker, and returns the estimates of all keys.
    fn estimates(workers: usize, columns: u32, packets: &[(u32, u64, usize)]) -> HashMap<u32, u64> {
        let (sketch, mut txs) = made(workers, 4, columns);
        for (key, weight, worker) in packets {
            let tx = &mut txs[worker % workers];
            sketch.add(tx, hash(*key), 3, *weight).expect("alone");
            tx.commit().expect("alone");
        }
        let keys = packets.iter().map(|(key, ..)| *key);
        keys.map(|key| (key, sketch.estimate(&mut txs[0], hash(key), 3).expect("alone"))).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        /// Estimates are never below the truth, and do not depend on which worker saw which packet.
        #[test]
        fn an_estimate_is_never_below_the_truth_and_the_same_for_any_number_of_workers(
            packets in prop::collection::vec((0u32..300, 1u64..1500, 0usize..8), 1..400),
        ) {
            let mut exact: HashMap<u32, u64> = HashMap::new();
            packets.iter().for_each(|(key, weight, _)| *exact.entry(*key).or_default() += weight);
            let alone = estimates(1, 48, &packets);
            for workers in [2, 5] {
                prop_assert_eq!(&estimates(workers, 48, &packets), &alone);
            }
            prop_assert!(exact.iter().all(|(key, truth)| alone[key] >= *truth));
        }
    }

    #[test]
    fn the_papers_bound_holds_for_as_many_keys_as_it_says() {
        // Zipf-distributed weights of 20,000 keys, on 600 columns.
        let packets: Vec<_> = (1..=20_000u32).map(|key| (key, u64::from(2_000_000 / key), 0)).collect();
        let total: u64 = packets.iter().map(|(_, weight, _)| weight).sum();
        let most = (std::f64::consts::E * total as f64 / 600.0) as u64;
        let found = estimates(1, 600, &packets);
        let beyond = packets.iter().filter(|(key, truth, _)| found[key] > truth + most).count();
        let allowed = packets.len() as f64 * (-4f64).exp();
        assert!((beyond as f64) <= allowed, "{beyond} of {} beyond the bound, {allowed:.0} may be", packets.len());
        assert!(found.iter().any(|(key, estimate)| *estimate > u64::from(2_000_000 / key)), "it is a sketch");
    }

    #[test]
    fn what_was_counted_in_another_interval_counts_no_more() {
        let (sketch, mut txs) = made(2, 4, 48);
        for tx in &mut txs {
            assert_eq!(sketch.add(tx, 5, 1, 10), Ok(10));
            tx.commit().expect("alone");
        }
        assert_eq!(sketch.estimate(&mut txs[0], 5, 1), Ok(20));
        assert_eq!(sketch.add(&mut txs[0], 5, 2, 1), Ok(1));
        assert_eq!(sketch.estimate(&mut txs[0], 5, 2), Ok(1), "the other worker's line is of the interval before");
    }
}

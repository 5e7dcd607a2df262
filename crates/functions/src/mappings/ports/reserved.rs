//! Ports that are configured for a host: no other host gets them, even before their mappings have been made (`fixed.rs`).

use std::ops::RangeInclusive;

/// A run of consecutive ports of one protocol and external address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Run {
    row: u32,
    first: u16,
    last: u16,
}

/// All runs, sorted; between two runs of a row there is always a gap.
#[derive(Debug, Default)]
pub(crate) struct Reserved(Box<[Run]>);

impl Reserved {
    /// Builds the runs from ports by row, in any order.
    pub(crate) fn new(ports: impl Iterator<Item = (u32, u16)>) -> Reserved {
        let mut ports: Vec<_> = ports.collect();
        ports.sort_unstable();
        let mut runs: Vec<Run> = Vec::new();
        for (row, port) in ports {
            match runs.last_mut() {
                Some(run) if run.row == row && u32::from(run.last) + 1 >= u32::from(port) => run.last = port,
                _ => runs.push(Run { row, first: port, last: port }),
            }
        }
        Reserved(runs.into())
    }

    /// Whether a port is reserved.
    #[inline(always)]
    pub(crate) fn has(&self, row: u32, port: u16) -> bool {
        !self.0.is_empty() && self.is_in_a_run(row, port)
    }

    #[cold]
    fn is_in_a_run(&self, row: u32, port: u16) -> bool {
        let behind = self.0.partition_point(|run| (run.row, run.first) <= (row, port));
        behind.checked_sub(1).is_some_and(|at| self.0[at].row == row && port <= self.0[at].last)
    }

    /// The gaps between reserved ports in a range, starting with the gap that contains or follows `from`, and wrapping
    /// around.
    pub(crate) fn gaps(&self, row: u32, within: &RangeInclusive<u16>, from: u16) -> Vec<RangeInclusive<u16>> {
        let (mut gaps, mut next) = (Vec::new(), u32::from(*within.start()));
        let end = u32::from(*within.end());
        let begin = self.0.partition_point(|run| (run.row, run.last) < (row, *within.start()));
        let runs = self.0[begin..].iter().take_while(|run| run.row == row && u32::from(run.first) <= end);
        for run in runs {
            if next < u32::from(run.first) {
                gaps.push(next as u16..=run.first - 1);
            }
            next = u32::from(run.last) + 1;
        }
        if next <= end {
            gaps.push(next as u16..=*within.end());
        }
        let first = gaps.partition_point(|gap| *gap.end() < from);
        gaps.rotate_left(first);
        gaps
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn gaps_are_what_is_left(
            taken in prop::collection::btree_set((0u32..3, 0u16..40), 0..60),
            (first, len, from) in (0u16..40, 0u16..40, 0u16..50),
        ) {
            let reserved = Reserved::new(taken.iter().rev().copied());
            for row in 0..3 {
                let within = first..=first + len;
                let left: Vec<u16> = within.clone().filter(|port| !taken.contains(&(row, *port))).collect();
                for port in within.clone() {
                    prop_assert_eq!(reserved.has(row, port), taken.contains(&(row, port)));
                }
                let gaps = reserved.gaps(row, &within, from);
                // There is a reserved port between any two gaps, so the gap that contains `from` comes as a whole.
                let at = left.iter().position(|port| *port >= from).unwrap_or(0);
                let at = (0..=at).rev().take_while(|n| *n == at || left[*n] + 1 == left[*n + 1]).last().unwrap_or(0);
                let mut expected = left.clone();
                expected.rotate_left(if from > left.last().copied().unwrap_or(0) { 0 } else { at });
                prop_assert_eq!(gaps.into_iter().flatten().collect::<Vec<_>>(), expected);
            }
        }
    }

    #[test]
    fn the_last_port_of_all_ends_a_run() {
        let reserved = Reserved::new([(0, u16::MAX), (0, u16::MAX - 1), (1, 0)].into_iter());
        assert_eq!(reserved.gaps(0, &(65_530..=u16::MAX), 65_535), [65_530..=65_533]);
        assert!(reserved.has(0, u16::MAX) && reserved.has(1, 0) && !reserved.has(1, u16::MAX) && !reserved.has(2, 0));
    }
}

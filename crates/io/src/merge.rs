//! Merges the packets of several workers back into input order.
//!
//! Each worker's packets arrive in the order in which the worker sent them. The next packet to leave is the one with the smallest
//! sequence number among the workers' first packets. It may leave as soon as every worker without held packets has *marked* that it
//! will send nothing smaller. Packets of one worker are never reordered: a late packet counts as if it had its predecessor's
//! number, so copies of a flooded packet stay adjacent.

use std::collections::VecDeque;

use crate::packed::Packed;

#[derive(Debug, Default)]
struct Lane {
    loads: VecDeque<Packed>,
    /// Index of the next frame in the first load.
    at: usize,
    /// Lower bound for the key of the next frame: the number of the previous frame.
    floor: u64,
    /// No frame sent later has a smaller number.
    mark: u64,
}

impl Lane {
    fn key(&self) -> Option<u64> {
        let (_, info) = self.loads.front()?.frame(self.at)?;
        Some(info.sequence.max(self.floor))
    }
}

/// A merge of several lanes, one for each worker.
#[derive(Debug, Default)]
pub(crate) struct Merge {
    lanes: Vec<Lane>,
    held_bytes: usize,
}

impl Merge {
    pub(crate) fn new(lanes: usize) -> Merge {
        Merge { lanes: (0..lanes).map(|_| Lane::default()).collect(), held_bytes: 0 }
    }

    /// Adds a load that a worker sent.
    pub(crate) fn push(&mut self, lane: usize, load: Packed) {
        if !load.is_empty() {
            self.held_bytes += load.footprint();
            self.lanes[lane].loads.push_back(load);
        }
    }

    /// Records a worker's mark. Everything that the worker sent earlier must already have been pushed.
    pub(crate) fn mark(&mut self, lane: usize, mark: u64) {
        self.lanes[lane].mark = mark;
    }

    /// Bytes of memory held.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// The lane whose first frame must leave next, if this is certain.
    pub(crate) fn next(&self) -> Option<usize> {
        let (lane, key) = self.smallest()?;
        let certain = |lane: &Lane| !lane.loads.is_empty() || lane.mark >= key;
        self.lanes.iter().all(certain).then_some(lane)
    }

    /// The lane whose first frame is next as far as is known now.
    pub(crate) fn next_at_any_price(&self) -> Option<usize> {
        self.smallest().map(|(lane, _)| lane)
    }

    fn smallest(&self) -> Option<(usize, u64)> {
        let keys = self.lanes.iter().enumerate().filter_map(|(number, lane)| Some((number, lane.key()?)));
        keys.min_by_key(|&(_, key)| key)
    }

    /// Passes the first frame of a lane to `write` and removes it. Returns the load once it is used up.
    pub(crate) fn take(&mut self, lane: usize, write: impl FnOnce(&[u8], &braid_packet::FrameInfo)) -> Option<Packed> {
        let lane = &mut self.lanes[lane];
        let load = lane.loads.front()?;
        let (bytes, info) = load.frame(lane.at)?;
        lane.floor = lane.floor.max(info.sequence);
        write(bytes, &info);
        lane.at += 1;
        if lane.at < load.len() {
            return None;
        }
        lane.at = 0;
        self.held_bytes -= load.footprint();
        lane.loads.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use braid_packet::FrameInfo;
    use proptest::prelude::*;

    use super::*;

    fn load(sequences: &[u64]) -> Packed {
        let mut load = Packed::new();
        for &sequence in sequences {
            load.push(&sequence.to_le_bytes(), FrameInfo { sequence, ..FrameInfo::default() });
        }
        load
    }

    fn drain(merge: &mut Merge) -> Vec<u64> {
        let mut out = Vec::new();
        while let Some(lane) = merge.next() {
            let _ = merge.take(lane, |_, info| out.push(info.sequence));
        }
        out
    }

    #[test]
    fn nothing_goes_before_a_silent_worker_has_marked() {
        let mut merge = Merge::new(2);
        merge.push(0, load(&[0, 1, 5]));
        assert_eq!(drain(&mut merge), [0]);
        merge.mark(1, 4);
        assert_eq!(drain(&mut merge), [1]);
        merge.push(1, load(&[4, 6]));
        assert_eq!(drain(&mut merge), [4, 5]);
        merge.mark(0, u64::MAX);
        assert_eq!(drain(&mut merge), [6]);
        assert_eq!(merge.held_bytes(), 0);
    }

    #[test]
    fn copies_stay_side_by_side_and_late_packets_stay_with_their_worker() {
        let mut merge = Merge::new(2);
        merge.push(0, load(&[3, 3, 3, 1, 4]));
        merge.push(1, load(&[2, 5]));
        merge.mark(0, u64::MAX);
        merge.mark(1, u64::MAX);
        assert_eq!(drain(&mut merge), [2, 3, 3, 3, 1, 4, 5]);
    }

    proptest! {
        #[test]
        fn any_distribution_over_workers_merges_to_the_input_order(
            owners in proptest::collection::vec(0usize..4, 0..200),
            chunk in 1usize..9,
        ) {
            let mut merge = Merge::new(4);
            let mut out = Vec::new();
            for lane in 0..4 {
                let mine: Vec<u64> = (0..owners.len()).filter(|&i| owners[i] == lane).map(|i| i as u64).collect();
                for part in mine.chunks(chunk) {
                    merge.push(lane, load(part));
                    out.extend(drain(&mut merge));
                }
                merge.mark(lane, u64::MAX);
                out.extend(drain(&mut merge));
            }
            prop_assert_eq!(out, (0..owners.len() as u64).collect::<Vec<_>>());
        }
    }
}

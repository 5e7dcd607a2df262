//! Replays a packet's passage through the whole chain in one transaction.

use std::sync::Arc;

use braid_nf::packet::key::Keys;
use braid_nf::{Found, SetTables};

use super::{Difference, OpenGroup, Replay};
use crate::chain::course::Direction;
use crate::chain::whole::{Groups, Progress, Way, Whole};
use crate::observe::record::{Entry, RecordedBatch};

/// The tables of the replay, and the keys and slots of a batch in each group.
struct Both<'a>(&'a mut [SetTables], &'a mut [OpenGroup]);

impl Groups for Both<'_> {
    fn group(&mut self, number: usize) -> (&mut SetTables, &mut Keys, &mut Found) {
        let open = &mut self.1[number];
        (&mut self.0[number], &mut open.keys, &mut open.found)
    }
}

impl Replay {
    /// Replays the passage of one packet through the chain.
    pub(super) fn go_through(
        &mut self,
        entry: &Entry,
        id: (usize, usize),
        (packet, direction): (u16, Direction),
        now_ns: u64,
        left: usize,
        recorded: &RecordedBatch,
    ) {
        let mut open = self.take(id, recorded, left);
        open.now_ns[usize::from(packet)] = now_ns;
        let chain = Arc::clone(&self.chain);
        self.named.look(&chain, &open.batch, &[packet]);
        let mut progress = Progress::default();
        let mut whole = Whole {
            chain: &chain,
            tx: &mut self.tx,
            batch: &mut open.batch,
            verdicts: &mut open.verdicts,
            now_ns: &open.now_ns,
            ports: self.ports,
            logs: &mut open.logs,
            progress: &mut progress,
            steps: None,
        };
        let way = whole.attempt(packet, direction, &mut Both(&mut self.tables, &mut open.groups));
        let done = way == Way::Through && whole.tx.commit().is_ok();
        whole.stands();
        let last = progress.met.last().copied().unwrap_or(0);
        if !done {
            let function = self.function(last);
            self.differences.push(Difference::Refused { sequence: entry.sequence, function });
        } else {
            self.named.compare((&chain, &progress.met), (&open.batch, &open.verdicts), &[packet]);
        }
        open.last = (entry.sequence, last);
        self.put_back(id, open, recorded);
    }
}

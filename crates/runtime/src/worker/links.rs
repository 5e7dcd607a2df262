//! What functions do when the link of a port goes down or comes up: between two batches of a live run, on one worker.

use std::sync::Arc;

use braid_nf::{EntryRange, Event, Port};
use braid_state::Conflict;

use super::Worker;
use super::describe_sets::{LOOK, SPAN};
use crate::Chain;
use crate::attempt::run_event;

impl Worker {
    /// Tells the function at a position that the link of a port is down: it forgets what it has learnt there, of a bounded number of entries
    /// from `cursor` on. Returns where to go on; none at the end, or if the chain is another one by now.
    pub fn link_down(&mut self, chain: &Arc<Chain>, (position, cursor): (usize, u32), port: Port) -> Option<u32> {
        let stage = chain.stages().get(position).filter(|_| Arc::ptr_eq(chain, &self.parts.chain))?;
        let mut next = Some(cursor);
        while let Some(from) = next.filter(|at| *at < cursor.saturating_add(LOOK)) {
            next = None;
            self.run_apart(position, |event| {
                next = stage.link_down(event, port, EntryRange { first: from, count: SPAN })?;
                Ok(())
            });
        }
        next
    }

    /// Tells all functions that the link of a port is up, and sends what they have to say there.
    pub fn link_up(&mut self, port: Port) {
        let chain = Arc::clone(&self.parts.chain);
        for (position, stage) in chain.stages().iter().enumerate() {
            self.run_apart(position, |event| stage.link_up(event, port));
        }
        self.send_made();
    }

    /// Runs a handler that belongs to no packet and no tick, in a transaction of its own.
    pub(super) fn run_apart(&mut self, position: usize, handler: impl FnMut(&mut Event<'_>) -> Result<(), Conflict>) {
        let (tx, emitted) = (&mut self.parts.tx, &mut self.logs.emitted);
        emitted.begin(position, braid_nf::Round::Onward);
        run_event(tx, emitted, self.parts.ports, self.last_ns, &mut self.counters, handler);
    }
}

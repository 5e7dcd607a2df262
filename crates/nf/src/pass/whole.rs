//! A packet whose way through all functions of a chain is one transaction: every handler takes part in it, nothing is
//! final before its end, and everything is rolled back together.

use braid_packet::Batch;

use super::{Interrupted, Logs, Pass, Place};
use crate::sets::SetUndo;
use crate::shared::{Lives, SharedSets};
use crate::{NetworkFunction, Verdict, Verdicts};

/// The state before a packet's first function.
#[derive(Clone, Copy, Debug)]
pub struct Beginning {
    packet: usize,
    verdict: Verdict,
    emitted: usize,
    lives: Lives,
}

impl Logs {
    /// Records the state before a packet; everything before it must be committed.
    pub fn set_out(&mut self, packet: usize, verdicts: &Verdicts) -> Beginning {
        Beginning { packet, verdict: verdicts.get(packet), emitted: self.emitted.len(), lives: self.lives }
    }

    /// Switches to the undo log of another group: `undo` passes in that group's log, and receives the log of the
    /// previous group.
    #[inline]
    pub fn turn_to_group(&mut self, undo: &mut SetUndo) {
        std::mem::swap(&mut self.sets, undo);
    }

    /// Rolls back what functions did to the packet, its verdict, and what they emitted. The caller rolls back sets by
    /// group ([`SetUndo::restore`]); the transaction rolls back state objects.
    pub fn take_back_all(&mut self, beginning: &Beginning, batch: &mut Batch, verdicts: &mut Verdicts) {
        batch.restore_all(&mut self.packets, 0);
        self.emitted.truncate(beginning.emitted);
        self.lives = beginning.lives;
        verdicts.set(beginning.packet, beginning.verdict);
    }
}

impl Pass<'_> {
    /// Runs handlers over positions `from..to` as part of a transaction that continues.
    pub(crate) fn take_part<N: NetworkFunction>(
        &mut self,
        function: &N,
        place: Place,
        shared: Option<&SharedSets>,
        from: usize,
        to: usize,
    ) -> Result<(), Interrupted> {
        for at in from..to {
            let i = usize::from(self.todo[at]) & 255;
            let Ok(verdict) = self.handle_anywhere(function, place, shared, i) else { return Err(Interrupted { at }) };
            self.verdicts.set(i, verdict);
        }
        Ok(())
    }
}

//! A packet whose way through all functions of a chain is one transaction: each function's handler takes part, nothing stands
//! before the end, and all of it is taken back together.

use braid_packet::Batch;

use super::{Interrupted, Logs, Pass, Place};
use crate::sets::SetUndo;
use crate::shared::{Lives, SharedSets};
use crate::{NetworkFunction, Verdict, Verdicts};

/// Where everything stood before a packet's first function.
#[derive(Clone, Copy, Debug)]
pub struct Beginning {
    packet: usize,
    verdict: Verdict,
    emitted: usize,
    lives: Lives,
}

impl Logs {
    /// A packet sets out; everything before it is committed.
    pub fn set_out(&mut self, packet: usize, verdicts: &Verdicts) -> Beginning {
        Beginning { packet, verdict: verdicts.get(packet), emitted: self.emitted.len(), lives: self.lives }
    }

    /// The changes of sets that are noted from now on are those of another group; `undo` has what was noted of it before, and
    /// then has what was noted of the one before.
    #[inline]
    pub fn turn_to_group(&mut self, undo: &mut SetUndo) {
        std::mem::swap(&mut self.sets, undo);
    }

    /// What functions did to the packet, its verdict, and what they emitted has not happened. Sets are taken back by group
    /// ([`SetUndo::restore`]), state objects by the transaction.
    pub fn take_back_all(&mut self, beginning: &Beginning, batch: &mut Batch, verdicts: &mut Verdicts) {
        batch.restore_all(&mut self.packets, 0);
        self.emitted.truncate(beginning.emitted);
        self.lives = beginning.lives;
        verdicts.set(beginning.packet, beginning.verdict);
    }
}

impl Pass<'_> {
    /// Runs handlers over positions `from..to` as parts of a transaction that goes on.
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

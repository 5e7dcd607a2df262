//! Answers made by later functions, on their way back: few packets, in no set, handled one after another.

use super::{Interrupted, Mark, Pass};
use crate::NetworkFunction;
use crate::cx::Cx;
use crate::sets::SetSlot;

impl Pass<'_> {
    /// Runs [`NetworkFunction::back`] over positions `from..to`, with a mark for each packet.
    #[cold]
    pub(crate) fn attempt_back<N: NetworkFunction>(
        &mut self,
        function: &N,
        from: usize,
        to: usize,
    ) -> Result<(), Interrupted> {
        const NO_SET: (SetSlot, u32) = (SetSlot::MISS, 0);
        (self.logs.kept, self.logs.emitted_before) = (from, self.logs.emitted.len());
        self.logs.emitted.keep_decided(self.verdicts, self.batch.len());
        for at in from..to {
            let i = usize::from(self.todo[at]) & 255;
            let mark = Mark::new(self.tx, self.logs, self.verdicts.code(i), NO_SET);
            self.logs.marks.push(mark);
            self.tx.set_now(self.now_ns[i]);
            let logs = &mut *self.logs;
            let mut cx = Cx::new(self.tx, &mut logs.emitted, self.ports, i, false);
            let Ok(verdict) = function.back(&mut cx, &mut self.batch.packet(i, Some(&mut logs.packets))) else {
                self.take_back_last(i, NO_SET);
                return Err(Interrupted { at });
            };
            self.verdicts.set(i, verdict);
        }
        Ok(())
    }
}

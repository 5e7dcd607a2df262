//! The beginning of an attempt, at its first access: the snapshot, a turn if too many attempts have failed, and the hooks.

use crate::arena::Arena;
use crate::conflict::Conflict;
use crate::header::Header;
use crate::hooks::YieldPoint;
use crate::raw::object::ObjectRef;
use crate::sync::{Ordering, model_fence, pause};

use super::{PATIENCE, Tx, slow};

impl Tx {
    #[inline(always)]
    pub(super) fn enter(&mut self, arena: &Arena, index: u32) -> Result<ObjectRef, Conflict> {
        if self.slow != 0 {
            if self.slow == slow::IDLE { self.begin() } else { self.enter_slowly(arena, index)? }
        }
        Ok(arena.object(index, self.domain_id))
    }

    #[cold]
    #[inline(never)]
    fn enter_slowly(&mut self, arena: &Arena, index: u32) -> Result<(), Conflict> {
        if self.slow & slow::POISONED != 0 {
            return Err(Conflict::TOKEN);
        }
        self.slow_begin_if_idle();
        if self.slow & slow::HOOKED != 0 {
            self.yield_at(YieldPoint::Read);
            self.yield_at(YieldPoint::Touch { line: arena.object(index, self.domain_id).line(), write: false });
        }
        Ok(())
    }

    pub(super) fn slow_begin_if_idle(&mut self) {
        if self.slow & slow::IDLE != 0 {
            self.make_ready();
            self.begin();
        }
    }

    /// Does what precedes the first access of an attempt that is observed or follows failed ones.
    pub(crate) fn make_ready(&mut self) {
        if let Some(hooks) = &mut self.hooks {
            hooks.renew();
        }
        if self.ticket.is_none() && (self.wants_turn || self.failures >= PATIENCE) {
            self.enter_turn();
        } else if self.waits_for_turn {
            let mut round = 0;
            while self.domain.turn.is_other(self.owner).is_some() {
                self.wait(&mut round);
            }
        }
        self.waits_for_turn = false;
        self.slow &= !slow::CAREFUL;
        self.yield_at(YieldPoint::Begin);
    }

    #[inline(always)]
    fn begin(&mut self) {
        self.slow &= !slow::IDLE;
        // SeqCst: if this reads a commit's version or a later one, that commit had locked its objects before (it read the
        // clock afterwards), so the header loads below see its locks or its new headers. Pairs with the compare-and-swap in
        // `replace` in raw/object.rs.
        let now = self.domain.clock.load(Ordering::SeqCst);
        model_fence();
        self.limit = Header::above(now);
    }

    /// Begins the attempt before its first access, for an attempt shared by several handlers: none of them may then read
    /// [alone](Tx::alone) what has to be consistent with the accesses of the others. Observed transactions do not read alone anyway.
    #[inline]
    pub fn begin_now(&mut self) {
        if self.slow == slow::IDLE {
            self.begin();
        }
    }

    pub(crate) fn enter_turn(&mut self) {
        let ticket = self.domain.turn.ask();
        let mut round = 0;
        while !self.domain.turn.try_enter(ticket, self.owner) {
            self.wait(&mut round);
        }
        self.ticket = Some(ticket);
        self.wants_turn = false;
        self.stats.turns += 1;
    }

    pub(crate) fn wait(&mut self, round: &mut u32) {
        match &mut self.hooks {
            Some(hooks) if hooks.yielding.is_some() => hooks.at(YieldPoint::Wait),
            _ => pause(*round),
        }
        *round = round.saturating_add(1);
    }

    #[inline(always)]
    pub(crate) fn yield_at(&mut self, point: YieldPoint) {
        if let Some(hooks) = &mut self.hooks {
            hooks.at(point);
        }
    }
}

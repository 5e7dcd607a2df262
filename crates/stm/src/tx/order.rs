//! Everything that orders workers: turns, recorded choices, replays, and the points at which a scheduler may switch.

use std::panic::Location;

use crate::conflict::{Conflict, ConflictKind, ObjectId, Op, Position};
use crate::header::Header;
use crate::hooks::{Hooks, Mode, Violation, YieldPoint};

use super::{Tx, slow};

impl Tx {
    /// Requests a turn: the next attempt (or this one, if it has not accessed anything) runs while no other worker can commit
    /// an update.
    pub fn serialise(&mut self) {
        self.wants_turn = true;
        self.slow |= slow::CAREFUL;
    }

    /// Returns whether this worker holds the turn.
    pub fn has_turn(&self) -> bool {
        self.ticket.is_some()
    }

    /// Releases the turn without a commit, because the work for which it was taken is abandoned.
    pub fn leave_turn(&mut self) {
        self.wants_turn = false;
        self.failures = 0;
        if let Some(ticket) = self.ticket.take() {
            self.domain.turn.leave(ticket);
        }
    }

    /// Ends this attempt because a structure can answer only without concurrent commits: the next attempt holds the turn.
    #[cold]
    #[track_caller]
    pub fn need_turn(&mut self, object: ObjectId, op: Op) -> Conflict {
        self.wants_turn = true;
        let conflict = self.raise(ConflictKind::Exclusive, None, Header(0), op, Location::caller(), Position::End);
        if let Some(report) = &mut self.report {
            report.object = Some(object);
        }
        conflict
    }

    /// While holding the turn, waits until `quiet` returns `true` and no other worker is in a commit with deferred actions.
    /// Other workers' attempts end on their own meanwhile, because they cannot commit.
    pub fn wait_until_alone(&mut self, quiet: impl Fn() -> bool) {
        debug_assert!(self.has_turn());
        let mut round = 0;
        while self.domain.others_committing(self.owner) || !quiet() {
            self.wait(&mut round);
        }
    }

    /// Makes a choice that the sequential semantics leave open: recorded while recording, taken from the record while replaying.
    #[inline(always)]
    pub fn choice(&mut self, choose: impl FnOnce() -> u64) -> u64 {
        match &mut self.hooks {
            None => choose(),
            Some(hooks) => hooks.choose(choose),
        }
    }

    /// Returns whether choices are being recorded.
    pub fn is_recording(&self) -> bool {
        self.mode() == Mode::Recording
    }

    /// Returns whether choices are taken from a record.
    pub fn is_replaying(&self) -> bool {
        self.mode() == Mode::Replaying
    }

    pub(crate) fn mode(&self) -> Mode {
        self.hooks.as_ref().map_or(Mode::Free, |hooks| hooks.mode)
    }

    /// Starts recording: commits return their position in the serial order.
    pub fn record(&mut self) {
        self.with_hooks(|hooks| hooks.mode = Mode::Recording);
    }

    /// Returns the choices of the transaction that has just committed; valid until its next access.
    pub fn recorded_choices(&self) -> &[u64] {
        self.hooks.as_ref().map_or(&[], |hooks| &hooks.choices[..hooks.made.min(hooks.choices.len())])
    }

    /// Replays the transaction at this position in the serial order, with its recorded choices.
    pub fn replay(&mut self, sequence: u64, choices: Vec<u64>) {
        self.with_hooks(|hooks| {
            (hooks.mode, hooks.sequence, hooks.choices) = (Mode::Replaying, sequence, choices);
            (hooks.made, hooks.done) = (0, false);
        });
    }

    /// Reports a recorded choice that is not legal in the sequential state.
    pub fn violate(&mut self, object: ObjectId, what: String) {
        self.with_hooks(|hooks| hooks.violations.push(Violation::Illegal { object, what }));
    }

    /// Returns the violations so far.
    pub fn violations(&self) -> &[Violation] {
        self.hooks.as_ref().map_or(&[], |hooks| &hooks.violations)
    }

    /// Sets a callback for every point at which a scheduler may switch to another worker.
    pub fn yield_with(&mut self, at: impl FnMut(YieldPoint) + Send + 'static) {
        self.with_hooks(|hooks| hooks.yielding = Some(Box::new(at)));
    }

    /// A time model does not affect transactions: they begin and settle where they would in an ordinary run.
    #[cold]
    pub(super) fn is_fresh_in_a_model(&self) -> bool {
        self.slow == slow::IDLE | slow::HOOKED && self.mode() == Mode::Free
    }

    pub(super) fn with_hooks(&mut self, change: impl FnOnce(&mut Hooks)) {
        let hooks = self.hooks.get_or_insert_default();
        change(hooks);
        if hooks.is_idle() { self.slow &= !slow::HOOKED } else { self.slow |= slow::HOOKED }
    }
}

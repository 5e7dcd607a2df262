//! Which objects a worker's commits change, for somebody who keeps a copy of them. What is noted is noted by the worker that has
//! changed it, after the change, and is asked for between two of its transactions; nobody asks for it: nothing of it is paid.

use crate::arena::Arena;

use super::Tx;

impl Tx {
    /// Notes from now on which objects of these arenas are changed; none: no more.
    pub fn note_changes(&mut self, of: Vec<Arena>) {
        self.with_hooks(|hooks| {
            hooks.watched = of;
            hooks.changed.clear();
        });
        // Back on the fast path where nothing is left to look on.
        self.hooks.take_if(|hooks| hooks.is_idle() && hooks.violations.is_empty());
    }

    /// What was noted since the last time: which of the arenas, and the number of the object. Perhaps more than was changed, and
    /// the same several times.
    pub fn take_changes(&mut self, into: &mut Vec<(usize, u32)>) {
        if let Some(hooks) = &mut self.hooks {
            into.append(&mut hooks.changed);
        }
    }

    /// Notes a change that no commit tells of: of something that is kept beside an object.
    #[inline]
    pub fn note_change(&mut self, arena: &Arena, index: u32) {
        if let Some(hooks) = &mut self.hooks {
            hooks.note(arena.object(index, self.domain_id));
        }
    }
}

//! Notes which objects a worker's commits change, for a party that keeps a copy of them. The worker that changes an object
//! notes it after the change; the notes are collected between two of its transactions. This costs nothing while nobody asks
//! for it.

use crate::arena::Arena;

use super::Tx;

impl Tx {
    /// Starts noting which objects of these arenas are changed; an empty list stops it.
    pub fn note_changes(&mut self, of: Vec<Arena>) {
        self.with_hooks(|hooks| {
            hooks.watched = of;
            hooks.changed.clear();
        });
        // Return to the fast path if nothing observes any more.
        self.hooks.take_if(|hooks| hooks.is_idle() && hooks.violations.is_empty());
    }

    /// Appends what was noted since the last call: the index of the arena in the list, and the object number. The result may
    /// contain duplicates, and objects that were not changed.
    pub fn take_changes(&mut self, into: &mut Vec<(usize, u32)>) {
        if let Some(hooks) = &mut self.hooks {
            into.append(&mut hooks.changed);
        }
    }

    /// Notes a change that no commit reports, of something stored apart from an object.
    #[inline]
    pub fn note_change(&mut self, arena: &Arena, index: u32) {
        if let Some(hooks) = &mut self.hooks {
            hooks.note(arena.object(index, self.domain_id));
        }
    }
}

//! What handlers changed in set tables, to take back what an attempt did that is not committed.
//!
//! It names records by their places, so nothing may give a record another place while an attempt lasts: sets that are on their way
//! from former tables (`moving.rs`) come before a batch's handlers run, or when one of them looks for its packet's set.

use braid_state::{Plain, SetMeta};

use super::{SetSlot, SetTables};

/// What handlers changed in set tables since the last commit, to take back.
#[derive(Debug, Default)]
pub struct SetUndo {
    changes: Vec<(SetSlot, Change)>,
    bytes: Vec<u8>,
}

#[derive(Debug)]
enum Change {
    State { offset: u32, len: u32 },
    Meta(SetMeta),
    Inserted,
}

impl SetUndo {
    /// A place to return to.
    #[inline(always)]
    pub fn mark(&self) -> usize {
        self.changes.len()
    }

    /// The attempt is committed.
    #[inline(always)]
    pub fn clear(&mut self) {
        self.changes.clear();
        self.bytes.clear();
    }

    #[inline(always)]
    pub(crate) fn save_state<S: Plain>(&mut self, at: SetSlot, offset: usize, state: &S) {
        if size_of::<S>() > 0 {
            self.changes.push((at, Change::State { offset: offset as u32, len: size_of::<S>() as u32 }));
            self.bytes.extend_from_slice(state.as_bytes());
        }
    }

    #[inline(always)]
    pub(crate) fn save_meta(&mut self, at: SetSlot, meta: SetMeta) {
        self.changes.push((at, Change::Meta(meta)));
    }

    /// A record was made.
    #[inline(always)]
    pub(super) fn note_inserted(&mut self, at: SetSlot) {
        self.changes.push((at, Change::Inserted));
    }

    /// Takes back everything after `mark`, newest first.
    pub fn restore(&mut self, tables: &mut SetTables, mark: usize) {
        while self.changes.len() > mark {
            let Some((at, change)) = self.changes.pop() else { break };
            match change {
                Change::State { offset, len } => {
                    let from = self.bytes.len() - len as usize;
                    let place = offset as usize..(offset + len) as usize;
                    tables.states_mut(at, |states| states[place].copy_from_slice(&self.bytes[from..]));
                    self.bytes.truncate(from);
                }
                Change::Meta(meta) => tables.restore_meta(at, meta),
                Change::Inserted => tables.give_away(at),
            }
        }
    }
}

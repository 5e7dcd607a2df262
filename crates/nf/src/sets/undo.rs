//! Undo log of set tables: what handlers changed, so that an aborted attempt can be rolled back.
//!
//! The log refers to records by place, so no record may change its place during an attempt. Sets that are still in
//! former tables (`moving.rs`) are therefore moved before the handlers of a batch run, or when a handler's packet looks
//! up its set.

use braid_state::{Plain, SetMeta};

use super::{SetSlot, SetTables};

/// Undo log of what handlers changed in set tables since the last commit.
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
    Refused,
}

impl SetUndo {
    /// Returns a mark for [`restore`](Self::restore).
    #[inline(always)]
    pub fn mark(&self) -> usize {
        self.changes.len()
    }

    /// Clears the log after the attempt has committed.
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

    /// Logs that a record was created.
    #[inline(always)]
    pub(super) fn note_inserted(&mut self, at: SetSlot) {
        self.changes.push((at, Change::Inserted));
    }

    /// Logs that a set found no room.
    #[inline(always)]
    pub(super) fn note_refused(&mut self) {
        self.changes.push((SetSlot::MISS, Change::Refused));
    }

    /// Undoes everything after `mark`, newest first.
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
                Change::Refused => tables.refused -= 1,
            }
        }
    }
}

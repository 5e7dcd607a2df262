//! Operations that commute and therefore need no conflict: done at once or at commit, and undone by their inverse.

/// A structure with effects outside the objects of a transaction: a pool from which resources are popped.
///
/// [`Tx::defer`](crate::Tx::defer) notes an `action` with an argument; their meaning is the structure's own. Exactly one of
/// [`apply`](Boosted::apply) and [`undo`](Boosted::undo) is called for each note, `undo` in reverse order.
pub trait Boosted: Send + Sync {
    /// Called while committing, with all written objects locked: is the action still right? `false` aborts.
    fn check(&self, action: u32, argument: u64) -> bool {
        let _ = (action, argument);
        true
    }

    /// The transaction has committed. `sequence` is its place in the serial order when recording or replaying, else 0.
    fn apply(&self, worker: usize, action: u32, argument: u64, sequence: u64);

    /// The attempt did not happen.
    fn undo(&self, worker: usize, action: u32, argument: u64);
}

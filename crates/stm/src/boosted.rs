//! Boosted operations: operations that commute and therefore need no conflict. They are executed at once or at commit, and
//! undone by their inverse.

/// A structure with effects outside of a transaction's objects, for example a pool from which resources are popped.
///
/// [`Tx::defer`](crate::Tx::defer) notes an `action` with an argument, whose meaning is defined by the structure. For each
/// note, exactly one of [`apply`](Boosted::apply) and [`undo`](Boosted::undo) is called, `undo` in reverse order.
pub trait Boosted: Send + Sync {
    /// Checks during commit, with all written objects locked, that the action is still permitted; `false` aborts.
    fn check(&self, action: u32, argument: u64) -> bool {
        let _ = (action, argument);
        true
    }

    /// Applies the action, because the transaction has committed. `sequence` is its position in the serial order when
    /// recording or replaying, otherwise 0.
    fn apply(&self, worker: usize, action: u32, argument: u64, sequence: u64);

    /// Undoes the action, because the attempt was aborted or rolled back.
    fn undo(&self, worker: usize, action: u32, argument: u64);
}

//! Checks whether there is an order of some overlapping operations in which a single worker could have done them.
//!
//! This is the search of Wing and Gong (Testing and Verifying Concurrent Objects, 1993) with the memory of Lowe: of the remaining operations, any
//! that began before all the others had returned may be next, if the sequential object gives the same answer. A set of completed operations
//! that leaves the same object is tried only once.

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::Hash;

/// One operation of a history, with its answer.
#[derive(Clone, Debug)]
pub struct Call<O> {
    /// The operation and its answer.
    pub done: O,
    /// When it began, on a clock that all threads share.
    pub begun: u64,
    /// When it had returned.
    pub returned: u64,
}

/// An object as seen by a single worker.
pub trait Sequential: Clone + Eq + Hash {
    /// An operation with its answer.
    type Done: Clone + Debug;
    /// Does the operation; returns whether the answer is a legal one.
    fn allows(&mut self, done: &Self::Done) -> bool;
}

/// The first order found, as positions in the history; `None` if there is none.
pub fn linearization<S: Sequential>(start: &S, history: &[Call<S::Done>]) -> Option<Vec<usize>> {
    assert!(history.len() <= 64, "a set of operations is a word");
    let (mut order, mut tried) = (Vec::new(), HashSet::new());
    search(start, history, 0, &mut order, &mut tried).then_some(order)
}

fn search<S: Sequential>(
    object: &S,
    history: &[Call<S::Done>],
    done: u64,
    order: &mut Vec<usize>,
    tried: &mut HashSet<(u64, S)>,
) -> bool {
    if order.len() == history.len() {
        return true;
    }
    if !tried.insert((done, object.clone())) {
        return false;
    }
    let left = || (0..history.len()).filter(|at| done >> at & 1 == 0);
    let first_return = left().map(|at| history[at].returned).min().unwrap_or(u64::MAX);
    for at in left().filter(|&at| history[at].begun < first_return) {
        let mut next = object.clone();
        if next.allows(&history[at].done) {
            order.push(at);
            if search(&next, history, done | 1 << at, order, tried) {
                return true;
            }
            order.pop();
        }
    }
    false
}

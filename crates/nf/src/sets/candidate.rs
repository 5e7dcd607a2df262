//! Candidates for eviction from a full table.

use braid_state::Plain;

use super::{FormerSlot, SetSlot, SetTables};
use crate::Place;

/// A set that may be evicted.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<At = Whereabouts> {
    /// Place of the set, or the key of a shared set.
    pub at: At,
    /// Time since the last packet of the set, in milliseconds.
    pub idle_ms: u32,
    /// Whether some function calls the set [assured](crate::NetworkFunction::is_assured).
    pub is_assured: bool,
}

/// Where a set is stored.
#[derive(Clone, Copy, Debug)]
pub enum Whereabouts {
    /// In the current tables.
    Here(SetSlot),
    /// Still in the former tables.
    ToCome(FormerSlot),
}

impl<At> Candidate<At> {
    /// Creates a candidate that no function has called assured.
    pub fn new(at: At, idle_ms: u32) -> Candidate<At> {
        Candidate { at, idle_ms, is_assured: false }
    }
}

impl SetTables {
    /// Returns the state of a set for the function at `place`; `None` if the set is not live for it.
    #[inline]
    pub(crate) fn state_at<S: Plain>(&mut self, at: Whereabouts, place: Place) -> Option<&S> {
        match at {
            Whereabouts::Here(at) => {
                if self.meta_mut(at).live & place.bit == 0 {
                    return None;
                }
                Some(self.state::<S>(at, place.offset))
            }
            Whereabouts::ToCome(at) => self.former_state(at, place),
        }
    }
}

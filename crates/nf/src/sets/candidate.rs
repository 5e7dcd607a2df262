//! Sets among which those are chosen that go from a full table.

use braid_state::Plain;

use super::{FormerSlot, SetSlot, SetTables};
use crate::Place;

/// A set that may go.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<At = Whereabouts> {
    /// Where it is; of one that workers share, its key.
    pub at: At,
    /// How long no packet has come, in milliseconds.
    pub idle_ms: u32,
    /// Some function is [assured](crate::NetworkFunction::is_assured) of it.
    pub is_assured: bool,
}

/// Where a set is.
#[derive(Clone, Copy, Debug)]
pub enum Whereabouts {
    /// It has its record in the tables.
    Here(SetSlot),
    /// In former tables still.
    ToCome(FormerSlot),
}

impl<At> Candidate<At> {
    /// A set that no function has said anything of.
    pub fn new(at: At, idle_ms: u32) -> Candidate<At> {
        Candidate { at, idle_ms, is_assured: false }
    }
}

impl SetTables {
    /// What the function at a place keeps of a set; none if the set is not live for it.
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

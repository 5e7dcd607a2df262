//! How many of something each of many numbered owners has, has had and was refused: connections of backends, mappings of
//! networks.
//!
//! Each worker keeps its own counts and may see the end of something whose beginning another worker counted, so only the sums
//! over all workers are meaningful.

use std::sync::Arc;

use braid_nf::Part;
use braid_nf::prelude::*;
use braid_nf::state::{DistributedVector, DistributedVectorConfig, StateError, StateObject, Tx};

/// The counts of one owner, as far as one worker knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Tally {
    live: i64,
    /// How many it has ever had.
    pub all: u64,
    /// How many it was refused.
    pub refused: u64,
}

impl Tally {
    /// One begins.
    pub const BEGUN: Tally = Tally { live: 1, all: 1, refused: 0 };
    /// One ends.
    pub const ENDED: Tally = Tally { live: -1, all: 0, refused: 0 };
    /// One was refused.
    pub const REFUSED: Tally = Tally { live: 0, all: 0, refused: 1 };

    /// How many it has now.
    pub fn live(&self) -> u64 {
        self.live.max(0) as u64
    }
}

impl Adds for Tally {
    fn add(&mut self, more: &Tally) {
        self.live += more.live;
        self.all += more.all;
        self.refused += more.refused;
    }
}

/// Counts that are kept for each owner.
pub trait Adds: Plain + Default {
    /// Adds other counts: those of another worker, or new ones.
    fn add(&mut self, more: &Self);
}

/// The tallies of all owners by number, a fixed number of them in each object, so that existing objects stay when owners are
/// added.
pub struct Tallies<T = Tally> {
    objects: Vec<DistributedVector<T>>,
    /// The binary logarithm of the number of tallies in each object.
    step_bits: u32,
}

impl<T: Adds> Tallies<T> {
    /// Creates tallies for the numbers below `count`, `step` of them in each object: `name`, `name_1`, …. `step` must be a
    /// power of two, because every flow that begins or ends looks up its object.
    pub fn new(builder: &mut StateBuilder, name: &str, count: u32, step: u32) -> Result<Tallies<T>, StateError> {
        let object = |number: u32| {
            let name = if number == 0 { name.to_owned() } else { format!("{name}_{number}") };
            DistributedVector::new(builder, &DistributedVectorConfig { name, len: step }, T::add)
        };
        assert!(step.is_power_of_two(), "{step} in each object");
        let objects = (0..count.div_ceil(step)).map(object).collect::<Result<_, _>>()?;
        Ok(Tallies { objects, step_bits: step.ilog2() })
    }

    /// The object that contains a number, if there is one, and the number's place in it.
    #[inline(always)]
    fn at(&self, number: u32) -> Option<(&DistributedVector<T>, u32)> {
        let object = self.objects.get((number >> self.step_bits) as usize)?;
        Some((object, number & ((1 << self.step_bits) - 1)))
    }

    /// Whether there are no tallies at all.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Adds `by` to the tally of a number; does nothing if the number has no tally.
    #[inline(always)]
    pub fn count(&self, tx: &mut Tx, number: u32, by: T) -> Result<(), Conflict> {
        match self.at(number) {
            Some((tallies, place)) => tallies.update(tx, place, |tally| tally.add(&by)).map(drop),
            None => Ok(()),
        }
    }

    /// The sum of what all workers counted for a number.
    pub fn sum(&self, cx: &mut Cx<'_>, number: u32) -> Result<T, Conflict> {
        let mut sum = T::default();
        if let Some((tallies, place)) = self.at(number) {
            tallies.visit(cx, place, |part| sum.add(part))?;
        }
        Ok(sum)
    }
}

impl<T: Adds> Part for Tallies<T> {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        into.extend(self.objects.iter().map(DistributedVector::object));
    }
}

//! How many of something each of many numbered owners has, has had, and was refused: connections of backends, mappings of networks.
//!
//! Each worker counts its own, and may see the end of what another one saw begin: only sums mean something.

use std::sync::Arc;

use braid_nf::Part;
use braid_nf::prelude::*;
use braid_nf::state::{DistributedVector, DistributedVectorConfig, StateError, StateObject, Tx};

/// What one of them has, as far as a worker knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Tally {
    live: i64,
    /// All that it ever had.
    pub all: u64,
    /// All that it wanted and did not get.
    pub refused: u64,
}

impl Tally {
    /// One begins.
    pub const BEGUN: Tally = Tally { live: 1, all: 1, refused: 0 };
    /// One ends.
    pub const ENDED: Tally = Tally { live: -1, all: 0, refused: 0 };
    /// One could not begin.
    pub const REFUSED: Tally = Tally { live: 0, all: 0, refused: 1 };

    /// What it has now.
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

/// What is counted for an owner.
pub trait Adds: Plain + Default {
    /// Adds what another worker counted, or what comes.
    fn add(&mut self, more: &Self);
}

/// The tallies of all, by number, so many in each object: those that are there stay when there are more.
pub struct Tallies<T = Tally> {
    objects: Vec<DistributedVector<T>>,
    /// Logarithm of how many are in each.
    step_bits: u32,
}

impl<T: Adds> Tallies<T> {
    /// For `count` numbers from zero, `step` of them in each object: `name`, `name_1`, …; a power of two, for every flow that begins or ends asks which one.
    pub fn new(builder: &mut StateBuilder, name: &str, count: u32, step: u32) -> Result<Tallies<T>, StateError> {
        let object = |number: u32| {
            let name = if number == 0 { name.to_owned() } else { format!("{name}_{number}") };
            DistributedVector::new(builder, &DistributedVectorConfig { name, len: step }, T::add)
        };
        assert!(step.is_power_of_two(), "{step} in each object");
        let objects = (0..count.div_ceil(step)).map(object).collect::<Result<_, _>>()?;
        Ok(Tallies { objects, step_bits: step.ilog2() })
    }

    /// The object that has a number, if one has it, and its place there.
    #[inline(always)]
    fn at(&self, number: u32) -> Option<(&DistributedVector<T>, u32)> {
        let object = self.objects.get((number >> self.step_bits) as usize)?;
        Some((object, number & ((1 << self.step_bits) - 1)))
    }

    /// Whether it is for no number at all.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Counts for a number; nothing if it is beyond those that are counted.
    #[inline(always)]
    pub fn count(&self, tx: &mut Tx, number: u32, by: T) -> Result<(), Conflict> {
        match self.at(number) {
            Some((tallies, place)) => tallies.update(tx, place, |tally| tally.add(&by)).map(drop),
            None => Ok(()),
        }
    }

    /// What all workers counted for a number.
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

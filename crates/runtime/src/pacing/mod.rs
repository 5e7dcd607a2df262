//! When a worker takes its next packets: the clock, the order of the input, gathering of batches, and idling.

pub(super) mod abreast;
pub mod clock;
pub(super) mod gather;
pub(super) mod idle;
pub(super) mod places;

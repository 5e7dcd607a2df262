//! By which port a packet leaves, and what becomes of packets that a function does not handle.

pub(crate) mod hairpin;
pub mod others;
pub(crate) mod turn;
pub(crate) mod way_out;

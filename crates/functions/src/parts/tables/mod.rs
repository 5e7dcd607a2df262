//! Bounded tables whose entries expire, and counts that reports show.

pub mod aged;
pub(crate) mod alerts;
pub(crate) mod sweep;
pub(crate) mod tallies;
pub(crate) mod unkept;
pub mod volume;

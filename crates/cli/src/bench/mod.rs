//! Measuring chains in memory: which traffic ([`traffic`]) in which order ([`orders`]), what is read off the clocks and when
//! ([`meter`]), on which machine ([`machine`]), and how the rows are written for others ([`output`]).

pub mod machine;
pub mod meter;
pub mod orders;
pub mod output;
pub mod traffic;

//! Measuring chains in memory: which traffic ([`traffic`]), what is read off the clocks and when ([`meter`]), on which
//! machine ([`machine`]).

pub mod machine;
pub mod meter;
pub mod traffic;

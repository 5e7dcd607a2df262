//! What plan files say: addresses, endpoints, ports, rates, and which ports are inside.

pub mod counted;
pub(crate) mod elsewhere;
pub mod endpoints;
pub mod many;
pub(crate) mod named;
pub mod prefix;
pub mod sides;
pub mod units;
pub mod written_mac;

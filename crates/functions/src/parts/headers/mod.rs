//! Fields of packets that several functions read or change, and what they say about the packet.

pub(crate) mod dns;
pub(crate) mod dscp;
pub(crate) mod ecn;
pub(crate) mod lengths;
pub mod protocols;
pub(crate) mod scope;
pub mod segment_size;
pub(crate) mod tags;
pub(crate) mod version;
pub(crate) mod zone;

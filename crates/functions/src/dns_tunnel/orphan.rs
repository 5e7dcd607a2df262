//! Answers that have not led to a contact yet.

use braid_nf::prelude::*;

use crate::parts::tables::aged::Stamp;

/// A name that a client was told of, or the names of one zone that it was told with one address.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Orphan {
    /// The hash of the zone, or [`LED`] for an address that was contacted.
    pub(super) of: u64,
    pub(super) names: u64,
    pub(super) bytes: u64,
    pub(super) seen_ns: u64,
}

/// Marks an address that the client has contacted.
pub(super) const LED: u64 = 0;

impl Orphan {
    pub(super) fn none(of: u64, seen_ns: u64) -> Orphan {
        Orphan { of, names: 0, bytes: 0, seen_ns }
    }
}

impl Stamp for Orphan {
    fn seen_ns(&self) -> u64 {
        self.seen_ns
    }
}

//! A readable list of what an attempt has accessed so far, for tracing a packet. It costs a search per access and is used for
//! nothing else.

use std::panic::Location;

use crate::conflict::{ObjectId, Op, Part};
use crate::raw::object::ObjectRef;

use super::Tx;

/// One access of a structure by the current attempt.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// The structure.
    pub object: ObjectId,
    /// Arena of the structure.
    pub part: Part,
    /// Index of the object in that arena.
    pub index: u32,
    /// Whether the object was written (and possibly read); otherwise it was only read.
    pub is_write: bool,
    /// Operation of the structure.
    pub op: Op,
    /// Source line in the network function.
    pub location: &'static Location<'static>,
}

impl Tx {
    /// Returns the logged reads, then the buffered writes, each in the order of first occurrence.
    pub fn accesses(&self) -> Vec<Access> {
        self.accesses_since((0, 0))
    }

    /// Returns the accesses after an earlier [`footprint`](Self::footprint) of the same attempt.
    pub fn accesses_since(&self, (reads, writes): (usize, usize)) -> Vec<Access> {
        let access = |object: ObjectRef, is_write, op, location| {
            let (object, part, index) = self.domain.identify(object)?;
            Some(Access { object, part, index, is_write, op, location })
        };
        let reads = self.reads.iter().skip(reads).map(|read| access(read.object, false, read.op, read.source));
        let writes = self.writes.entries().iter().skip(writes);
        let writes = writes.map(|write| access(write.object, true, write.op(), write.source));
        reads.chain(writes).flatten().collect()
    }
}

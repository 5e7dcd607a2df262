//! What an attempt has touched so far, in words: for tracing a packet. Costs a search per access and is never asked for
//! otherwise.

use std::panic::Location;

use crate::conflict::{ObjectId, Op, Part};
use crate::raw::object::ObjectRef;

use super::Tx;

/// One access of a structure by the current attempt.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// The structure.
    pub object: ObjectId,
    /// Which arena of the structure.
    pub part: Part,
    /// Which object of that arena.
    pub index: u32,
    /// Whether it was written (and perhaps read); else only read.
    pub is_write: bool,
    /// What the structure was doing.
    pub op: Op,
    /// The line of the network function.
    pub location: &'static Location<'static>,
}

impl Tx {
    /// Logged reads, then buffered writes, each in the order of their first occurrence.
    pub fn accesses(&self) -> Vec<Access> {
        self.accesses_since((0, 0))
    }

    /// Those after an earlier [`footprint`](Self::footprint) of the same attempt.
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

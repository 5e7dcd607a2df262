//! Conflicts: what an abort reports about itself.

use std::fmt;
use std::panic::Location;

/// The attempt cannot commit. Propagate it with `?`: whoever runs the handler will run it again.
///
/// It cannot be constructed outside of this crate, and the transaction that returned it refuses to commit.
#[must_use = "a conflict must reach whoever runs the handler: return it with `?`"]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Conflict(());

impl Conflict {
    pub(crate) const TOKEN: Conflict = Conflict(());
}

impl fmt::Debug for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Conflict")
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("another worker changed what this handler read; it must run again")
    }
}

impl std::error::Error for Conflict {}

/// Operation of a structure that accesses an object: a number below 16, to which the structure gives a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Op(u8);

impl Op {
    /// Creates operation `number`, which must be below 16.
    pub const fn new(number: u8) -> Op {
        assert!(number < 16, "a header has four bits for the operation");
        Op(number)
    }

    /// Returns the number.
    pub const fn number(self) -> u8 {
        self.0
    }
}

/// Number of a registered structure of a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub u32);

/// Number of an arena within a structure; a map, for example, has buckets and entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Part(pub u8);

/// Why an attempt had to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConflictKind {
    /// Another worker was committing a change of the object and did not finish in time.
    Locked,
    /// Another worker has changed the object since it was read.
    Changed,
    /// Another worker holds the turn, so update commits have to wait.
    Turn,
    /// A structure refused at commit, because something that it relied on outside of the transaction no longer holds (for
    /// example, a lease that looked expired was refreshed).
    Refused,
    /// A structure can answer only without concurrent commits (for example, whether a pool is really empty); the next attempt
    /// waits for its turn.
    Exclusive,
}

/// One abort: the two parties, the place and the object.
#[derive(Clone, Copy, Debug)]
pub struct ConflictReport {
    /// Reason for the abort.
    pub kind: ConflictKind,
    /// The structure; `None` if no single object is responsible (as with a turn).
    pub object: Option<ObjectId>,
    /// Arena of the structure.
    pub part: Part,
    /// Index of the object in that arena; the structure knows its meaning.
    pub index: u32,
    /// Operation of this attempt on the object.
    pub mine: Op,
    /// Operation of the other worker.
    pub theirs: Op,
    /// The other worker.
    pub other: usize,
    /// Source line in the network function whose operation met the conflict.
    pub location: &'static Location<'static>,
    pub(crate) position: Position,
}

/// The part of an attempt's logs that its conflict does not affect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// Everything before the read at this position of the read log.
    Read(usize),
    /// Everything before the write at this position of the write log.
    Write(usize),
    /// Everything: the conflict was met by an operation that was not logged yet.
    End,
    /// Nothing: the whole attempt is affected.
    All,
}

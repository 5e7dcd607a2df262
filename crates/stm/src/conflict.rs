//! What an abort knows about itself.

use std::fmt;
use std::panic::Location;

/// This attempt cannot commit. Hand it on with `?`: whoever runs the handler will run it again.
///
/// Nobody outside this crate can make one, and the transaction that returned it refuses to commit.
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

/// What a structure was doing when it touched an object: a number below 16 that the structure gives a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Op(u8);

impl Op {
    /// Operation `number`, below 16.
    pub const fn new(number: u8) -> Op {
        assert!(number < 16, "a header has four bits for the operation");
        Op(number)
    }

    /// The number.
    pub const fn number(self) -> u8 {
        self.0
    }
}

/// A registered structure of a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub u32);

/// Which arena of a structure: a map has buckets and entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Part(pub u8);

/// Why an attempt had to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConflictKind {
    /// Another worker was committing a change of the object and did not finish in time.
    Locked,
    /// Another worker has changed the object since it was read.
    Changed,
    /// Another worker has its turn: update commits wait.
    Turn,
    /// A structure refused at commit: what it relied on outside the transaction is no longer so (a lease was refreshed
    /// after it looked expired).
    Refused,
    /// A structure can answer only when it is alone (is the pool really empty?); the next attempt waits for its turn.
    Exclusive,
}

/// One abort: who met whom, where, on what.
#[derive(Clone, Copy, Debug)]
pub struct ConflictReport {
    /// Why.
    pub kind: ConflictKind,
    /// The structure; none if no single object is to blame (a turn).
    pub object: Option<ObjectId>,
    /// Which arena of the structure.
    pub part: Part,
    /// Which object of that arena; the structure can say what it stands for.
    pub index: u32,
    /// What this attempt was doing with the object.
    pub mine: Op,
    /// What the other worker did.
    pub theirs: Op,
    /// The other worker.
    pub other: usize,
    /// The line of the network function whose operation met the conflict.
    pub location: &'static Location<'static>,
    pub(crate) position: Position,
}

/// How far the logs of an attempt are untouched by its conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// The read at this position of the read log.
    Read(usize),
    /// The write at this position of the write log.
    Write(usize),
    /// An operation that was not logged yet: everything before it may stand.
    End,
    /// The whole attempt.
    All,
}

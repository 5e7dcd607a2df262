//! The header word in front of every object.
//!
//! ```text
//! settled: | 0 | version: 50 | operation: 4 | owner: 9 |
//! locked:  | 1 | position in the owner's write log: 50 | operation: 4 | owner: 9 |
//! ```
//! Owner and operation identify the last writer, so that a reader accepts its own worker's versions unconditionally and an
//! abort can report the other party. A worker's versions grow with each of its commits, so no header word ever recurs. At ten
//! million commits per second by one worker, 50 bits last for three and a half years.

use crate::conflict::Op;

/// The highest bit, so that a locked header is above every limit of a snapshot.
const LOCK: u64 = 1 << 63;
const OWNER_BITS: u32 = 9;
const OP_SHIFT: u32 = OWNER_BITS;
const OP_BITS: u32 = 4;
const VERSION_SHIFT: u32 = OP_SHIFT + OP_BITS;

/// Number of owners that a header can identify.
pub(crate) const OWNERS: usize = 1 << OWNER_BITS;

/// A header word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header(pub(crate) u64);

impl Header {
    /// Returns the low bits of a header: operation and owner.
    #[inline(always)]
    pub(crate) fn signature(op: Op, owner: u64) -> u16 {
        (u16::from(op.number()) << OP_SHIFT) | owner as u16
    }

    #[inline(always)]
    pub(crate) fn settled(version: u64, signature: u16) -> Header {
        Header((version << VERSION_SHIFT) | u64::from(signature))
    }

    #[inline(always)]
    pub(crate) fn locked(position: usize, signature: u16) -> Header {
        Header(Header::settled(position as u64, signature).0 | LOCK)
    }

    /// No header word: nothing was seen.
    pub(crate) const NONE: Header = Header(u64::MAX);

    /// Returns whether the fast path of a read by `owner` accepts this header: unlocked and below `limit`, or written by
    /// `owner` itself. A read never meets its own worker's locks, because those are held only during commits; a locked header
    /// is above every limit.
    #[inline(always)]
    pub(crate) fn is_readable(self, limit: u64, owner: u64) -> bool {
        // Branch-free: which of the two holds is unpredictable where workers share objects.
        (self.0 < limit) | (self.owner() == owner)
    }

    /// Returns whether the header is unlocked and last written by `owner`.
    #[inline(always)]
    pub(crate) fn is_free_of(self, owner: u64) -> bool {
        self.0 & (LOCK | (OWNERS as u64 - 1)) == owner
    }

    #[inline(always)]
    pub(crate) fn is_locked(self) -> bool {
        self.0 & LOCK != 0
    }

    /// Returns the version, or, while locked, the position in the owner's write log.
    #[inline(always)]
    pub(crate) fn version(self) -> u64 {
        (self.0 & !LOCK) >> VERSION_SHIFT
    }

    #[inline(always)]
    pub(crate) fn owner(self) -> u64 {
        self.0 & (OWNERS as u64 - 1)
    }

    pub(crate) fn op(self) -> Op {
        Op::new(((self.0 >> OP_SHIFT) & ((1 << OP_BITS) - 1)) as u8)
    }

    /// Returns the smallest header word whose version is above `version`: every unlocked header below it is old enough.
    #[inline(always)]
    pub(crate) fn above(version: u64) -> u64 {
        (version + 1) << VERSION_SHIFT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_a_header_do_not_touch_each_other() {
        for (version, op, owner) in [(0, 0, 0), (1, 15, 511), ((1 << 50) - 1, 7, 3), (5, 0, 511)] {
            let signature = Header::signature(Op::new(op), owner);
            let settled = Header::settled(version, signature);
            let locked = Header::locked(version as usize, signature);
            for header in [settled, locked] {
                assert_eq!((header.version(), header.op(), header.owner()), (version, Op::new(op), owner));
            }
            assert!(!settled.is_locked() && locked.is_locked());
            assert!(settled.is_free_of(owner) && !settled.is_free_of(owner ^ 1) && !locked.is_free_of(owner));
            assert!(settled.0 < Header::above(version) && locked.0 >= Header::above(version));
        }
    }
}

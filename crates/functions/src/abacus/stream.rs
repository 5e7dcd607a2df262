//! One direction of a TCP session: which bytes are new, which are retransmitted, and whether those are unchanged.
//!
//! The stream keeps hashes of the latest segments, not their bytes. A segment that is retransmitted with the same
//! boundaries is compared; with other boundaries it counts as repeated without proof. Sequence numbers wrap as in TCP
//! (RFC 9293 section 3.4).

use braid_nf::prelude::*;
use braid_nf::state::hash::mixed;

/// The number of segments that can be compared.
const SEGMENTS: usize = 8;

#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Segment {
    sequence: u32,
    /// 0: no segment.
    len: u32,
    hash: u64,
}

/// A byte has been received.
const BEGUN: u16 = 1;
/// No more will come: its end has sent a FIN, or either end a RST.
const CLOSED: u16 = 2;

/// What has been seen of one direction.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Stream {
    segments: [Segment; SEGMENTS],
    /// The sequence number after the highest one received.
    next: u32,
    /// [`BEGUN`], [`CLOSED`].
    flags: u16,
    /// The slot for the next segment.
    turn: u16,
}

/// A segment's bytes by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Not seen before.
    pub fresh: u64,
    /// Seen before, and not known to differ.
    pub repeated: u64,
    /// Seen before with other content.
    pub tunnelled: u64,
}

impl Stream {
    /// Nothing more comes of it.
    pub(super) fn close(&mut self) {
        self.flags |= CLOSED;
    }

    pub(super) fn is_closed(&self) -> bool {
        self.flags & CLOSED != 0
    }

    /// Whether a SYN with this sequence number cannot be a late one of the stream: its bytes would be beyond all that were received.
    pub(super) fn ends_before(&self, sequence: u32) -> bool {
        self.flags & BEGUN != 0 && sequence.wrapping_add(1).wrapping_sub(self.next) as i32 > 0
    }

    /// Takes a segment with payload, and classifies its bytes.
    pub(super) fn take(&mut self, sequence: u32, payload: &[u8]) -> Found {
        let (len, hash) = (payload.len() as u32, mixed(payload, 0));
        if self.flags & BEGUN == 0 {
            (self.flags, self.next) = (self.flags | BEGUN, sequence);
        }
        let end = sequence.wrapping_add(len);
        let ahead = end.wrapping_sub(self.next) as i32;
        if ahead > 0 {
            let fresh = len.min(ahead as u32);
            self.next = end;
            self.remember(Segment { sequence, len, hash });
            return Found { fresh: fresh.into(), repeated: (len - fresh).into(), tunnelled: 0 };
        }
        let same_place = |known: &&Segment| known.len == len && known.sequence == sequence;
        match self.segments.iter().find(same_place) {
            Some(known) if known.hash != hash => Found { tunnelled: len.into(), ..Found::default() },
            _ => Found { repeated: len.into(), ..Found::default() },
        }
    }

    fn remember(&mut self, segment: Segment) {
        self.segments[usize::from(self.turn) % SEGMENTS] = segment;
        self.turn = self.turn.wrapping_add(1);
    }
}

//! The beginning of every record, whatever its set.

use zerocopy::{FromBytes, IntoBytes};

/// What a record holds besides key and state.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout,
)]
#[repr(C)]
pub struct SetMeta {
    /// Time of the set's last packet, in milliseconds since the run's epoch; wraps after 49 days.
    pub last_seen_ms: u32,
    /// One bit for each function of the group in which the set is live.
    pub live: u16,
    /// Counts the sets that this slot has held.
    pub generation: u16,
}

impl SetMeta {
    /// Milliseconds since the last packet at `now_ms`; more than [`LONGEST_MS`](Self::LONGEST_MS) if time stamps went back, as in an
    /// unordered capture.
    #[inline(always)]
    pub fn since_ms(&self, now_ms: u32) -> u32 {
        now_ms.wrapping_sub(self.last_seen_ms)
    }

    /// Like [`since_ms`](Self::since_ms), but 0 if time stamps went back.
    #[inline(always)]
    pub fn idle_ms(&self, now_ms: u32) -> u32 {
        let idle = self.since_ms(now_ms);
        if idle > SetMeta::LONGEST_MS { 0 } else { idle }
    }

    /// A longer interval means that time went back.
    pub const LONGEST_MS: u32 = u32::MAX / 2;
}

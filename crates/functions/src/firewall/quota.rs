//! How many bytes a rule fits in all: `quota 25 mbytes`, `quota over 25 mbytes`, as nftables has it. Exact over all workers; what comes
//! when it is used up is not counted, so that a flood makes no conflicts.

use braid_nf::prelude::*;

/// So many bytes; up to them, or beyond them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Quota {
    pub(super) bytes: u64,
    /// It fits what comes beyond.
    pub(super) over: bool,
    /// Before the first packet.
    pub(super) used: u64,
}

impl Quota {
    /// Whether it fits the first packet of all.
    pub(super) fn fits_first(&self) -> bool {
        (self.used > self.bytes) == self.over
    }

    /// Counts a packet; whether the quota fits it.
    pub(super) fn take(&self, cx: &mut Cx<'_>, used: &Vector<u64>, len: u32) -> Result<bool, Conflict> {
        let mut all = used.get(cx, 0)?.unwrap_or_default();
        if all <= self.bytes {
            all = all.saturating_add(len.into());
            used.set(cx, 0, all)?;
        }
        Ok((all > self.bytes) == self.over)
    }
}

impl std::fmt::Display for Quota {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "quota {}{} bytes", if self.over { "over " } else { "" }, self.bytes)
    }
}

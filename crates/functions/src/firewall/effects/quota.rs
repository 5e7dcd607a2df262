//! The total number of bytes that a rule matches: `quota 25 mbytes`, `quota over 25 mbytes`, as in nftables. It is exact
//! over all workers. Once the quota is used up packets are no longer counted, so that a flood causes no conflicts.

use braid_nf::prelude::*;

/// A number of bytes, and whether the rule matches up to them or beyond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::firewall) struct Quota {
    pub(in crate::firewall) bytes: u64,
    /// Whether the rule matches what exceeds the quota.
    pub(in crate::firewall) over: bool,
    /// The number of bytes used before the first packet.
    pub(in crate::firewall) used: u64,
}

impl Quota {
    /// Whether the rule matches the very first packet.
    pub(in crate::firewall) fn fits_first(&self) -> bool {
        (self.used > self.bytes) == self.over
    }

    /// Counts a packet, and returns whether the rule matches it.
    pub(in crate::firewall) fn take(&self, cx: &mut Cx<'_>, used: &Vector<u64>, len: u32) -> Result<bool, Conflict> {
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

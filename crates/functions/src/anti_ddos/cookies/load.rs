//! What an attack is recognised by: the flows that nobody has continued, compared with all that were begun or continued
//! lately.
//!
//! Connections that have been open for long do not count, although they are known for hours: a site with many of them
//! would otherwise let through four SYNs for each before it saw an attack. No timer is needed for that: who continues a
//! flow is counted in a span of `idle_timeout_s`, and of the spans only the present one and the one before count.

use braid_nf::prelude::*;

use crate::anti_ddos::Counters;

/// Counts of all workers together, or the part of one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Load {
    pub(super) all: Counters,
    /// The number of the present span since the clock's beginning.
    span: u64,
    /// The flows that have been continued in it, and in the one before.
    now: i64,
    before: i64,
}

impl Load {
    /// Counts a flow that was continued, or whose client has returned a cookie.
    pub(super) fn went_on(&mut self, span: u64) {
        self.reach(span);
        self.now += 1;
    }

    /// Merges another worker's part into this one, in the reader's span: whose clock differs a little, or whose part was
    /// restored from an older state, has its own.
    pub(super) fn add(&mut self, part: &Load, span: u64) {
        let mut part = *part;
        self.all.add(&part.all);
        self.reach(span);
        part.reach(span);
        (self.now, self.before) = (self.now + part.now, self.before + part.before);
    }

    /// The flows that nobody has continued, and all that count, in this span.
    pub(super) fn compared(mut self, span: u64) -> (i64, i64) {
        self.reach(span);
        (self.all.one_packet, self.all.one_packet + self.now + self.before)
    }

    /// Moves on to a span.
    fn reach(&mut self, span: u64) {
        (self.now, self.before) = match span.wrapping_sub(self.span) {
            0 => return,
            1 => (0, self.now),
            // The clock of another worker is ahead: what it has counted is recent here too.
            u64::MAX => return,
            // Long ago, by a clock that was set back, or summed up from several parts.
            _ => (0, 0),
        };
        self.span = span;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(span: u64, times: i64) -> Load {
        let mut load = Load::default();
        (0..times).for_each(|_| load.went_on(span));
        load
    }

    #[track_caller]
    fn check(parts: [Load; 2], span: u64, all: i64) {
        for [mut one, other] in [parts, [parts[1], parts[0]]] {
            one.add(&other, span);
            assert_eq!(one.compared(span), (0, all), "{one:?}");
        }
    }

    #[test]
    fn only_what_went_on_lately_counts() {
        check([at(7, 3), at(7, 2)], 7, 5);
        check([at(7, 3), at(7, 2)], 8, 5);
        check([at(7, 3), at(7, 2)], 9, 0);
        check([at(7, 3), at(8, 2)], 8, 5);
        check([at(7, 3), at(8, 2)], 9, 2);
        check([at(7, 3), at(9, 2)], 9, 2);
        // A worker whose clock is behind, and a clock that was set back.
        check([at(7, 3), at(8, 2)], 7, 5);
        check([at(7000, 3), at(7000, 2)], 7, 0);
    }
}

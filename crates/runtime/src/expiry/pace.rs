//! The pace of the scan. Where most of what it finds has expired, as under a flood of connections that are never established, expired sets wait for
//! the scan longer than they lived, and take the room of new sets. Then rounds become shorter, by half each time, as long as that is worthwhile.

use super::CROWDED_NS_MIN;

/// Maximum number of halvings of a round.
const HALVINGS_MAX: u32 = 4;
/// A round is halved if more than one in `MANY` of the live sets has ended in it,
const MANY: usize = 8;
/// and more than one per `SLOTS_EACH` visited slots: visiting the few groups of so many slots costs less than ending a set.
const SLOTS_EACH: usize = 512;
/// A round is doubled again when less than this fraction of either threshold has ended.
const LESS: usize = 4;

/// The number of sets ended in this round, and how often rounds have been halved.
#[derive(Debug, Default)]
pub(super) struct Pace {
    ended: usize,
    halvings: u32,
}

impl Pace {
    pub(super) fn note(&mut self, ended: usize) {
        self.ended += ended;
    }

    /// Ends a round after which `live` sets are left in `slots` slots.
    pub(super) fn come_round(&mut self, live: usize, slots: usize) {
        let ended = std::mem::take(&mut self.ended);
        let are_more_than = |part: usize| ended > live / MANY / part && ended > slots / SLOTS_EACH / part;
        if are_more_than(1) {
            self.halvings = (self.halvings + 1).min(HALVINGS_MAX);
        } else if !are_more_than(LESS) {
            self.halvings = self.halvings.saturating_sub(1);
        }
    }

    /// The duration of a round that otherwise takes `round_ns`.
    pub(super) fn round_ns(&self, round_ns: u64) -> u64 {
        (round_ns >> self.halvings).max(CROWDED_NS_MIN.min(round_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_NS: u64 = 1_000_000_000;

    /// Checks the duration of rounds after `rounds` rounds in each of which `ended` sets end.
    #[track_caller]
    fn check(pace: &mut Pace, rounds: usize, (ended, live, slots): (usize, usize, usize), expected_us: u64) {
        for _ in 0..rounds {
            pace.note(ended);
            pace.come_round(live, slots);
        }
        assert_eq!(pace.round_ns(ROUND_NS), expected_us * 1000);
    }

    #[test]
    fn rounds_are_shorter_where_most_is_over_and_long_again_behind_it() {
        let mut pace = Pace::default();
        check(&mut pace, 1, (60_000, 50_000, 1 << 23), 500_000);
        check(&mut pace, 1, (30_000, 50_000, 1 << 23), 250_000);
        // Half as many no longer justify a shorter round, but are not few enough for a longer one.
        check(&mut pace, 9, (15_000, 50_000, 1 << 23), 250_000);
        check(&mut pace, 9, (200_000, 50_000, 1 << 23), 62_500);
        check(&mut pace, 9, (100, 50_000, 1 << 23), 1_000_000);
    }

    #[test]
    fn a_few_that_end_are_not_worth_shorter_rounds() {
        check(&mut Pace::default(), 9, (1000, 100, 1 << 20), 1_000_000);
        check(&mut Pace::default(), 9, (60_000, 1 << 20, 1 << 20), 1_000_000);
    }

    #[test]
    fn short_rounds_stay_as_they_are() {
        let mut pace = Pace::default();
        check(&mut pace, 9, (1 << 20, 1, 1 << 20), 62_500);
        assert_eq!(pace.round_ns(40_000_000), 40_000_000);
    }
}

//! Precise to the nanosecond and the byte, at the ends of the number range, and against exact arithmetic.

use proptest::prelude::*;

use super::*;

fn limit(per_second: u64, burst: u64) -> Limit {
    Limit::new("rate", per_second, "burst", burst).unwrap()
}

/// Sends `(nanoseconds, units)` through a full bucket, and checks which pass.
#[track_caller]
fn check(limit: Limit, packets: &[(u64, u32)], expected: &[bool]) {
    let mut bucket = limit.full(packets[0].0);
    let passed: Vec<bool> = packets.iter().map(|(now, cost)| limit.take(&mut bucket, *now, *cost)).collect();
    assert_eq!(passed, expected);
}

#[test]
fn a_burst_passes_at_once_and_no_byte_more() {
    check(limit(1000, 300), &[(0, 100), (0, 100), (0, 100), (0, 1)], &[true, true, true, false]);
}

#[test]
fn credit_returns_to_the_nanosecond() {
    // At 3 bytes a second one byte takes a third of a second: 333,333,333 ns are not enough, one more is.
    check(limit(3, 1), &[(0, 1), (333_333_333, 1), (333_333_334, 1)], &[true, false, true]);
}

#[test]
fn what_is_refused_takes_nothing() {
    check(limit(1, 100), &[(0, 60), (0, 50), (0, 40)], &[true, false, true]);
}

#[test]
fn a_packet_larger_than_the_burst_never_passes() {
    check(limit(1_000_000, 1000), &[(0, 1001), (1 << 60, 1001), (1 << 60, 1000)], &[false, false, true]);
}

#[test]
fn a_clock_that_goes_back_gives_nothing() {
    check(limit(1000, 10), &[(5_000_000, 10), (0, 1), (5_000_000, 1), (6_000_000, 1)], &[true, false, false, true]);
}

#[test]
fn extremes_do_not_overflow() {
    check(limit(u64::MAX, BURST_MAX), &[(0, u32::MAX), (1, 1), (u64::MAX, 4)], &[false, true, true]);
    check(limit(46_297, BURST_MAX), &[(0, 4_000_000_000), (u64::MAX, 4_000_000_000)], &[true, true]);
}

#[test]
fn impossible_limits_say_what_to_write_instead() {
    let error = |per_second, burst| Limit::new("rate", per_second, "burst", burst).unwrap_err().to_string();
    assert_eq!(error(0, 1), "`rate`: a rate of 0 lets nothing pass; write a number of at least 1");
    assert_eq!(error(1, 0), "`burst`: a burst of 0 is not possible; write a number from 1 to 4000000000");
    assert!(error(1, 100_000).ends_with("write at most 86400, or a higher `rate`"), "{}", error(1, 100_000));
}

#[test]
fn a_burst_that_nobody_wrote_is_possible_at_any_rate() {
    for (per_second, expected) in [(1, 10), (1000, 100), (u64::MAX, BURST_MAX)] {
        assert_eq!(Limit::usual_burst(per_second, 10), expected);
        assert!(Limit::new("rate", per_second, "burst", expected).is_ok());
    }
}

proptest! {
    /// The decisions equal those of a bucket of rational numbers, and never more than burst + rate × time passes over any
    /// period.
    #[test]
    fn decisions_are_those_of_exact_arithmetic(
        per_second in 1u64..10_000_000_000,
        burst in 1u64..100_000,
        packets in prop::collection::vec((0u64..50_000_000, 1u32..3000), 1..200),
    ) {
        prop_assume!(burst * BILLION / per_second < FILL_MAX.as_nanos() as u64);
        let limit = limit(per_second, burst);
        let mut bucket = limit.full(0);
        let (mut now, mut credit) = (0u64, u128::from(burst) * u128::from(BILLION));
        let mut passed: Vec<(u64, u64)> = Vec::new();
        for (gap, cost) in packets {
            now += gap;
            credit = (credit + u128::from(per_second) * u128::from(gap)).min(u128::from(burst) * u128::from(BILLION));
            let enough = credit >= u128::from(cost) * u128::from(BILLION);
            if enough {
                credit -= u128::from(cost) * u128::from(BILLION);
                passed.push((now, cost.into()));
            }
            prop_assert_eq!(limit.take(&mut bucket, now, cost), enough);
        }
        for first in 0..passed.len() {
            let mut sum = 0u128;
            for (at, cost) in &passed[first..] {
                sum += u128::from(*cost);
                let most = u128::from(burst) * u128::from(BILLION) + u128::from(per_second) * u128::from(at - passed[first].0);
                prop_assert!(sum * u128::from(BILLION) <= most);
            }
        }
    }
}

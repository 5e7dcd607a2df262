//! Meters against the text of their RFCs in exact arithmetic, and the bounds that follow.

use proptest::prelude::*;

use super::{Colour, Meter};
use crate::token_bucket::Limit;

fn limit(rate: u64, burst: u64) -> Limit {
    Limit::new("rate", rate, "burst", burst).unwrap()
}

/// A meter of the given kind, from rate and burst of both buckets.
fn meter(kind: usize, (rate, burst): (u64, u64), (second_rate, second_burst): (u64, u64)) -> Meter {
    let committed = limit(rate, burst);
    match kind {
        0 => Meter::Single(committed),
        1 => Meter::SingleRate { committed, excess: limit(rate, second_burst) },
        2 => Meter::TwoRate { committed, peak: limit(second_rate, second_burst) },
        _ => Meter::TwoRateApart { committed, excess: limit(second_rate, second_burst) },
    }
}

/// The RFCs' token counts, in billionths, computed as the RFCs describe.
struct Oracle {
    kind: usize,
    committed: (u128, u128),
    second: (u128, u128),
    tokens: (u128, u128),
    now: u64,
}

const BILLION: u128 = 1_000_000_000;

impl Oracle {
    fn colour(&mut self, now: u64, cost: u32, came: Colour) -> Colour {
        let (elapsed, cost) = (u128::from(now - self.now), u128::from(cost) * BILLION);
        self.now = now;
        let (full, second_full) = (self.committed.1 * BILLION, self.second.1 * BILLION);
        let committed = self.tokens.0 + self.committed.0 * elapsed;
        let inflow = match self.kind {
            1 => committed.saturating_sub(full),
            _ => self.second.0 * elapsed,
        };
        self.tokens = (committed.min(full), (self.tokens.1 + inflow).min(second_full));
        let (has, has_second) = (self.tokens.0 >= cost, self.tokens.1 >= cost);
        let (colour, takes) = match (self.kind, came) {
            (_, Colour::Red) => (Colour::Red, (false, false)),
            (0, _) => {
                if has {
                    (came, (true, false))
                } else {
                    (Colour::Red, (false, false))
                }
            }
            (2, _) if !has_second => (Colour::Red, (false, false)),
            (2, Colour::Green) if has => (Colour::Green, (true, true)),
            (2, _) => (Colour::Yellow, (false, true)),
            (_, Colour::Green) if has => (Colour::Green, (true, false)),
            _ if has_second => (Colour::Yellow, (false, true)),
            _ => (Colour::Red, (false, false)),
        };
        self.tokens.0 -= if takes.0 { cost } else { 0 };
        self.tokens.1 -= if takes.1 { cost } else { 0 };
        colour
    }
}

#[test]
fn colours_are_those_of_assured_forwarding() {
    // RFC 2597 section 6: AF11 10, AF12 12, AF13 14 to AF41 34, AF42 36, AF43 38.
    let coloured = |dscps: &[u8]| dscps.iter().map(|dscp| Colour::of_dscp(*dscp) as u8).collect::<Vec<_>>();
    assert_eq!(coloured(&[10, 12, 14, 34, 36, 38]), [0, 1, 2, 0, 1, 2]);
    assert_eq!(coloured(&[0, 8, 46, 44, 4, 6, 13]), [0; 7], "what is no such class is green");
}

proptest! {
    #[test]
    fn every_meter_colours_as_its_rfc_says_and_keeps_its_bounds(
        kind in 0usize..4,
        committed in (1_000u64..1_000_000, 100u64..5_000),
        more in (0u64..1_000_000, 100u64..5_000),
        aware: bool,
        packets in prop::collection::vec((0u64..3, 0u64..100_000_000, 1u32..3000, 0u8..3), 1..150),
    ) {
        let second = (committed.0 + more.0, more.1);
        let meter = meter(kind, committed, second);
        let mut metered = meter.full(0);
        let wide = |(rate, burst): (u64, u64)| (u128::from(rate), u128::from(burst));
        let tokens = (wide(committed).1 * BILLION, wide(second).1 * BILLION);
        let mut oracle = Oracle { kind, committed: wide(committed), second: wide(second), tokens, now: 0 };
        let (mut now, mut green, mut coloured) = (0, Vec::new(), Vec::new());
        for (gap, ns, cost, came) in packets {
            now += [0, ns / 1000, ns][gap as usize];
            let came = if aware { [Colour::Green, Colour::Yellow, Colour::Red][usize::from(came)] } else { Colour::Green };
            let colour = meter.colour(&mut metered, now, cost, came);
            prop_assert_eq!(colour, oracle.colour(now, cost, came));
            prop_assert!(colour >= came, "never a better colour");
            if colour == Colour::Green { green.push((now, cost)); }
            if colour != Colour::Red { coloured.push((now, cost)); }
        }
        check_bound(&green, committed)?;
        // RFC 2697: both bursts and the rate. RFC 2698: the peak. RFC 4115: the sums.
        check_bound(&coloured, match kind {
            0 => committed,
            1 => (committed.0, committed.1 + second.1),
            2 => second,
            _ => (committed.0 + second.0, committed.1 + second.1),
        })?;
    }
}

/// Never more than burst + rate × time, over any stretch.
fn check_bound(passed: &[(u64, u32)], (rate, burst): (u64, u64)) -> Result<(), TestCaseError> {
    for first in 0..passed.len() {
        let mut sum = 0u128;
        for (at, cost) in &passed[first..] {
            sum += u128::from(*cost) * BILLION;
            let most = u128::from(burst) * BILLION + u128::from(rate) * u128::from(at - passed[first].0);
            prop_assert!(sum <= most);
        }
    }
    Ok(())
}

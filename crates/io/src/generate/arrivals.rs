//! Arrival times of packets: a steady rate, or bursts.

use crate::random::Random;

/// The gap within a burst as a fraction of the mean gap.
const GAP_IN_BURST: f64 = 0.2;

/// Rate and burstiness of packet timestamps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrivals {
    /// Packets per second, greater than zero.
    pub rate_pps: f64,
    /// Coefficient of variation of the gaps between packets: 0 is a constant gap; real links have 1.3 to 8. Values from 0.8 on are
    /// produced by on/off bursts; smaller values other than 0 are treated as 0.8.
    pub cv: f64,
}

/// Generates gaps that are constant within a burst and, with probability p, followed by an exponential
/// pause with mean b. With a burst gap of 0.2 m and p b = 0.8 m the mean is m and the squared coefficient
/// of variation is 1.28 / p − 0.64, which determines p.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    start_ns: u64,
    /// Time since the start: exact to the nanosecond for a hundred days.
    now_ns: f64,
    burst_gap_ns: f64,
    pause_ns: f64,
    pause_chance: f64,
}

impl Clock {
    pub(crate) fn new(arrivals: &Arrivals, start_ns: u64) -> Clock {
        let mean = 1e9 / arrivals.rate_pps;
        if arrivals.cv == 0.0 {
            return Clock { start_ns, now_ns: 0.0, burst_gap_ns: mean, pause_ns: 0.0, pause_chance: 0.0 };
        }
        let pause_chance = (1.28 / (arrivals.cv * arrivals.cv + 0.64)).min(1.0);
        let pause_ns = (1.0 - GAP_IN_BURST) * mean / pause_chance;
        Clock { start_ns, now_ns: 0.0, burst_gap_ns: GAP_IN_BURST * mean, pause_ns, pause_chance }
    }

    /// Timestamp of the next packet.
    #[inline]
    pub(crate) fn next_ns(&mut self, random: &mut Random) -> u64 {
        let now = self.start_ns + self.now_ns as u64;
        self.now_ns += self.burst_gap_ns;
        if self.pause_chance > 0.0 && random.chance(self.pause_chance) {
            self.now_ns += self.pause_ns * random.exponential();
        }
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(cv: f64) {
        let mut random = Random::new(1);
        let mut clock = Clock::new(&Arrivals { rate_pps: 1e6, cv }, 0);
        let stamps: Vec<f64> = (0..400_000).map(|_| clock.next_ns(&mut random) as f64).collect();
        let gaps: Vec<f64> = stamps.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean / 1000.0 - 1.0).abs() < 0.05, "mean gap {mean} ns for CV {cv}");
        assert!((variance.sqrt() / mean - cv).abs() < 0.06 * cv.max(0.1), "CV {} for {cv}", variance.sqrt() / mean);
    }

    #[test]
    fn gaps_have_the_mean_and_the_variation_that_were_asked_for() {
        for cv in [0.0, 0.8, 1.3, 2.0, 4.0, 8.0] {
            check(cv);
        }
    }
}

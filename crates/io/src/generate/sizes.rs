//! Distributions of packets per flow and of frame lengths.

use crate::random::unit;

/// The number of packets in a flow. All distributions are given by rank: the flows of a cycle have exactly the sizes of the
/// distribution's quantiles, largest first, without sampling error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FlowSizes {
    /// The size of the r-th largest flow is proportional to r^-s; `mean` is the mean over all flows.
    Zipf {
        /// The exponent.
        s: f64,
        /// Mean number of packets per flow.
        mean: f64,
    },
    /// A share `one_packet` of the flows has one packet; the others have max(`least`, round(exp(normal(mu, sigma)))).
    LogNormal {
        /// Share of flows with one packet, regardless of the distribution.
        one_packet: f64,
        /// Minimum size of the other flows.
        least: u32,
        /// Mean of the logarithm.
        mu: f64,
        /// Standard deviation of the logarithm.
        sigma: f64,
    },
}

/// The sizes for a given number of flows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SizeTable {
    sizes: FlowSizes,
    flows: u64,
    /// Size of the largest flow of a Zipf distribution.
    largest: f64,
    /// Mean number of packets per flow.
    pub(crate) mean: f64,
    /// Share of flows with one packet.
    pub(crate) one_packet: f64,
}

/// Number of ranks that are added one by one before the sum is approximated.
const EXACT: u64 = 4096;
/// Number of ranks sampled to represent all others.
const SAMPLES: u64 = 1 << 14;

impl SizeTable {
    pub(crate) fn new(sizes: FlowSizes, flows: u64) -> SizeTable {
        let largest = match sizes {
            FlowSizes::Zipf { s, mean } => mean * flows as f64 / generalised_harmonic(flows, s),
            FlowSizes::LogNormal { .. } => 0.0,
        };
        let mut table = SizeTable { sizes, flows, largest, mean: 0.0, one_packet: 0.0 };
        let exact = flows.min(EXACT);
        let (mut packets, mut ones) = (0.0, 0.0);
        let mut add = |rank, weight: f64| {
            let size = table.size(rank);
            packets += f64::from(size) * weight;
            ones += if size == 1 { weight } else { 0.0 };
        };
        (0..exact).for_each(|rank| add(rank, 1.0));
        let rest = flows - exact;
        let samples = rest.min(SAMPLES);
        for sample in 0..samples {
            let rank = exact + (u128::from(sample * 2 + 1) * u128::from(rest) / u128::from(samples * 2)) as u64;
            add(rank, rest as f64 / samples as f64);
        }
        table.mean = packets / flows as f64;
        table.one_packet = ones / flows as f64;
        table
    }

    /// Number of packets of the flow with this rank, counted from 0 (the largest).
    pub(crate) fn size(&self, rank: u64) -> u32 {
        match self.sizes {
            FlowSizes::Zipf { s, .. } => (self.largest * ((rank + 1) as f64).powf(-s)).round().max(1.0) as u32,
            FlowSizes::LogNormal { one_packet, least, mu, sigma } => {
                let quantile = (rank as f64 + 0.5) / self.flows as f64;
                let many = 1.0 - one_packet;
                if quantile >= many {
                    return 1;
                }
                let size = (mu + sigma * normal_quantile(1.0 - quantile / many)).exp().round();
                size.max(f64::from(least)) as u32
            }
        }
    }
}

/// The sum of r^-s for r = 1..=n: the first terms exactly, the rest by the Euler-Maclaurin formula.
fn generalised_harmonic(n: u64, s: f64) -> f64 {
    let exact = n.min(EXACT);
    let sum: f64 = (1..=exact).map(|r| (r as f64).powf(-s)).sum();
    if n == exact {
        return sum;
    }
    let (a, b) = (exact as f64, n as f64);
    let integral = if (s - 1.0).abs() < 1e-9 { (b / a).ln() } else { (b.powf(1.0 - s) - a.powf(1.0 - s)) / (1.0 - s) };
    sum + integral + (b.powf(-s) - a.powf(-s)) / 2.0
}

/// Inverse of the standard normal distribution function, by Abramowitz and Stegun's formula 26.2.23; the error is below 4.5e-4.
fn normal_quantile(p: f64) -> f64 {
    let tail = p.min(1.0 - p).max(1e-300);
    let t = (-2.0 * tail.ln()).sqrt();
    let x = t - (2.515517 + t * (0.802853 + t * 0.010328)) / (1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308)));
    if p < 0.5 { -x } else { x }
}

/// Frame lengths, in bytes without the check sequence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FrameSizes {
    /// All frames have the same length.
    Fixed(u32),
    /// Uniform from the first to the second length, inclusive.
    Range(u32, u32),
    /// Weights of the classes ≤ 64, 65–127, 128–255, 256–511, 512–1023, 1024–1399, ≥ 1400 (mostly 1514). Frames that open and close
    /// TCP connections count towards the first class.
    Mix([f64; 7]),
}

const CLASSES: [(u32, u32); 7] = [(60, 64), (65, 127), (128, 255), (256, 511), (512, 1023), (1024, 1399), (1400, 1514)];
/// Share of full-length frames in the last class.
const FULL: f64 = 0.75;

/// Frame lengths, prepared for drawing.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LengthTable {
    Range(u32, u32),
    Classes([f64; 7]),
}

impl LengthTable {
    /// `control` is the share of frames whose length is not drawn because they have the minimum length anyway.
    pub(crate) fn new(sizes: FrameSizes, control: f64) -> LengthTable {
        match sizes {
            FrameSizes::Fixed(len) => LengthTable::Range(len, len),
            FrameSizes::Range(least, most) => LengthTable::Range(least, most),
            FrameSizes::Mix(weights) => {
                let total: f64 = weights.iter().sum();
                let mut weights = weights.map(|weight| weight / total);
                weights[0] = (weights[0] - control).max(0.0);
                let left: f64 = weights.iter().sum();
                let mut sum = 0.0;
                LengthTable::Classes(weights.map(|weight| {
                    sum += weight / left;
                    sum
                }))
            }
        }
    }

    /// Draws a length from 64 random bits.
    pub(crate) fn length(&self, bits: u64) -> u32 {
        let within =
            |(least, most): (u32, u32), bits: u64| least + (((bits & 0xffff) as u32 * (most - least + 1)) >> 16);
        match self {
            LengthTable::Range(least, most) => within((*least, *most), bits),
            LengthTable::Classes(sums) => {
                let place = unit(bits);
                let class = sums.iter().position(|&sum| place < sum).unwrap_or(CLASSES.len() - 1);
                if class == CLASSES.len() - 1 && (bits >> 8 & 0xff) as f64 / 256.0 < FULL {
                    return CLASSES[class].1;
                }
                within(CLASSES[class], bits)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_normal_quantile_is_right_to_three_digits() {
        for (p, x) in [(0.5, 0.0), (0.841_344_7, 1.0), (0.158_655_3, -1.0), (0.977_249_9, 2.0), (0.998_650_1, 3.0)] {
            assert!((normal_quantile(p) - x).abs() < 1e-3, "{p}");
        }
    }

    #[test]
    fn the_harmonic_sum_agrees_with_adding() {
        for s in [0.5, 0.83, 1.0, 1.26] {
            let added: f64 = (1..=100_000).map(|r| f64::from(r).powf(-s)).sum();
            assert!((generalised_harmonic(100_000, s) / added - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn mean_and_one_packet_share_agree_with_counting() {
        for sizes in [
            FlowSizes::Zipf { s: 0.83, mean: 21.0 },
            FlowSizes::Zipf { s: 1.2, mean: 21.0 },
            FlowSizes::LogNormal { one_packet: 0.0, least: 1, mu: 1.24, sigma: 1.9 },
            FlowSizes::LogNormal { one_packet: 0.5, least: 2, mu: 1.4, sigma: 1.2 },
        ] {
            let table = SizeTable::new(sizes, 50_000);
            let counted: Vec<u32> = (0..50_000).map(|rank| table.size(rank)).collect();
            let mean = counted.iter().map(|&size| f64::from(size)).sum::<f64>() / 50_000.0;
            let ones = counted.iter().filter(|&&size| size == 1).count() as f64 / 50_000.0;
            assert!((table.mean / mean - 1.0).abs() < 0.01, "{sizes:?}: {} {mean}", table.mean);
            assert!((table.one_packet - ones).abs() < 0.01, "{sizes:?}");
            assert!(counted.is_sorted_by(|a, b| a >= b), "largest first");
        }
    }
}

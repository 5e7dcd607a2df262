//! Seeded random numbers that never change between versions.

/// Mixes 64 bits; bijective (the finaliser of splitmix64, Steele et al., OOPSLA 2014).
#[inline(always)]
pub(crate) fn scramble(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Hashes two numbers.
#[inline(always)]
pub(crate) fn hash(a: u64, b: u64) -> u64 {
    scramble(scramble(a.wrapping_add(0x9e37_79b9_7f4a_7c15)) ^ b.wrapping_mul(0xd6e8_feb8_6659_fd93))
}

/// Converts 64 random bits to a number in [0, 1).
#[inline(always)]
pub(crate) fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

/// A generator of random numbers (splitmix64).
#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random { state: scramble(seed) }
    }

    #[inline(always)]
    pub(crate) fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        scramble(self.state)
    }

    /// A random number in [0, 1).
    #[inline(always)]
    pub(crate) fn unit(&mut self) -> f64 {
        unit(self.bits())
    }

    /// True with this probability.
    #[inline(always)]
    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// A random number with exponential distribution and mean 1.
    #[inline(always)]
    pub(crate) fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }
}

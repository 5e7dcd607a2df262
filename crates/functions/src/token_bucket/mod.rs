//! The token bucket: credit accumulates at a rate, up to a burst; a packet passes if it finds enough credit, which it
//! takes.
//!
//! Arithmetic is exact. Credit is counted in billionths of a unit (byte or packet), so the inflow of any number of
//! nanoseconds at a rate per second is a whole number: nothing is rounded, so nothing drifts. Over any stretch of time
//! *T*, at most `burst + rate · T` units pass (RFC 2697 section 1 with its committed bucket alone).

use std::time::Duration;

use braid_nf::Reason;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::config::ConfigError;

/// A packet found too little credit.
pub const RATE_EXCEEDED: Reason = Reason("rate_exceeded");
/// A packet that even a full bucket does not cover.
pub const LARGER_THAN_BURST: Reason = Reason("larger_than_burst");

/// Billionths in a unit, nanoseconds in a second.
const BILLION: u64 = 1_000_000_000;
/// The largest burst in units: twice its billionths fit into 64 bits.
pub const BURST_MAX: u64 = 4_000_000_000;
/// The longest time that an empty bucket may take to fill.
pub const FILL_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// A rate and a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    per_second: u64,
    /// A full bucket, in billionths of a unit.
    full: u64,
    /// The time in which an empty bucket fills.
    fill_ns: u64,
}

braid_nf::plain!(Limit);

/// The state of a bucket. A full bucket need not be stored, because an absent one counts as full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Bucket {
    /// Credit at `filled_ns`, in billionths of a unit.
    credit: u64,
    filled_ns: u64,
}

impl Bucket {
    /// Whether it holds `cost` units, without refilling first.
    #[inline(always)]
    pub fn holds(&self, cost: u32) -> bool {
        self.credit >= u64::from(cost) * BILLION
    }

    /// Up to when it was filled, in nanoseconds.
    pub fn filled_ns(&self) -> u64 {
        self.filled_ns
    }

    /// The whole units that it holds, as of when it was filled.
    pub fn units(&self) -> u64 {
        self.credit / BILLION
    }

    /// Takes this many units, if the bucket holds them, as of when it was last filled.
    #[inline(always)]
    pub fn spend(&mut self, cost: u32) -> bool {
        let enough = self.holds(cost);
        if enough {
            self.credit -= u64::from(cost) * BILLION;
        }
        enough
    }

    /// Takes `cost` units or as much as there is, and returns the shortfall in billionths.
    #[inline]
    pub fn drain(&mut self, cost: u32) -> u64 {
        let cost = u64::from(cost) * BILLION;
        let taken = cost.min(self.credit);
        self.credit -= taken;
        cost - taken
    }
}

impl Limit {
    /// A limit of `per_second` units per second and at most `burst` at once; errors name the keys `rate_key` and
    /// `burst_key`.
    pub fn new(rate_key: &str, per_second: u64, burst_key: &str, burst: u64) -> Result<Limit, ConfigError> {
        let limit = Limit::slow(rate_key, per_second, burst_key, burst)?;
        if u128::from(limit.fill_ns) > FILL_MAX.as_nanos() {
            let reason = format!("at {per_second} a second a burst of {burst} takes more than a day to fill");
            let most = per_second.saturating_mul(FILL_MAX.as_secs());
            return Err(ConfigError::new(burst_key, reason, format!("write at most {most}, or a higher `{rate_key}`")));
        }
        Ok(limit)
    }

    /// The same as [`Limit::new`], but without a maximum fill time.
    pub fn slow(rate_key: &str, per_second: u64, burst_key: &str, burst: u64) -> Result<Limit, ConfigError> {
        if per_second == 0 {
            return Err(ConfigError::new(rate_key, "a rate of 0 lets nothing pass", "write a number of at least 1"));
        }
        if burst == 0 || burst > BURST_MAX {
            let instead = format!("write a number from 1 to {BURST_MAX}");
            return Err(ConfigError::new(burst_key, format!("a burst of {burst} is not possible"), instead));
        }
        let full = burst * BILLION;
        Ok(Limit { per_second, full, fill_ns: full.div_ceil(per_second) })
    }

    /// The default burst for a rate: a tenth of a second's worth, but at least `least` units.
    pub fn usual_burst(per_second: u64, least: u64) -> u64 {
        (per_second / 10).clamp(least, BURST_MAX)
    }

    /// The inflow of one second, in billionths of a unit.
    pub fn second(&self) -> u64 {
        self.per_second.saturating_mul(BILLION)
    }

    /// Rate and burst as text.
    pub fn in_words(&self, unit: &str) -> String {
        format!("{} {unit} a second, {} at once", self.per_second, self.burst())
    }

    /// The size of the largest packet that can ever pass, in units.
    pub fn burst(&self) -> u64 {
        self.full / BILLION
    }

    /// What a bucket holds by now, as people read it.
    pub fn credit_in_words(&self, bucket: &Bucket, now_ns: u64, unit: &str) -> String {
        let mut now = *bucket;
        self.fill(&mut now, now_ns);
        format!("{} of {} {unit} left", now.units(), self.burst())
    }

    /// A full bucket.
    #[inline(always)]
    pub fn full(&self, now_ns: u64) -> Bucket {
        Bucket { credit: self.full, filled_ns: now_ns }
    }

    /// Takes `cost` units from the bucket; returns false, and takes nothing, if it does not hold them.
    #[inline(always)]
    pub fn take(&self, bucket: &mut Bucket, now_ns: u64, cost: u32) -> bool {
        let elapsed = now_ns.saturating_sub(bucket.filled_ns);
        // Before `fill_ns` has passed the inflow is less than `full`, so neither the product nor the sum overflows.
        bucket.credit = match elapsed < self.fill_ns {
            true => self.full.min(bucket.credit + self.per_second * elapsed),
            false => self.full,
        };
        bucket.filled_ns = bucket.filled_ns.max(now_ns);
        bucket.spend(cost)
    }

    /// Refills the bucket up to now, and returns the overflow in billionths.
    #[inline]
    pub fn fill(&self, bucket: &mut Bucket, now_ns: u64) -> u64 {
        self.fill_after(bucket, now_ns, &mut 0)
    }

    /// Refills a bucket that has a debt, in billionths: the inflow pays the debt first.
    #[inline]
    pub fn fill_after(&self, bucket: &mut Bucket, now_ns: u64, owed: &mut u64) -> u64 {
        let elapsed = now_ns.saturating_sub(bucket.filled_ns);
        bucket.filled_ns = bucket.filled_ns.max(now_ns);
        let inflow = u128::from(self.per_second) * u128::from(elapsed);
        let inflow = inflow.min(u128::from(u64::MAX / 2)) as u64;
        let paid = inflow.min(*owed);
        *owed -= paid;
        self.pour(bucket, inflow - paid)
    }

    /// Adds billionths to the bucket regardless of time, and returns the overflow.
    #[inline]
    pub fn pour(&self, bucket: &mut Bucket, inflow: u64) -> u64 {
        // A full bucket is below 2^62 and an inflow below 2^63, so the sum does not overflow.
        let sum = bucket.credit + inflow;
        bucket.credit = sum.min(self.full);
        sum - bucket.credit
    }

    /// Puts back what was taken for a packet that does not leave after all.
    pub fn give_back(&self, bucket: &mut Bucket, cost: u32) {
        self.pour(bucket, u64::from(cost) * BILLION);
    }

    /// Takes `cost` units (at most a full bucket) as soon as the bucket holds them, but not before `from_ns`; returns
    /// that time.
    pub fn take_after(&self, bucket: &mut Bucket, from_ns: u64, cost: u32) -> u64 {
        self.fill(bucket, from_ns);
        let missing = (u64::from(cost) * BILLION).saturating_sub(bucket.credit);
        let due_ns = bucket.filled_ns + missing.div_ceil(self.per_second);
        self.take(bucket, due_ns, cost);
        due_ns
    }

    /// The time when the bucket will hold `cost` units (at most a full bucket) if nothing is taken before.
    pub fn ready_ns(&self, bucket: &Bucket, cost: u32) -> u64 {
        let mut after = *bucket;
        self.take_after(&mut after, bucket.filled_ns, cost)
    }

    /// Takes `cost` units as [`Limit::take_after`] does, but only if that is possible by `by_ns`; otherwise takes
    /// nothing.
    pub fn take_by(&self, bucket: &mut Bucket, from_ns: u64, by_ns: u64, cost: u32) -> bool {
        let mut after = *bucket;
        let in_time = self.take_after(&mut after, from_ns, cost) <= by_ns;
        if in_time {
            *bucket = after;
        }
        in_time
    }

    /// Whether the bucket is full at `now_ns`.
    pub fn is_full(&self, bucket: &Bucket, now_ns: u64) -> bool {
        let mut now = *bucket;
        self.fill(&mut now, now_ns);
        now.credit == self.full
    }

    /// The time without a packet after which any bucket is full and may be forgotten; at least a second. It is a
    /// millisecond longer than the fill time, because the age of a packet set is known to the millisecond.
    pub fn timeout_ns(&self) -> u64 {
        (self.fill_ns + 1_000_000).max(BILLION)
    }
}

#[cfg(test)]
mod tests;

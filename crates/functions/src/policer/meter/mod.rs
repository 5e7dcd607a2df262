//! Meters that colour packets, with one token bucket or with two, as in three RFCs. All are exact: see
//! [`token_bucket`](crate::token_bucket).
//!
//! | meter | committed bucket fills at | second bucket fills at | a green packet takes from |
//! |---|---|---|---|
//! | single | rate | – | committed |
//! | srTCM, RFC 2697 | rate | what overflows the first | committed |
//! | trTCM, RFC 2698 | rate | peak rate | both |
//! | RFC 4115 | rate | excess rate | committed |

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::token_bucket::{Bucket, Limit};

/// The colour that a meter gives to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Colour {
    /// Within the committed rate.
    Green = 0,
    /// Above it, within the second bucket.
    Yellow = 1,
    /// Beyond both.
    Red = 2,
}

impl Colour {
    /// The colour marked by an upstream meter: the drop precedence of an assured forwarding class (RFC 2597 section 6),
    /// and green for all other code points.
    pub fn of_dscp(dscp: u8) -> Colour {
        let (class, precedence) = (dscp >> 3, dscp & 7);
        match (class, precedence) {
            (1..=4, 4) => Colour::Yellow,
            (1..=4, 6) => Colour::Red,
            _ => Colour::Green,
        }
    }
}

/// How packets are metered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meter {
    /// One bucket: green or red.
    Single(Limit),
    /// Single rate, three colours (RFC 2697).
    SingleRate {
        /// Rate and committed burst.
        committed: Limit,
        /// Excess burst.
        excess: Limit,
    },
    /// Two rates, three colours (RFC 2698): the peak rate includes the committed rate.
    TwoRate {
        /// Committed rate and burst.
        committed: Limit,
        /// Peak rate and burst.
        peak: Limit,
    },
    /// Two rates, three colours (RFC 4115): the excess rate adds to the committed rate.
    TwoRateApart {
        /// Committed rate and burst.
        committed: Limit,
        /// Excess rate and burst.
        excess: Limit,
    },
}

braid_nf::plain!(Meter);

/// The state of a meter for one set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Metered {
    committed: Bucket,
    second: Bucket,
}

impl Metered {
    /// Takes the cost from the committed bucket, if it holds enough.
    #[inline(always)]
    pub fn take(&mut self, limit: &Limit, now_ns: u64, cost: u32) -> bool {
        limit.take(&mut self.committed, now_ns, cost)
    }
}

impl Meter {
    /// The state with full buckets.
    pub fn full(&self, now_ns: u64) -> Metered {
        let (committed, second) = self.limits();
        Metered { committed: committed.full(now_ns), second: second.unwrap_or(committed).full(now_ns) }
    }

    /// Colours a packet of `cost` units that arrived with the colour `came` (green for a colour-blind meter). The result
    /// is never better than `came`, and a red packet takes no tokens.
    #[inline(always)]
    pub fn colour(&self, metered: &mut Metered, now_ns: u64, cost: u32, came: Colour) -> Colour {
        match self {
            Meter::Single(limit) => match came < Colour::Red && limit.take(&mut metered.committed, now_ns, cost) {
                true => came,
                false => Colour::Red,
            },
            other => other.three_colours(metered, now_ns, cost, came),
        }
    }

    #[inline(never)]
    fn three_colours(&self, metered: &mut Metered, now_ns: u64, cost: u32, came: Colour) -> Colour {
        let Metered { committed, second } = metered;
        match self {
            Meter::Single(limit) => {
                limit.fill(committed, now_ns);
            }
            Meter::SingleRate { committed: limit, excess } => {
                let overflow = limit.fill(committed, now_ns);
                excess.pour(second, overflow);
            }
            Meter::TwoRate { committed: limit, peak: other }
            | Meter::TwoRateApart { committed: limit, excess: other } => {
                limit.fill(committed, now_ns);
                other.fill(second, now_ns);
            }
        }
        if came == Colour::Red {
            return Colour::Red;
        }
        if let Meter::TwoRate { .. } = self {
            // RFC 2698 section 3: first the peak bucket, then the committed one; a green packet takes from both.
            return match second.spend(cost) {
                false => Colour::Red,
                true if came == Colour::Green && committed.spend(cost) => Colour::Green,
                true => Colour::Yellow,
            };
        }
        // RFC 2697 section 3, RFC 4115 section 2: a packet takes from one bucket only.
        if came == Colour::Green && committed.spend(cost) {
            Colour::Green
        } else if second.spend(cost) {
            Colour::Yellow
        } else {
            Colour::Red
        }
    }

    /// The size of the largest packet that is not always red, in units.
    pub fn burst(&self) -> u64 {
        let (committed, second) = self.limits();
        match self {
            Meter::TwoRate { peak, .. } => peak.burst(),
            _ => committed.burst().max(second.map_or(0, |second| second.burst())),
        }
    }

    /// The time without a packet after which all buckets are full, whatever they held.
    pub fn timeout_ns(&self) -> u64 {
        let (committed, second) = self.limits();
        committed.timeout_ns() + second.map_or(0, |second| second.timeout_ns())
    }

    /// Describes the meter and its buckets.
    pub fn in_words(&self, unit: &str) -> String {
        let name = match self {
            Meter::Single(_) => "single",
            Meter::SingleRate { .. } => "srtcm",
            Meter::TwoRate { .. } => "trtcm",
            Meter::TwoRateApart { .. } => "rfc4115",
        };
        let (first, second) = self.limits();
        let second = second.map_or_else(String::new, |limit| format!(" and {}", limit.in_words(unit)));
        format!("{name}, {}{second}", first.in_words(unit))
    }

    /// What the buckets hold by now, as people read it.
    pub fn credit_in_words(&self, metered: &Metered, now_ns: u64, unit: &str) -> String {
        let mut now = *metered;
        // Red takes nothing: the buckets are filled and that is all.
        self.three_colours(&mut now, now_ns, 0, Colour::Red);
        let (first, second) = self.limits();
        let committed = first.credit_in_words(&now.committed, now.committed.filled_ns(), unit);
        match second {
            None => committed,
            Some(second) => {
                let other = second.credit_in_words(&now.second, now.second.filled_ns(), unit);
                format!("{committed}, second bucket {other}")
            }
        }
    }

    fn limits(&self) -> (Limit, Option<Limit>) {
        match *self {
            Meter::Single(limit) => (limit, None),
            Meter::SingleRate { committed, excess } | Meter::TwoRateApart { committed, excess } => {
                (committed, Some(excess))
            }
            Meter::TwoRate { committed, peak } => (committed, Some(peak)),
        }
    }
}

#[cfg(test)]
mod tests;

//! Detects heavy hitters: subjects that send or receive more than a threshold in an interval, in memory that does not
//! grow with their number.
//!
//! Every packet is added to the worker's own part of a [`Sketch`]. When a subject's sum there has grown by a small share
//! of the threshold, or reaches it, all workers' parts are summed. So workers rarely read each other's parts, and no
//! subject is missed. Packets of a subject form a packet set, which keeps them on one worker where steering can; no set
//! ever becomes live.

mod config;
mod sketch;
mod subject;

pub use config::{Config, Count};
pub use sketch::{Line, Sketch};
pub use subject::{By, Subject};

use braid_nf::FieldUse;
use braid_nf::prelude::*;
use braid_nf::state::hash::mixed;

use crate::config::READS_WIRE_LEN;
use crate::parts::{Alerts, seconds};
use crate::{ConfigError, FromConfig};

/// A sum is checked again once it has grown by 2^-`STEPS` of the threshold or of itself, whichever is more.
const STEPS: u32 = 8;

/// What is known of a subject that has reached the threshold.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Hitter {
    first_ns: u64,
    /// The latest interval in which it reached the threshold.
    interval: u64,
    /// The number of intervals in which it did.
    intervals: u32,
    /// The latest of these intervals: bit *n* stands for the *n*th before `interval`. Workers may be in different
    /// intervals.
    recent: u32,
    most: u64,
}

impl Hitter {
    /// Notes that the threshold was reached in an interval. Each interval counts once, in whatever order they are noted;
    /// one that is further back than `recent` holds is taken as counted.
    fn reached(self, interval: u64, sum: u64) -> Hitter {
        let later = interval.saturating_sub(self.interval).min(u32::BITS.into()) as u32;
        let (newest, back) = (self.interval.max(interval), self.interval.saturating_sub(interval));
        let seen = self.recent.checked_shl(later).unwrap_or(0);
        let bit = u32::try_from(back).ok().and_then(|back| 1u32.checked_shl(back)).unwrap_or(0);
        let is_new = bit & !seen != 0;
        let intervals = self.intervals.saturating_add(is_new.into());
        Hitter { interval: newest, intervals, recent: seen | bit, most: self.most.max(sum), ..self }
    }
}

network_function! {
    /// Detects heavy hitters; see the README beside this file.
    #[derive(Debug)]
    pub struct HeavyHitters {
        by: By,
        count: Count,
        threshold: u64,
        interval_ns: u64,
        /// Intervals per nanosecond, in units of 2^-64, to multiply instead of dividing.
        per_ns: u64,
        sketch: Sketch,
        hitters: Alerts<Subject, Hitter>,
    }
}

impl FromConfig for HeavyHitters {
    type Config = Config;

    fn from_config(config: Config, builder: &mut StateBuilder, _: u16) -> Result<HeavyHitters, ConfigError> {
        let (rows, columns) = config.size()?;
        let interval_ns = config.interval_ns()?;
        let hitters = Alerts::new(builder, config.hitters_max);
        Ok(HeavyHitters {
            by: config.by,
            count: config.count,
            threshold: config.threshold()?,
            interval_ns,
            per_ns: u64::MAX / interval_ns + 1,
            sketch: Sketch::new(builder, rows, columns).map_err(|error| ConfigError::state("columns", &error))?,
            hitters: hitters.map_err(|error| ConfigError::state("hitters_max", &error))?,
        })
    }
}

impl NetworkFunction for HeavyHitters {
    type Set = ();
    const NAME: &'static str = "heavy_hitters";

    /// Sums keep their meaning under any threshold.
    fn inherits(&self, older: &Self) -> Result<(), String> {
        let counts_alike = (self.by, self.count, self.interval_ns) == (older.by, older.count, older.interval_ns);
        if !counts_alike || !self.sketch.is_like(&older.sketch) {
            let what = "cells hold what they were filled with: `by`, `count`, `interval_ms`, `rows` and `columns` stay";
            return Err(what.to_owned());
        }
        Ok(())
    }

    fn packet_set(&self) -> Option<SetDef> {
        Some(self.by.packet_set())
    }

    fn fields(&self) -> Vec<FieldUse> {
        if self.count == Count::Bytes { vec![READS_WIRE_LEN] } else { Vec::new() }
    }

    fn orphan(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        if packet.is_ip() {
            self.add(cx, &self.by.subject(packet), if self.count == Count::Bytes { packet.wire_len() } else { 1 })?;
        }
        Ok(cx.pass())
    }

    fn report(&self, cx: &mut Cx<'_>, into: &mut Findings) -> Result<(), Conflict> {
        let (unit, length) = (self.count.name(), seconds(self.interval_ns));
        self.hitters.report(cx, into, |subject, hitter, into| {
            let Hitter { first_ns, intervals, most, .. } = *hitter;
            let first = seconds(first_ns);
            let times = if intervals == 1 { "once".to_owned() } else { format!("in {intervals} intervals") };
            into.find("heavy_hitter", subject, format!("{times}, {most} {unit} within {length}, first at {first}"));
        })
    }
}

impl HeavyHitters {
    #[inline]
    fn add(&self, cx: &mut Cx<'_>, subject: &Subject, weight: u32) -> Result<(), Conflict> {
        let interval = ((u128::from(cx.now()) * u128::from(self.per_ns)) >> 64) as u64;
        let (hash, weight) = (mixed(subject.as_bytes(), 0), u64::from(weight));
        let own = self.sketch.add(cx, hash, interval, weight)?;
        if self.is_due(own.saturating_sub(weight), own) {
            self.judge(cx, subject, hash, interval)?;
        }
        Ok(())
    }

    /// Whether a sum that has grown from `before` to `after` should be added to those of the other workers.
    #[inline]
    fn is_due(&self, before: u64, after: u64) -> bool {
        let step = self.threshold.max(after).ilog2().saturating_sub(STEPS);
        before >> step != after >> step || (before < self.threshold && after >= self.threshold)
    }

    #[inline(never)]
    fn judge(&self, cx: &mut Cx<'_>, subject: &Subject, hash: u64, interval: u64) -> Result<(), Conflict> {
        let sum = self.sketch.estimate(cx, hash, interval)?;
        if sum < self.threshold {
            return Ok(());
        }
        let now = cx.now();
        self.hitters.amend(cx, subject, |known| {
            let fresh = Hitter { first_ns: now, interval, intervals: 0, recent: 0, most: 0 };
            known.unwrap_or(fresh).reached(interval, sum)
        })
    }
}

#[cfg(test)]
mod tests;

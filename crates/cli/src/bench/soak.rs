//! A long run at full rate in which flows end and others begin. At regular intervals it records the live packet sets, the memory of
//! the process, and whether packets are missing.
//!
//! A trace is repeated forever, and with each pass another tenth of its flows comes from other ports ([`super::renewal`]). Silent
//! flows are forgotten after one or a few seconds.

use std::fmt;
use std::time::{Duration, Instant};

use braid_control::report::grouped;
use braid_control::runtime::{Live, WorkerCounters};
use serde::Serialize;

use super::stop::{Stop, unless};

/// What is seen at one time.
#[derive(Clone, Debug, Serialize)]
pub struct Sample {
    /// Name of the chain.
    pub chain: String,
    /// Seconds since the beginning.
    pub seconds: f64,
    /// Million packets per second since the previous sample.
    pub mpps: f64,
    /// Packets since the beginning.
    pub packets: u64,
    /// Live packet sets.
    pub sets: u64,
    /// Sets that became live.
    pub created: u64,
    /// Sets that ended, including evicted ones.
    pub expired: u64,
    /// Sets that were evicted to make room.
    pub evicted: u64,
    /// Sets that were refused because there was no room.
    pub refused: u64,
    /// Packets that arrived and neither left nor were dropped by a function.
    pub lost: u64,
    /// Packets dropped by functions.
    pub dropped: u64,
    /// Resident memory of the process, including huge pages.
    pub resident_bytes: u64,
}

impl Sample {
    /// Heading of the table.
    pub const HEAD: &str = "   seconds    Mpps           packets         sets       created       expired       evicted   refused     dropped      lost     MiB\n";
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Sample { seconds, mpps, packets, sets, created, expired, evicted, refused, .. } = self;
        let Sample { lost, dropped, resident_bytes, .. } = self;
        let [packets, sets, created, expired, evicted, refused, dropped, lost] =
            [packets, sets, created, expired, evicted, refused, dropped, lost].map(|number| grouped(*number));
        let mib = *resident_bytes as f64 / 1048576.0;
        writeln!(
            f,
            "{seconds:>10.1} {mpps:>7.2} {packets:>17} {sets:>12} {created:>13} {expired:>13} {evicted:>13} {refused:>9} {dropped:>11} {lost:>9} {mib:>7.1}"
        )
    }
}

/// Interval at which the request to end is checked.
const PATIENCE: Duration = Duration::from_millis(50);

/// Looks at a run of a chain `looks` times within `time`, or until it is to stop; `seen` is called for each.
pub fn watch(
    (live, stop): (&Live, &Stop),
    chain: &str,
    (time, looks): (Duration, u32),
    mut seen: impl FnMut(&Sample),
) -> Vec<Sample> {
    let (begun, mut samples) = (Instant::now(), Vec::<Sample>::new());
    for look in 1..=looks {
        let due = time * look / (looks + 1);
        while begun.elapsed() < due && unless(stop).is_ok() {
            std::thread::sleep(due.saturating_sub(begun.elapsed()).min(PATIENCE));
        }
        if unless(stop).is_err() {
            break;
        }
        let mut total = WorkerCounters::default();
        live.see().into_iter().flatten().for_each(|worker| total.merge(&worker.counters));
        let seconds = begun.elapsed().as_secs_f64();
        let sample = sample(chain, &total, seconds, samples.last());
        seen(&sample);
        samples.push(sample);
    }
    samples
}

/// Makes a sample from the counters.
pub fn sample(chain: &str, total: &WorkerCounters, seconds: f64, before: Option<&Sample>) -> Sample {
    let (earlier, packets_before) = before.map_or((0.0, 0), |before| (before.seconds, before.packets));
    let dropped = total.drops.total();
    Sample {
        chain: chain.to_owned(),
        seconds,
        mpps: (total.packets_in - packets_before) as f64 / (seconds - earlier).max(1e-9) / 1e6,
        packets: total.packets_in,
        sets: total.sets_live,
        created: total.sets_created,
        expired: total.sets_expired,
        evicted: total.sets_evicted,
        refused: total.sets_refused,
        lost: (total.packets_in + total.packets_copied).saturating_sub(total.packets_out + dropped),
        dropped,
        resident_bytes: resident_bytes(),
    }
}

/// Resident memory in bytes, including huge pages, which the kernel counts separately (`/proc/self/status`).
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = |name: &str| -> u64 {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
    };
    (kib("VmRSS") + kib("HugetlbPages")) * 1024
}

/// The largest growth of memory in the second half of any of several consecutive runs; at least 0.
pub fn growth_of_all(samples: &[Sample]) -> f64 {
    // A new run begins where the time decreases.
    samples.chunk_by(|one, next| one.seconds <= next.seconds).map(growth).fold(0.0, f64::max)
}

/// The growth of memory between the middle and the end of a run, as a share; tables fill up in the first half.
fn growth(samples: &[Sample]) -> f64 {
    // The last sample is taken when the run has ended and its tables are gone.
    let samples = &samples[..samples.len().saturating_sub(1)];
    let (Some(middle), Some(last)) = (samples.get(samples.len() / 2), samples.last()) else { return 0.0 };
    last.resident_bytes as f64 / middle.resident_bytes.max(1) as f64 - 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_grows_from_the_middle_on_or_not() {
        let sample =
            |mib: u64| Sample { resident_bytes: mib << 20, ..sample("nat", &WorkerCounters::default(), 1.0, None) };
        assert_eq!(growth(&[10, 90, 100, 100, 3].map(sample)), 0.0);
        assert!((growth(&[10, 90, 100, 110, 3].map(sample)) - 0.1).abs() < 1e-9);
        let (flat, mut grown) = ([10, 90, 100, 100, 3].map(sample), [10, 90, 100, 110, 3].map(sample));
        grown[1..].iter_mut().for_each(|sample| sample.seconds = 2.0);
        assert!((growth_of_all(&[grown, flat].concat()) - 0.1).abs() < 1e-9, "the one that grew counts");
        assert_eq!(growth_of_all(&[]), 0.0);
    }
}

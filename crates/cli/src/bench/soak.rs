//! A long run at full rate with flows that end and others that begin: what is live, how much memory the process has, and whether a
//! packet is missing, at steady intervals.
//!
//! A trace is repeated for ever, and with each pass another tenth of its flows comes from other addresses: one packet in ten begins
//! a flow, and those that came from there before fall silent. Tables hold twice the flows and let the oldest go, so what is seen is
//! both expiry and eviction at work.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use braid_control::report::grouped;
use braid_control::runtime::io::{
    OpenError, Progress, QueueSelect, Received, ReplaySource, RxCounters, RxQueue, Source,
};
use braid_control::runtime::nf::packet::{Batch, Buffers};
use braid_control::runtime::{Live, WorkerCounters};
use serde::Serialize;

use super::warm::open_counted;

/// Passes in which every flow is renewed once.
const ROUND: u64 = 10;
/// Networks that flows come from in turn, each with its own first octet, from this one on.
const NETWORKS: u64 = 32;
const FIRST_NETWORK: u64 = 64;

/// A replay whose flows are renewed.
pub struct Renewed(pub ReplaySource);

impl Source for Renewed {
    fn name(&self) -> String {
        self.0.name()
    }

    fn ports(&self) -> usize {
        self.0.ports()
    }

    fn progress(&self) -> Arc<Progress> {
        self.0.progress()
    }

    fn open(self: Box<Self>, queues: usize, select: Arc<dyn QueueSelect>) -> Result<Vec<Box<dyn RxQueue>>, OpenError> {
        open_counted(self.0, queues, select, u64::MAX, |_, inner, frames| {
            Box::new(RenewedQueue { inner, frames: frames.max(1), at: 0, pass: 0 })
        })
    }
}

struct RenewedQueue {
    inner: Box<dyn RxQueue>,
    /// Frames of a pass.
    frames: u64,
    /// Next frame of the pass.
    at: u64,
    pass: u64,
}

impl RxQueue for RenewedQueue {
    fn receive(&mut self, batch: &mut Batch, buffers: &mut Buffers, limit: usize) -> Received {
        let before = batch.len();
        let received = self.inner.receive(batch, buffers, limit);
        for i in before..batch.len() {
            let renewals = (self.pass + self.at % ROUND) / ROUND;
            move_to(batch.packet(i, None).bytes_mut(), (FIRST_NETWORK + renewals % NETWORKS) as u8);
            self.at += 1;
            if self.at == self.frames {
                (self.at, self.pass) = (0, self.pass + 1);
            }
        }
        received
    }

    fn horizon(&self) -> u64 {
        self.inner.horizon()
    }

    fn counters(&self) -> RxCounters {
        self.inner.counters()
    }
}

/// Gives an IPv4 UDP packet on Ethernet a source in another network, with both checksums kept right (RFC 1624).
fn move_to(frame: &mut [u8], first_octet: u8) {
    const ETHERNET_IPV4: [u8; 3] = [0x08, 0x00, 0x45];
    const SOURCE: usize = 26;
    if frame.len() < 42 || frame[12..15] != ETHERNET_IPV4 {
        return;
    }
    let word = |frame: &[u8], at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let before = word(frame, SOURCE);
    frame[SOURCE] = first_octet;
    let after = word(frame, SOURCE);
    for at in [24, 40] {
        let sum = word(frame, at);
        // Zero in UDP: there is none (RFC 768).
        if sum != 0 {
            let changed = u32::from(!sum) + u32::from(!before) + u32::from(after);
            let folded = (changed & 0xffff) + (changed >> 16);
            let folded = (folded & 0xffff) + (folded >> 16);
            frame[at..at + 2].copy_from_slice(&(!(folded as u16)).to_be_bytes());
        }
    }
}

/// What is seen at one time.
#[derive(Clone, Debug, Serialize)]
pub struct Sample {
    /// Since the beginning.
    pub seconds: f64,
    /// Million packets a second since the sample before.
    pub mpps: f64,
    /// Packets since the beginning.
    pub packets: u64,
    /// Live packet sets.
    pub sets: u64,
    /// Sets that became live.
    pub created: u64,
    /// Sets that ended, those evicted included.
    pub expired: u64,
    /// Sets that had to make room.
    pub evicted: u64,
    /// Sets that found no room.
    pub refused: u64,
    /// Packets that came in and neither went out nor were dropped by a function.
    pub lost: u64,
    /// Packets dropped by functions.
    pub dropped: u64,
    /// Memory of the process that is really there, huge pages included.
    pub resident_bytes: u64,
}

impl Sample {
    /// Head of the table.
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

/// Looks at a run `looks` times within `time`; `seen` is told of each.
pub fn watch(live: &Live, time: Duration, looks: u32, mut seen: impl FnMut(&Sample)) -> Vec<Sample> {
    let (begun, mut samples) = (Instant::now(), Vec::<Sample>::new());
    for look in 1..=looks {
        let due = time * look / (looks + 1);
        std::thread::sleep(due.saturating_sub(begun.elapsed()));
        let mut total = WorkerCounters::default();
        live.see().into_iter().flatten().for_each(|worker| total.merge(&worker.counters));
        let seconds = begun.elapsed().as_secs_f64();
        let sample = sample(&total, seconds, samples.last());
        seen(&sample);
        samples.push(sample);
    }
    samples
}

/// What the counters say.
pub fn sample(total: &WorkerCounters, seconds: f64, before: Option<&Sample>) -> Sample {
    let (earlier, packets_before) = before.map_or((0.0, 0), |before| (before.seconds, before.packets));
    let dropped = total.drops.total();
    Sample {
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

/// Resident memory, and huge pages that do not count as such (`/proc/self/status`).
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = |name: &str| -> u64 {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
    };
    (kib("VmRSS") + kib("HugetlbPages")) * 1024
}

/// Memory that came between the middle and the end of a run, as a share: tables fill up in the first half.
pub fn growth(samples: &[Sample]) -> f64 {
    // The last sample comes when the run has ended and its tables are gone.
    let samples = &samples[..samples.len().saturating_sub(1)];
    let (Some(middle), Some(last)) = (samples.get(samples.len() / 2), samples.last()) else { return 0.0 };
    last.resident_bytes as f64 / middle.resident_bytes.max(1) as f64 - 1.0
}

#[cfg(test)]
mod tests {
    use braid_testkit::{Frame, check_checksums};

    use super::*;

    #[test]
    fn a_packet_from_another_network_is_whole() {
        let mut frame = Frame::udp("10.1.2.3:4000", "198.18.0.1:80").payload(b"what it says").bytes();
        move_to(&mut frame, 77);
        assert_eq!(frame[26..30], [77, 1, 2, 3]);
        assert_eq!(check_checksums(&frame), Ok(()));
        let mut arp = Frame::udp("10.1.2.3:4000", "198.18.0.1:80").bytes();
        arp[12..14].copy_from_slice(&[8, 6]);
        let before = arp.clone();
        move_to(&mut arp, 77);
        assert_eq!(arp, before);
    }

    #[test]
    fn memory_grows_from_the_middle_on_or_not() {
        let sample = |mib: u64| Sample { resident_bytes: mib << 20, ..sample(&WorkerCounters::default(), 1.0, None) };
        assert_eq!(growth(&[10, 90, 100, 100, 3].map(sample)), 0.0);
        assert!((growth(&[10, 90, 100, 110, 3].map(sample)) - 0.1).abs() < 1e-9);
    }
}

//! Collects the figures: each worker is queried between two of its batches, and the answers are combined.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use braid_runtime::chain::Chain;
use braid_runtime::io::device::DeviceCounters;
use braid_runtime::live::{Live, Running, Seen, Unanswered};
use braid_runtime::nf::state::causes::{cause_of, operation};
use braid_runtime::nf::{Findings, Stage};
use braid_runtime::observe::aborts::AbortRow;
use braid_runtime::observe::probe::{Lap, TimeSplit};
use braid_runtime::{PortCounters, Worker, WorkerCounters};

use super::{Abort, Function, Object, PortStats, Stats, TopSet, WorkerStats};
use crate::profile_run::{HAD_ITS_TURN, WAS_COMMITTED};
use crate::report::{Sets, Told, Transactions};

/// Maximum number of rows in lists sorted by frequency.
const ROWS_MAX: usize = 16;

/// State of a worker that does not reach the end of a batch.
const LATE: &str = "late";

/// Number of log entries of a function that a worker reads between two batches, which takes some tens of microseconds.
const LOG_PIECE: u32 = 512;

impl Stats {
    /// Queries all workers.
    pub fn take(live: &Live) -> Stats {
        let Some(running) = live.running() else { return Stats { version: version(), ..Stats::default() } };
        let seen = live.see();
        let mut stats = Stats {
            version: version(),
            seconds: running.since.elapsed().as_secs_f64(),
            running: seen.iter().any(|seen| !matches!(seen, Ok(Seen { ended: true, .. }))),
            workers: seen.iter().enumerate().map(worker).collect(),
            ..Stats::default()
        };
        let mut total = WorkerCounters::default();
        for seen in seen.iter().flatten() {
            total.merge(&seen.counters);
        }
        stats.count(&total, &running.chain);
        for Seen { received, sent, .. } in seen.iter().flatten() {
            received.losses().into_iter().for_each(|(reason, count)| stats.lose_arriving(reason, count));
            sent.losses().into_iter().for_each(|(reason, count)| stats.lose_leaving(reason, count));
        }
        let splits: Vec<&TimeSplit> = seen.iter().flatten().filter_map(|seen| seen.split.as_ref()).collect();
        stats.functions = functions(&running, &total, &splits);
        stats.consumed = running.chain.consumed(&total.drops);
        stats.objects = objects(&running);
        stats.aborts = aborts(&running, &total);
        stats.top_sets = top_sets(&splits);
        stats
    }

    /// Adds everything that functions report. A worker reads one piece of a function's logs between two batches.
    pub fn with_findings(self, live: &Live) -> Stats {
        self.told(live, Findings::piece)
    }

    /// Adds what functions report except for logs: the few values that metrics request every few seconds.
    pub fn with_figures(self, live: &Live) -> Stats {
        self.told(live, Findings::figures)
    }

    fn told(mut self, live: &Live, piece: Piece) -> Stats {
        let mut answering =
            (0..live.workers()).filter(|at| self.workers.get(*at).is_some_and(|one| one.state != LATE)).collect();
        for (position, function) in self.functions.iter().enumerate() {
            let mut findings = told(live, &mut answering, (position, piece), &function.name);
            findings.sort();
            if !findings.is_empty() {
                self.findings.insert(function.name.clone(), Told::from(&findings));
            }
        }
        self
    }

    fn count(&mut self, total: &WorkerCounters, chain: &Chain) {
        self.missing = total.missing();
        self.packets_in = total.packets_in;
        (self.packets_copied, self.packets_out) = (total.packets_copied, total.packets_out);
        (self.bytes_in, self.bytes_out) = (total.bytes_in, total.bytes_out);
        for (_, reason, count) in total.drops.iter() {
            *self.dropped.entry(reason.to_owned()).or_default() += count;
        }
        let is_elsewhere = |name: &str| chain.stages().iter().all(|stage| stage.name() != name);
        for (place, reason, count) in total.drops.iter().filter(|(name, ..)| is_elsewhere(name)) {
            self.dropped_elsewhere.entry(place.to_owned()).or_default().insert(reason.to_owned(), count);
            if chain.has_consumed(place, reason) {
                *self.consumed_elsewhere.entry(place.to_owned()).or_default() += count;
            }
        }
        self.sets = Sets::of(total);
        self.ports = total.ports.iter().enumerate().map(port).collect();
        let &WorkerCounters { commits, aborts, turns, panics, .. } = total;
        self.transactions = Transactions { commits, aborts, turns, panics };
    }

    /// Counts packets that came and that no worker received.
    fn lose_arriving(&mut self, reason: &str, count: u64) {
        self.packets_in += count;
        self.lose("source", reason, count);
    }

    /// Counts packets that workers sent and that no device took.
    fn lose_leaving(&mut self, reason: &str, count: u64) {
        self.packets_out = self.packets_out.saturating_sub(count);
        self.lose("sink", reason, count);
    }

    fn lose(&mut self, place: &str, reason: &str, count: u64) {
        if count > 0 {
            *self.dropped.entry(reason.to_owned()).or_default() += count;
            let place = self.dropped_elsewhere.entry(place.to_owned()).or_default();
            *place.entry(reason.to_owned()).or_default() += count;
        }
    }

    /// Takes in what the devices of the ports count, in the order of the ports.
    pub(in crate::live) fn count_ports(&mut self, devices: &[DeviceCounters]) {
        // Relaxed: counters carry no data.
        let now = |count: &AtomicU64| count.load(Ordering::Relaxed);
        for (port, device) in self.ports.iter_mut().zip(devices) {
            (port.missed, port.unsent) = (now(&device.rx_missed), now(&device.tx_dropped));
            // Workers count what they give to the devices, also what these do not take.
            (port.packets_out, port.bytes_out) = (now(&device.tx_packets), now(&device.tx_bytes));
        }
        if !devices.is_empty() {
            self.bytes_out = devices.iter().map(|device| now(&device.tx_bytes)).sum();
        }
        // A dispatcher's queue is no worker's: of what it missed only the devices tell.
        let missed: u64 = devices.iter().map(|device| now(&device.rx_missed)).sum();
        let known = self.dropped_elsewhere.get("source").and_then(|source| source.get("missed"));
        self.lose_arriving("missed", missed.saturating_sub(known.copied().unwrap_or(0)));
    }

    /// All drops together.
    pub fn dropped_total(&self) -> u64 {
        self.dropped.values().sum()
    }

    /// Those of them that are lost.
    pub fn lost(&self) -> u64 {
        self.dropped_total().saturating_sub(self.consumed)
    }
}

/// Makes a request for one piece of what a function reports, from the first entry and the number of entries.
type Piece = fn(u32, u32) -> Findings;

/// Collects what a function reports, piece by piece. The first of the `answering` workers reads each piece; a worker that does not
/// answer is not asked again. Ends early if no worker is left, or if another function has taken that position.
fn told(live: &Live, answering: &mut Vec<usize>, (position, piece): (usize, Piece), function: &str) -> Findings {
    let (mut all, mut from) = (Findings::default(), Some(0));
    while let Some(worker) = answering.first().copied() {
        let mut next = from;
        let question = move |worker: &mut Worker| {
            let told = worker.tell(position, piece(next?, LOG_PIECE));
            next = told.as_ref().and_then(|(_, told)| told.next());
            Some(told)
        };
        let mut answer = || {
            for portion in live.ask_in_portions(worker, question)? {
                match portion? {
                    Some((name, told)) if name == function => {
                        from = told.next();
                        all.append(told);
                    }
                    _ => {
                        from = None;
                        break;
                    }
                }
            }
            Ok::<(), Unanswered>(())
        };
        match answer() {
            Ok(()) => break,
            Err(_) => drop(answering.remove(0)),
        }
    }
    all
}

fn version() -> String {
    env!("CARGO_PKG_VERSION").to_owned()
}

fn port((port, counters): (usize, &PortCounters)) -> PortStats {
    let &PortCounters { packets_in, bytes_in, packets_out, bytes_out } = counters;
    PortStats { port, packets_in, bytes_in, packets_out, bytes_out, ..PortStats::default() }
}

fn worker((number, seen): (usize, &Result<Seen, Unanswered>)) -> WorkerStats {
    let seen = match seen {
        Ok(seen) => seen,
        Err(_) => return WorkerStats { worker: number, state: LATE.to_owned(), ..WorkerStats::default() },
    };
    let seconds = |cycles: u64, split: &TimeSplit| cycles as f64 / split.cycles_per_ns.max(1e-9) / 1e9;
    let counters = &seen.counters;
    WorkerStats {
        worker: number,
        state: if seen.ended { "ended" } else { "running" }.to_owned(),
        packets: counters.packets_in,
        bytes: counters.bytes_in,
        batches: counters.batches,
        undelivered: seen.received.losses().iter().map(|(_, count)| count).sum(),
        handed_on: seen.received.handed_on,
        packets_out: counters.packets_out,
        dropped: counters.drops.total(),
        sets_live: seen.tables.iter().map(|(live, _)| *live as u64).sum(),
        sets_room: seen.tables.iter().map(|(_, room)| *room as u64).sum(),
        sets_to_move: seen.sets_to_move as u64,
        aborts: counters.aborts,
        cpu_seconds: counters.cpu_ns as f64 / 1e9,
        busy_seconds: seen.split.as_ref().map(|split| seconds(split.busy_cycles(), split)),
        idle_seconds: seen.split.as_ref().map(|split| seconds(split.idle.cycles, split)),
    }
}

fn functions(running: &Running, total: &WorkerCounters, splits: &[&TimeSplit]) -> Vec<Function> {
    let function = |at: usize, stage: &dyn Stage| {
        let drops = total.drops.iter().filter(|(function, ..)| *function == stage.name());
        let dropped: BTreeMap<String, u64> = drops.map(|(_, reason, count)| (reason.to_owned(), count)).collect();
        let times = splits.iter().filter_map(|split| Some((split.stages.get(at)?, split.cycles_per_ns.max(1e-9))));
        let (mut ns, mut packets) = (0.0, 0);
        for (time, per_ns) in times {
            let laps: [&Lap; 4] = [&time.look_up, &time.handlers, &time.commit, &time.retry];
            ns += laps.iter().map(|lap| lap.cycles).sum::<u64>() as f64 / per_ns;
            packets += time.handlers.packets;
        }
        Function {
            name: stage.name().to_owned(),
            kind: stage.kind().to_owned(),
            packets: total.reached.get(at).copied().unwrap_or(0),
            consumed: dropped.iter().filter(|(reason, _)| stage.has_consumed(reason)).map(|(_, count)| count).sum(),
            dropped,
            ns_per_packet: (packets > 0).then(|| ns / packets as f64),
        }
    };
    running.chain.stages().iter().enumerate().map(|(at, stage)| function(at, &**stage)).collect()
}

fn objects(running: &Running) -> Vec<Object> {
    let objects = running.chain.objects().into_iter();
    let object = |object: std::sync::Arc<dyn braid_runtime::nf::state::StateObject>| Object {
        name: object.name().to_owned(),
        kind: object.kind().to_owned(),
        len: object.len(),
        capacity: object.capacity(),
        bytes: object.memory_bytes(),
    };
    objects.map(object).collect()
}

fn aborts(running: &Running, total: &WorkerCounters) -> Vec<Abort> {
    let abort = |row: &AbortRow| {
        let info = row.object.map(|object| running.domain.info(object));
        let kind = info.as_ref().map_or("", |info| info.kind);
        let cause = cause_of(kind, row.kind, row.part, row.mine, row.theirs);
        let named = |op| operation(kind, op).unwrap_or("commit");
        let unexplained = if info.is_some() { WAS_COMMITTED } else { HAD_ITS_TURN };
        Abort {
            line: format!("{}:{}", row.location.file(), row.location.line()),
            operations: format!("{} after {}", named(row.mine), named(row.theirs)),
            why: cause.map_or(unexplained, |cause| cause.why).to_owned(),
            recipe: cause.map_or("", |cause| cause.recipe).to_owned(),
            object: info.map_or(String::new(), |info| info.name),
            count: row.count,
        }
    };
    let mut aborts: Vec<Abort> = total.aborted.rows.iter().map(abort).collect();
    aborts.sort_by_key(|abort| std::cmp::Reverse(abort.count));
    aborts.truncate(ROWS_MAX);
    aborts
}

fn top_sets(splits: &[&TimeSplit]) -> Vec<TopSet> {
    let sampled = splits.iter().map(|split| split.sampled).sum::<u64>().max(1) as f64;
    let sets = splits.iter().flat_map(|split| &split.sets);
    let top = |(key, count): &(_, u64)| TopSet { key: ToString::to_string(key), share: *count as f64 / sampled };
    let mut sets: Vec<TopSet> = sets.map(|set: &(braid_runtime::nf::packet::key::SetKey, u64)| top(set)).collect();
    sets.sort_by(|a, b| b.share.total_cmp(&a.share));
    sets.truncate(ROWS_MAX);
    sets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_devices_lose_is_counted_while_the_run_goes_on() {
        let gave = PortStats { packets_out: 5, bytes_out: 500, ..PortStats::default() };
        let mut stats =
            Stats { packets_in: 10, packets_out: 10, bytes_out: 1000, ports: vec![gave; 2], ..Stats::default() };
        stats.lose_arriving("missed", 3);
        stats.lose_leaving("device_full", 2);
        stats.lose_leaving("frame_too_long", 0);
        // A dispatcher has missed two more, which no worker's queue knows of.
        let devices = [DeviceCounters::default(), DeviceCounters::default()];
        devices[0].rx_missed.store(5, Ordering::Relaxed);
        devices[1].tx_dropped.store(2, Ordering::Relaxed);
        for (device, packets) in devices.iter().zip([5, 3]) {
            device.tx_packets.store(packets, Ordering::Relaxed);
            device.tx_bytes.store(100 * packets, Ordering::Relaxed);
        }
        stats.count_ports(&devices);
        assert_eq!((stats.packets_in, stats.packets_out), (15, 8));
        assert_eq!(stats.packets_in, stats.packets_out + stats.dropped_total());
        let sent = stats.ports.iter().map(|port| (port.packets_out, port.bytes_out));
        assert_eq!((sent.collect::<Vec<_>>(), stats.bytes_out), (vec![(5, 500), (3, 300)], 800));
        assert_eq!(stats.dropped_elsewhere["source"]["missed"], 5);
        assert_eq!(stats.dropped_elsewhere["sink"], [("device_full".to_owned(), 2)].into());
        assert_eq!(stats.ports.iter().map(|port| (port.missed, port.unsent)).collect::<Vec<_>>(), [(5, 0), (0, 2)]);
    }
}

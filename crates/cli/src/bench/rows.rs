//! One measurement of a chain: what is varied, how it is run, what is recorded.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use braid_control::plan::file::{PlanFile, SetFile, unplaced};
use braid_control::report::grouped;
use braid_control::runtime::io::NullSink;
use braid_control::runtime::{Chain, Control, launch};
use braid_control::{Carry, Catalog, Compiled, Plan, Problem, RunReport};
use serde::Serialize;

use super::bare;
use super::meter::{Metered, Reading, Warm};
use super::renewal::{forget_soon, remembered, silent_s};
use super::stop::{Stop, unless};
use super::traffic::{Trace, Traffic, configure, replay};
use crate::failure::Failure;

/// Additional seconds for flows to be actually forgotten.
const SETTLE_S: u64 = 2;

/// Parameters of one measurement.
#[derive(Clone, Debug)]
pub struct Trial<'a> {
    /// Name of the chain.
    pub chain: &'a str,
    /// The plan.
    pub file: &'a PlanFile,
    /// Whether the plan is the user's own and must not be modified.
    pub is_own: bool,
    /// The order in which flows send.
    pub trace: Trace,
    /// Number of simultaneous flows.
    pub flows: u64,
    /// Number of workers.
    pub workers: i64,
    /// `hardware` or `software`.
    pub distribution: &'static str,
    /// What is left out or changed, in words; usually empty.
    pub variant: &'static str,
    /// Nanoseconds by which the clock advances with each batch; `None` for the machine's time.
    pub step_ns: Option<u64>,
    /// Whether to begin measuring before flows are forgotten as fast as they begin.
    pub is_quick: bool,
    /// Whether it is to end early, and come to nothing.
    pub stop: &'a Stop,
}

/// One measurement.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Row {
    pub(crate) chain: String,
    pub(crate) variant: &'static str,
    pub(crate) trace: &'static str,
    pub(crate) flows: u64,
    pub(crate) workers: usize,
    pub(crate) distribution: &'static str,
    pub(crate) batch: usize,
    /// Whether each frame is copied from the ring into a buffer, like a card's DMA transfer; always true so far.
    pub(crate) receive_copy: bool,
    /// Million packets per second of all workers: by processor time with hardware distribution, else by wall-clock time.
    pub(crate) mpps: f64,
    /// Nanoseconds per packet and worker, on the same clock.
    pub(crate) ns_per_packet: f64,
    /// The rate by wall-clock time, including the influence of other load on the machine.
    pub(crate) mpps_wall: f64,
    pub(crate) packets: u64,
    /// Packet sets of all groups that were live at the end: what the tables held.
    pub(crate) sets: u64,
    /// Packet sets that became live, that expired (including evicted ones), that were evicted, and that were refused by a full table.
    pub(crate) created: u64,
    pub(crate) expired: u64,
    pub(crate) evicted: u64,
    pub(crate) refused: u64,
    /// Packets that functions dropped, and all packets that did not leave.
    pub(crate) dropped: u64,
    pub(crate) lost: u64,
    /// Drops by function and reason, from the first packet on.
    pub(crate) dropped_by_nf: BTreeMap<String, BTreeMap<String, u64>>,
    pub(crate) pages: String,
}

impl Trial<'_> {
    /// Prepares its traffic, of which `packets` packets for each worker will be measured, and its compiled plan.
    pub fn prepare(&self, catalog: &Catalog, packets: u64) -> Result<(Traffic, Compiled), Failure> {
        let traffic = replay(self.chain, self.flows, self.trace, packets * self.workers.max(1) as u64)?;
        let compiled = self.plan(catalog).and_then(|plan| plan.compile(Carry::Nothing));
        let compiled = compiled.map_err(|problem| Failure::of_plan(problem, None))?;
        // Making traffic takes its time.
        unless(self.stop)?;
        Ok((traffic, compiled))
    }

    /// Its validated plan.
    pub fn plan(&self, catalog: &Catalog) -> Result<Plan, Problem> {
        let mut file = self.file.clone();
        let comes_and_goes = self.trace.churn().is_some();
        let most = if comes_and_goes { remembered(self.flows) } else { self.flows * 2 };
        if !self.is_own {
            configure(&mut file, self.chain, most);
            if comes_and_goes {
                forget_soon(&mut file, self.flows);
            }
        }
        file.workers = Some(unplaced(self.workers));
        file.distribution = Some(unplaced(self.distribution.to_owned()));
        file.time = Some(unplaced("live".to_owned()));
        file.sets.get_or_insert(unplaced(if comes_and_goes { most } else { self.flows * 3 / 2 } as i64));
        Plan::new(&file, catalog)
    }

    /// Time until flows are forgotten as fast as they begin.
    fn settling(&self) -> Duration {
        let waits = self.trace.churn().is_some() && self.step_ns.is_none() && !self.is_quick;
        Duration::from_secs(if waits { silent_s(self.flows) + SETTLE_S } else { 0 })
    }

    /// Measures `packets` packets on each worker.
    pub(crate) fn measure(&self, catalog: &Catalog, packets: u64) -> Result<Row, Failure> {
        let (traffic, compiled) = self.prepare(catalog, packets)?;
        let warm = Warm { passes: traffic.warm_passes, time: self.settling() };
        let (source, readings) = Metered::new(traffic.source, warm, packets);
        let control = Control { step_ns: self.step_ns, stop: Arc::clone(self.stop), ..Control::default() };
        let report = launch(&compiled.run, Box::new(source), Box::new(NullSink), &control)?;
        unless(self.stop)?;
        let report = RunReport::new(Vec::new(), &report);
        let readings = readings.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ok(self.row(&compiled, &readings, &report))
    }

    fn row(&self, compiled: &Compiled, readings: &[Reading], report: &RunReport) -> Row {
        let Rate { packets, by_cpu, by_wall: mpps_wall, cpu_ns } = Rate::of(readings);
        let (mpps, ns_per_packet) = match self.distribution {
            "hardware" => (by_cpu, cpu_ns),
            _ => (mpps_wall, 1e3 / mpps_wall),
        };
        // Copies by flooding do not count as output: every received packet must leave.
        let lost = report.packets_in.saturating_sub(report.packets_out - report.packets_copied.min(report.packets_out));
        Row {
            chain: self.chain.to_owned(),
            variant: self.variant,
            trace: self.trace.name(),
            flows: self.flows,
            workers: compiled.run.workers,
            distribution: self.distribution,
            batch: compiled.run.batch,
            receive_copy: true,
            mpps,
            ns_per_packet,
            mpps_wall,
            packets,
            sets: report.sets.live,
            created: report.sets.created,
            expired: report.sets.expired,
            evicted: report.sets.evicted,
            refused: report.sets.refused,
            dropped: report.dropped_total(),
            lost,
            dropped_by_nf: report.dropped_by_nf.clone(),
            pages: report.pages.clone(),
        }
    }
}

/// The combined readings of several threads.
struct Rate {
    packets: u64,
    /// Million packets per second of all threads, by processor time and by wall-clock time.
    by_cpu: f64,
    by_wall: f64,
    /// Processor time per packet, in nanoseconds.
    cpu_ns: f64,
}

impl Rate {
    fn of(readings: &[Reading]) -> Rate {
        let rate = |packets: u64, time: Duration| packets as f64 / time.as_secs_f64().max(1e-9) / 1e6;
        let packets: u64 = readings.iter().map(|reading| reading.packets).sum();
        let cpu: f64 = readings.iter().map(|reading| reading.cpu.as_secs_f64()).sum();
        Rate {
            packets,
            by_cpu: readings.iter().map(|reading| rate(reading.packets, reading.cpu)).sum(),
            by_wall: readings.iter().map(|reading| rate(reading.packets, reading.wall)).sum(),
            cpu_ns: cpu * 1e9 / packets.max(1) as f64,
        }
    }
}

impl Row {
    /// Measures what the machine can do at all with this number of flows ([`bare`]) and threads.
    pub(crate) fn bare(flows: u64, workers: usize, packets: u64) -> Result<Row, Failure> {
        let (readings, pages) = bare::measure(flows, workers, packets)?;
        let Rate { packets, by_cpu: mpps, by_wall: mpps_wall, cpu_ns: ns_per_packet } = Rate::of(&readings);
        Ok(Row {
            chain: bare::NAME.to_owned(),
            trace: Trace::Uniform.name(),
            flows,
            workers,
            distribution: "hardware",
            batch: bare::BATCH,
            receive_copy: true,
            mpps,
            ns_per_packet,
            mpps_wall,
            packets,
            pages: pages.to_string(),
            ..Row::default()
        })
    }

    /// Heading of the table.
    pub(crate) const HEAD: &str = "chain                                    trace       flows  workers  distribution    Mpps  ns/packet  Mpps by the wall       sets   expired   evicted   refused  lost\n";

    /// The row as a line of the table, followed by the reasons for drops, if any.
    pub(crate) fn line(&self) -> String {
        let Row { chain, trace, workers, distribution, mpps, ns_per_packet, mpps_wall, .. } = self;
        let Row { flows, sets, expired, evicted, refused, lost, .. } = self;
        let [flows, sets, expired, evicted, refused] =
            [flows, sets, expired, evicted, refused].map(|number| grouped(*number));
        let variant = if self.variant.is_empty() { String::new() } else { format!("  {}\n", self.variant) };
        format!(
            "{variant}{chain:<40} {trace:<7} {flows:>9} {workers:>8}  {distribution:<12} {mpps:>7.2} {ns_per_packet:>10.1} {mpps_wall:>17.2} {sets:>10} {expired:>9} {evicted:>9} {refused:>9} {lost:>5}\n{}",
            self.reasons()
        )
    }

    /// One line for each reason for which a function dropped packets.
    fn reasons(&self) -> String {
        let of = |(function, reasons): (&String, &BTreeMap<String, u64>)| -> String {
            let line =
                |(reason, count): (&String, &u64)| format!("  dropped by {function}: {reason} {}\n", grouped(*count));
            reasons.iter().map(line).collect()
        };
        self.dropped_by_nf.iter().map(of).collect()
    }
}

/// A step of the ablation for functions with a common packet set.
struct Step {
    name: &'static str,
    batch: i64,
    /// Whether functions with the same packet set share a record.
    is_shared: bool,
    pages: &'static str,
}

/// How a worker finds sets that workers share: one by one, in batches, and with an index of their positions (FAJITA's auxiliary table).
const SHARED_STEPS: [(&str, i64, &str); 4] = [
    ("packet by packet, shared sets looked up", 1, "looked_up"),
    ("batches of 256, shared sets looked up", 256, "looked_up"),
    ("packet by packet, shared sets indexed", 1, "indexed"),
    ("batches of 256, shared sets indexed", 256, "indexed"),
];

/// The techniques that FAJITA adds one after another, and the effect of the page size.
const STEPS: [Step; 7] = [
    Step { name: "packet by packet, a look-up for each function", batch: 1, is_shared: false, pages: "prefer" },
    Step { name: "batches of 32, a look-up for each function", batch: 32, is_shared: false, pages: "prefer" },
    Step { name: "batches of 256, a look-up for each function", batch: 256, is_shared: false, pages: "prefer" },
    Step { name: "packet by packet, one record for all functions", batch: 1, is_shared: true, pages: "prefer" },
    Step { name: "batches of 32, one record for all functions", batch: 32, is_shared: true, pages: "prefer" },
    Step { name: "batches of 256, one record for all functions", batch: 256, is_shared: true, pages: "prefer" },
    Step { name: "the same on small pages", batch: 256, is_shared: true, pages: "never" },
];

/// The plans of the ablation of a chain, each with a description of what it leaves out. The steps depend on
/// whether the functions have one packet set or several.
pub fn ablation(file: &PlanFile, catalog: &Catalog) -> Result<Vec<(&'static str, PlanFile)>, Failure> {
    let chain = probe(file, catalog)?;
    if chain.groups().len() > 1 {
        let step = |(name, batch, shared_sets): (&'static str, i64, &str)| {
            let mut file = file.clone();
            file.batch = Some(unplaced(batch));
            file.chain.shared_sets = Some(unplaced(shared_sets.to_owned()));
            (name, file)
        };
        return Ok(SHARED_STEPS.map(step).into());
    }
    let step = |step: &Step| {
        let mut file = if step.is_shared { file.clone() } else { apart(file, &chain) };
        file.batch = Some(unplaced(step.batch));
        file.pages = Some(unplaced(step.pages.to_owned()));
        (step.name, file)
    };
    Ok(STEPS.iter().map(step).collect())
}

/// First of a range of IP protocol numbers that no packet has (IANA: unassigned). Each function gets its
/// own, so that equal packet sets have different definitions.
const NOBODYS_PROTOCOL: i64 = 150;
const UDP: i64 = 17;

/// Builds the functions as a plan does.
fn probe(file: &PlanFile, catalog: &Catalog) -> Result<Chain, Failure> {
    let mut usable = file.clone();
    configure(&mut usable, "", 2_000);
    let chain = Plan::new(&usable, catalog).and_then(|plan| plan.probe(Carry::Nothing));
    chain.map_err(|problem| Failure::of_plan(problem, None))
}

/// The same chain with definitions that prevent functions from sharing a record.
fn apart(file: &PlanFile, chain: &Chain) -> PlanFile {
    let mut file = file.clone();
    for (at, (nf, stage)) in file.nf.iter_mut().zip(chain.stages()).enumerate() {
        let Some(set) = stage.packet_set() else { continue };
        nf.packet_set = Some(SetFile {
            fields: unplaced(set.fields.iter().map(|field| unplaced(field.name().to_owned())).collect()),
            symmetric: set.symmetric,
            protocols: Some([UDP, NOBODYS_PROTOCOL + at as i64].map(unplaced).into()),
        });
    }
    file
}

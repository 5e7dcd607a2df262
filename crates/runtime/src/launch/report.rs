//! The end of a run: adds up what the workers counted, found and left behind.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use braid_io::capture::Damage;
use braid_io::{RxCounters, SinkError, TxCounters};
use braid_memory::Backing;
use braid_nf::state::Domain;
use braid_nf::{Emitted, Findings, SetTables, Stage};
use braid_packet::Pool;
use braid_state::Tx;
use braid_stm::{ObjectId, ObjectInfo, Part};

use super::run_once;
use crate::attempt::{Witness, run_event};
use crate::chain::Chain;
use crate::dispatch::Dispatched;
use crate::observe::aborts::Aborts;
use crate::observe::counters::WorkerCounters;
use crate::observe::probe::{Probe, TimeSplit};
use crate::observe::record::{Recorder, WorkerLog};
use crate::plan::Plan;
use crate::replay::{SetContent, content};
use crate::worker::Ended;

/// The results of a run.
#[derive(Debug)]
pub struct Report {
    /// Counters by worker.
    pub workers: Vec<WorkerCounters>,
    /// The sum of all workers' counters.
    pub total: WorkerCounters,
    /// How many of the dropped packets are not lost: functions answered them, or sent them on later or in another way.
    pub consumed: u64,
    /// Time from the first worker's start to the last one's end; virtual time in a model.
    pub elapsed: Duration,
    /// How each worker's time was spent, if the run was profiled.
    pub splits: Vec<TimeSplit>,
    /// Name and kind of each state object, by number.
    pub objects: Vec<ObjectInfo>,
    /// Cache lines that moved between the workers of a model.
    pub transfers: u64,
    /// Frames that the source could not deliver, by reason.
    pub undelivered: Vec<(&'static str, u64)>,
    /// Packets that the sink could not send, by reason; the workers count them as sent.
    pub unsent: Vec<(&'static str, u64)>,
    /// Bytes of the packets that the sink has taken. Those that it could not send count as sent with the workers.
    pub sent_bytes: u64,
    /// What the dispatcher did, if there was one.
    pub dispatched: Option<Dispatched>,
    /// Damage found in the source.
    pub damages: Vec<Damage>,
    /// Errors of the sink.
    pub lost: Vec<SinkError>,
    /// A worker was told to end before its packets ended.
    pub was_stopped: bool,
    /// The pages that back the buffers.
    pub backing: Backing,
    /// Packet sets of an earlier run for which this run had no room, and which ended.
    pub sets_left_out: u64,
    /// Bytes of tables and state objects.
    pub memory_bytes: usize,
    /// Descriptions of the elements with the most conflicts, where their objects can describe them.
    pub elements: HashMap<(ObjectId, Part, u32), String>,
    /// The findings of each function with its name, in chain order; functions without findings are left out.
    pub findings: Vec<(String, Findings)>,
    /// The final objects and sets and, if recorded, everything that happened.
    pub record: Option<Record>,
}

/// The results of a recorded run.
#[derive(Debug)]
pub struct Record {
    /// What each worker did.
    pub logs: Vec<WorkerLog>,
    /// Name and content of each state object.
    pub objects: Vec<(String, Vec<u8>)>,
    /// Packet sets of all workers, by group; keys that two workers hold are listed in `twice`.
    pub sets: Vec<SetContent>,
    /// Keys that more than one worker held: steering broke its promise.
    pub twice: Vec<String>,
}

/// What remains when the last worker has ended.
pub(super) struct Remains<'a> {
    pub(super) plan: &'a Plan,
    pub(super) domain: &'a Arc<Domain>,
    pub(super) chain: &'a Chain,
    pub(super) pool: &'a Arc<Pool>,
    pub(super) ended: Vec<Ended>,
    pub(super) dispatched: Option<Dispatched>,
    pub(super) elapsed: Duration,
    pub(super) is_recorded: bool,
}

impl Remains<'_> {
    /// Adds everything up and runs the stop handlers.
    pub(super) fn report(self) -> Report {
        let Remains { plan, domain, chain, pool, ended, dispatched, elapsed, is_recorded } = self;
        let latest = ended.iter().map(|worker| worker.last_ns).max().unwrap_or(0);
        let mut report = Report {
            workers: ended.iter().map(|worker| worker.counters.clone()).collect(),
            total: WorkerCounters::default(),
            consumed: 0,
            elapsed,
            splits: Vec::new(),
            objects: domain.objects().into_iter().map(|(_, info)| info).collect(),
            transfers: 0,
            undelivered: Vec::new(),
            unsent: Vec::new(),
            sent_bytes: 0,
            dispatched,
            damages: Vec::new(),
            lost: Vec::new(),
            was_stopped: ended.iter().any(|worker| worker.was_closed),
            backing: pool.backing(),
            sets_left_out: 0,
            memory_bytes: chain.objects().iter().map(|object| object.memory_bytes()).sum(),
            elements: HashMap::new(),
            findings: Vec::new(),
            record: is_recorded.then(|| Record::of_objects(chain)),
        };
        // The dispatcher, if there is one, has the source's queue; otherwise the workers have the queues.
        let received = report.dispatched.iter().map(|dispatched| dispatched.received);
        let mut wires = Wires { received: received.collect(), sent: TxCounters::default() };
        let mut findings = vec![Findings::default(); chain.stages().len()];
        for mut worker in ended {
            findings_of_sets(chain, &mut worker.tables, &mut findings);
            report.take_in(chain, worker, &mut wires);
        }
        report.consumed = chain.consumed(&report.total.drops);
        (report.undelivered, report.unsent) = wires.losses();
        report.sent_bytes = wires.sent.bytes;
        report.elements = elements(chain, &report.total.aborted);
        let mut tx = Tx::new(domain, 0);
        run_once(chain, &mut tx, plan.ports, latest, |stage, event| stage.stop(event));
        report.findings = findings_of_objects(chain, &mut tx, plan.ports, latest, findings);
        report
    }
}

/// Counters of the receive and transmit queues.
struct Wires {
    received: Vec<RxCounters>,
    sent: TxCounters,
}

/// Numbers of packets by reason.
type Losses = Vec<(&'static str, u64)>;

impl Wires {
    /// The packets that could not be delivered, and those that could not be sent.
    fn losses(&self) -> (Losses, Losses) {
        let mut undelivered = RxCounters::default().losses();
        for queue in &self.received {
            undelivered.iter_mut().zip(queue.losses()).for_each(|((_, sum), (_, count))| *sum += count);
        }
        let some = |losses: &[(&'static str, u64)]| losses.iter().copied().filter(|&(_, count)| count > 0).collect();
        (some(&undelivered), some(&self.sent.losses()))
    }
}

impl Report {
    fn take_in(&mut self, chain: &Chain, mut worker: Ended, wires: &mut Wires) {
        self.total.merge(&worker.counters);
        self.damages.append(&mut worker.damages);
        wires.received.push(worker.received);
        match worker.sent {
            Ok(counters) => {
                wires.sent.device_full += counters.device_full;
                wires.sent.too_long += counters.too_long;
                wires.sent.bytes += counters.bytes;
            }
            Err(error) => self.lost.push(error),
        }
        if let Probe::Split(mut split) = worker.probe {
            split.end();
            self.splits.push(*split);
        }
        self.memory_bytes += worker.tables.iter().map(|tables| tables.memory_bytes()).sum::<usize>();
        if let Some(record) = &mut self.record {
            record.take_in(chain, &mut worker.tables, worker.witness);
        }
    }
}

impl Record {
    fn of_objects(chain: &Chain) -> Record {
        let mut sets = Vec::new();
        sets.resize_with(chain.groups().len(), SetContent::new);
        Record { logs: Vec::new(), objects: snapshots(chain), sets, twice: Vec::new() }
    }

    fn take_in(&mut self, chain: &Chain, tables: &mut [SetTables], witness: Box<dyn Witness>) {
        let local = |(group, _): &(usize, _)| !chain.groups()[*group].shared;
        for (group, tables) in tables.iter_mut().enumerate().filter(local) {
            for (key, entry) in content(chain, group, tables) {
                if self.sets[group].insert(key, entry).is_some() {
                    self.twice.push(key.to_string());
                }
            }
        }
        if let Ok(recorder) = witness.into_any().downcast::<Recorder>() {
            self.logs.push(recorder.into_log());
        }
    }
}

/// Descriptions of the elements that the aborts name, as their objects give them.
fn elements(chain: &Chain, aborts: &Aborts) -> HashMap<(ObjectId, Part, u32), String> {
    let objects = chain.objects();
    let mut shown = HashMap::new();
    for row in &aborts.rows {
        let Some(object) = objects.iter().find(|object| Some(object.id()) == row.object) else { continue };
        for (index, _) in row.hot.iter() {
            if let Some(text) = object.element(row.part, index) {
                shown.insert((object.id(), row.part, index), text);
            }
        }
    }
    shown
}

/// Adds the findings of a worker's live sets; sets that workers share are reported with the state objects.
pub fn findings_of_sets(chain: &Chain, tables: &mut [SetTables], findings: &mut [Findings]) {
    for (position, (stage, into)) in chain.stages().iter().zip(findings).enumerate() {
        if let Some(tables) = chain.group_of(position).and_then(|group| tables.get_mut(group)) {
            stage.report_sets(tables, into);
        }
    }
}

/// Adds the findings of the state objects, and returns those of functions that have any, by name.
pub fn findings_of_objects(
    chain: &Chain,
    tx: &mut Tx,
    ports: u16,
    now_ns: u64,
    mut findings: Vec<Findings>,
) -> Vec<(String, Findings)> {
    for (stage, findings) in chain.stages().iter().zip(&mut findings) {
        findings_of_stage(&**stage, tx, ports, now_ns, findings);
    }
    let names = chain.stages().iter().map(|stage| stage.name().to_owned());
    let mut told: Vec<_> = names.zip(findings).filter(|(_, findings)| !findings.is_empty()).collect();
    told.iter_mut().for_each(|(_, findings)| findings.sort());
    told
}

/// Adds the findings of the state objects of one function.
pub fn findings_of_stage(stage: &dyn Stage, tx: &mut Tx, ports: u16, now_ns: u64, findings: &mut Findings) {
    let (mut emitted, mut counters) = (Emitted::default(), WorkerCounters::default());
    run_event(tx, &mut emitted, ports, now_ns, &mut counters, |event| {
        let mut more = findings.clone();
        stage.report(event, &mut more)?;
        *findings = more;
        Ok(())
    });
}

/// Name and content of every state object.
pub fn snapshots(chain: &Chain) -> Vec<(String, Vec<u8>)> {
    chain.objects().iter().map(|object| (object.name().to_owned(), object.snapshot())).collect()
}

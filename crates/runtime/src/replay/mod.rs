//! Replays recorded transactions on one worker, in commit order.
//!
//! There is one worker, one set of tables and fresh state objects: what a single core would have had. Every difference from the recorded run
//! is a violation of sequential equivalence (or a bug in the recorder).

use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use braid_nf::packet::key::{Keys, SetKey};
use braid_nf::{Emitted, Found, Logs, Pass, PassSets, Prefetched, Round, SetSlot, SetTables, Tick, Verdict, Verdicts};
use braid_packet::{Batch, Buffers, Lineup, Pool, PoolConfig, Port};
use braid_state::Tx;

mod named;
mod whole;

use self::named::Named;
use crate::attempt::{End, run_event};
use crate::chain::Chain;
use crate::expiry::end_shared;
use crate::observe::counters::WorkerCounters;
use crate::observe::record::{Deed, Entry, Output, RecordedBatch, WorkerLog, made, outputs};
use crate::observe::watchdog::{Pulse, Watchdog, watch};

/// The content of one group's tables: key → (live mask, states).
pub type SetContent = BTreeMap<SetKey, (u16, Vec<u8>)>;

/// A difference between the replay and the run.
#[derive(Clone, Debug)]
pub enum Difference {
    /// A packet's result differs.
    Packet {
        /// Place in the commit order of the last transaction that handled it.
        sequence: u64,
        /// The worker that handled it.
        worker: usize,
        /// The function that handled it last.
        function: String,
        /// The packet's number in its source.
        packet: u64,
        /// Its bytes as received.
        input: Vec<u8>,
        /// The result in the parallel run.
        parallel: Output,
        /// The result on one worker.
        sequential: Output,
    },
    /// An expiry or a tick made different packets.
    Made {
        /// Place in the commit order.
        sequence: u64,
        /// The worker on which it happened.
        worker: usize,
        /// The function.
        function: String,
        /// The packets made in the parallel run.
        parallel: Vec<(Port, Vec<u8>)>,
        /// The packets made on one worker.
        sequential: Vec<(Port, Vec<u8>)>,
    },
    /// A choice that no sequential order allows.
    Choice {
        /// Place in the commit order.
        sequence: u64,
        /// The function.
        function: String,
        /// What was chosen, and why it is impossible.
        violation: String,
    },
    /// A handler met a conflict although it ran alone, or panicked.
    Refused {
        /// Place in the commit order.
        sequence: u64,
        /// The function.
        function: String,
    },
    /// A function changes a header field of packet-set keys without declaring it ([`rewrites`](braid_nf::NetworkFunction::rewrites)).
    Unnamed {
        /// The function; in a chain that is one transaction, all functions that the packet met.
        function: String,
        /// The field.
        field: &'static str,
        /// The packet's number in its source.
        packet: u64,
    },
    /// The final content of a state object differs.
    Object {
        /// The object's name.
        name: String,
        /// Position of the first byte that differs in the snapshots.
        at: usize,
        /// Size of the snapshot of the parallel run.
        parallel_bytes: usize,
        /// Size of the snapshot of the replay.
        sequential_bytes: usize,
    },
    /// The final packet sets of a group differ.
    Sets {
        /// The group's packet set.
        set: String,
        /// A key that differs.
        key: String,
        /// Live mask and state in the parallel run; `None` if the set is absent.
        parallel: Option<(u16, Vec<u8>)>,
        /// Live mask and state in the replay; `None` if the set is absent.
        sequential: Option<(u16, Vec<u8>)>,
    },
}

/// A batch that some transactions have yet to handle.
struct OpenBatch {
    batch: Batch,
    verdicts: Box<Verdicts>,
    now_ns: Box<[u64; 256]>,
    groups: Vec<OpenGroup>,
    logs: Logs,
    left: usize,
    last: (u64, usize),
}

struct OpenGroup {
    keys: Box<Keys>,
    found: Box<Found>,
    keyed: Box<[bool; 256]>,
}

/// One worker that repeats what many workers did.
pub struct Replay {
    chain: Arc<Chain>,
    tx: Tx,
    tables: Vec<SetTables>,
    pool: Arc<Pool>,
    buffers: Buffers,
    ports: u16,
    open: HashMap<(usize, usize), OpenBatch>,
    differences: Vec<Difference>,
    violations: usize,
    named: Named,
    pulse: Arc<Pulse>,
}

impl Replay {
    /// Creates a sequential worker with fresh state; `tx` must be replaying, and `sets` is the capacity of all workers' tables together.
    pub fn new(
        chain: Arc<Chain>,
        tx: Tx,
        sets: usize,
        ports: u16,
        buffers: u32,
    ) -> Result<Replay, braid_memory::Error> {
        let pages = braid_memory::HugePages::Never;
        let pool = Pool::new(&PoolConfig { buffers, jumbos: 4096, pages })?;
        let tables =
            chain.groups().iter().map(|group| SetTables::new(sets, group.state_bytes, group.extractor.shape(), pages));
        Ok(Replay {
            tables: tables.collect::<Result<_, _>>()?,
            buffers: Buffers::new(&pool),
            pool,
            named: Named::new(&chain),
            chain,
            tx,
            ports,
            open: HashMap::new(),
            differences: Vec::new(),
            violations: 0,
            pulse: Arc::default(),
        })
    }

    /// Like [`run`](Self::run), with a watchdog that checks whether handlers return.
    pub fn run_watched(self, logs: &[WorkerLog], watchdog: &Watchdog) -> (Vec<Difference>, Vec<SetContent>) {
        let (chain, pulses, done) = (Arc::clone(&self.chain), [Arc::clone(&self.pulse)], AtomicBool::new(false));
        std::thread::scope(|scope| {
            let watching = scope.spawn(|| watch(watchdog, || Arc::clone(&chain), &pulses, None, &done));
            let found = catch_unwind(AssertUnwindSafe(|| self.run(logs)));
            done.store(true, Ordering::Relaxed);
            watching.thread().unpark();
            found.unwrap_or_else(|panic| resume_unwind(panic))
        })
    }

    /// Replays all logs in commit order; returns the differences found on the way, and the final packet sets by group.
    pub fn run(mut self, logs: &[WorkerLog]) -> (Vec<Difference>, Vec<SetContent>) {
        let mut entries: Vec<&Entry> = logs.iter().flat_map(|log| &log.entries).collect();
        entries.sort_by_key(|entry| entry.sequence);
        let mut left: HashMap<(usize, usize), usize> = HashMap::new();
        for entry in &entries {
            if let Some(batch) = entry.deed.batch() {
                *left.entry((entry.worker, batch)).or_default() += 1;
            }
        }
        for entry in entries {
            self.tx.set_worker(entry.worker);
            self.tx.replay(entry.sequence, entry.choices.clone());
            self.pulse.enter(entry.deed.stage());
            match &entry.deed {
                Deed::Handled { batch, stage, packets, now_ns } => {
                    let id = (entry.worker, *batch);
                    let recorded = &logs[entry.worker].batches[*batch];
                    self.handle(entry, id, *stage, packets, now_ns, left[&id], recorded);
                }
                Deed::Through { batch, packet, direction, now_ns } => {
                    let id = (entry.worker, *batch);
                    let recorded = &logs[entry.worker].batches[*batch];
                    self.go_through(entry, id, (*packet, *direction), *now_ns, left[&id], recorded);
                }
                Deed::Expired { stage, keys, end, now_ns } => self.expire(entry, *stage, (keys, *end), *now_ns),
                Deed::Ticked { stage, tick, now_ns } => self.tick(entry, *stage, *tick, *now_ns),
            }
            self.pulse.leave();
            self.check_choices(entry);
        }
        let tables = self.tables.iter_mut().enumerate();
        let content = tables.map(|(group, tables)| content(&self.chain, group, tables)).collect();
        (self.with_unnamed(), content)
    }

    fn function(&self, stage: usize) -> String {
        self.chain.stages()[stage].name().to_owned()
    }

    fn check_choices(&mut self, entry: &Entry) {
        let function = self.function(entry.deed.stage());
        for violation in &self.tx.violations()[self.violations..] {
            let (sequence, violation) = (entry.sequence, violation.to_string());
            self.differences.push(Difference::Choice { sequence, function: function.clone(), violation });
        }
        self.violations = self.tx.violations().len();
    }

    /// Takes an open batch, or opens it with `left` transactions to be done.
    fn take(&mut self, id: (usize, usize), recorded: &RecordedBatch, left: usize) -> OpenBatch {
        match self.open.remove(&id) {
            Some(open) => open,
            None => self.open_batch(recorded, left),
        }
    }

    fn open_batch(&mut self, recorded: &RecordedBatch, left: usize) -> OpenBatch {
        let layout = Arc::new(self.chain.layout().clone());
        let mut batch = Batch::new(&self.pool, &layout);
        let mut verdicts = Box::<Verdicts>::default();
        for (i, input) in recorded.inputs.iter().enumerate() {
            let copied = batch.copy_in(&mut self.buffers, &input.bytes, &input.info);
            assert!(copied, "the replay's pool holds all packets of the run");
            verdicts.set(i, input.expected);
        }
        batch.parse_all();
        let group =
            |_: &SetTables| OpenGroup { keys: Keys::boxed(), found: Found::boxed(), keyed: Box::new([false; 256]) };
        let groups = self.tables.iter().map(group).collect();
        OpenBatch { batch, verdicts, now_ns: Box::new([0; 256]), groups, logs: Logs::default(), left, last: (0, 0) }
    }

    #[allow(clippy::too_many_arguments)]
    fn handle(
        &mut self,
        entry: &Entry,
        id: (usize, usize),
        stage: usize,
        packets: &[u16],
        now_ns: &[u64],
        left: usize,
        recorded: &RecordedBatch,
    ) {
        let mut open = self.take(id, recorded, left);
        for (&i, &now) in packets.iter().zip(now_ns) {
            open.now_ns[i as usize] = now;
        }
        let chain = Arc::clone(&self.chain);
        // Answers on their way back belong to no set.
        let group = chain.group_of(stage).filter(|_| !recorded.goes_back);
        if let Some(group) = group {
            // Once per packet, as the first function of the group that it meets sees it: the same as in the run.
            let (state, extractor) = (&mut open.groups[group], &chain.groups()[group].extractor);
            for &i in packets {
                if !std::mem::replace(&mut state.keyed[i as usize], true) {
                    extractor.extract_at(&open.batch, i as usize, &mut state.keys);
                }
            }
        }
        if !recorded.goes_back {
            self.named.look(&chain, &open.batch, packets);
        }
        open.logs.emitted.begin(stage, if recorded.goes_back { Round::Onward } else { chain.round(stage) });
        let mut pass = Pass {
            tx: &mut self.tx,
            batch: &mut open.batch,
            sets: group.map(|group| {
                let state = &mut open.groups[group];
                PassSets { tables: &mut self.tables[group], keys: &state.keys, found: &mut state.found }
            }),
            index: None,
            todo: &mut Lineup::new(packets),
            verdicts: &mut open.verdicts,
            now_ns: &open.now_ns,
            ports: self.ports,
            prefetched: Prefetched::default(),
            logs: &mut open.logs,
            goes_on: false,
            goes_back: recorded.goes_back,
            is_logged: false,
            is_timed: false,
        };
        let done =
            chain.stages()[stage].execute(&mut pass, 0, packets.len()) == Ok(packets.len()) && pass.commit().is_ok();
        if !done {
            let function = self.function(stage);
            self.differences.push(Difference::Refused { sequence: entry.sequence, function });
        } else if !recorded.goes_back {
            self.named.compare((&chain, &[stage]), (&open.batch, &open.verdicts), packets);
        }
        open.last = (entry.sequence, stage);
        self.put_back(id, open, recorded);
    }

    /// Counts one transaction of a batch as done; after the last one the batch's packets are compared.
    fn put_back(&mut self, id: (usize, usize), mut open: OpenBatch, recorded: &RecordedBatch) {
        open.left -= 1;
        if open.left == 0 {
            self.close(id, open, recorded);
        } else {
            self.open.insert(id, open);
        }
    }

    fn close(&mut self, id: (usize, usize), mut open: OpenBatch, recorded: &RecordedBatch) {
        let mine = outputs(&open.batch, &open.verdicts, &open.logs.emitted);
        for ((input, parallel), sequential) in recorded.inputs.iter().zip(&recorded.outputs).zip(mine) {
            let lost = parallel.verdict == Verdict::Drop(braid_nf::Reason::HANDLER_PANIC);
            if *parallel != sequential && !lost {
                self.differences.push(Difference::Packet {
                    sequence: open.last.0,
                    worker: id.0,
                    function: self.function(open.last.1),
                    packet: input.info.sequence,
                    input: input.bytes.clone(),
                    parallel: parallel.clone(),
                    sequential,
                });
            }
        }
        open.batch.release(&mut self.buffers);
    }

    fn expire(&mut self, entry: &Entry, stage: usize, (keys, end): (&[SetKey], End), now_ns: u64) {
        let chain = Arc::clone(&self.chain);
        let function = &*chain.stages()[stage];
        let Some(group) = chain.group_of(stage) else { unreachable!("only functions with sets expire sets") };
        if chain.groups()[group].shared {
            let (mut logs, mut counters) = (Logs::default(), WorkerCounters::default());
            run_event(&mut self.tx, &mut logs.emitted, self.ports, now_ns, &mut counters, |event| {
                keys.iter().try_for_each(|key| end_shared(function, event, key, end).map(drop))
            });
            return self.check_made(entry, stage, &logs.emitted);
        }
        let tables = &mut self.tables[group];
        let places: Vec<SetSlot> = keys.iter().map(|key| tables.find_key(key)).collect();
        if places.contains(&SetSlot::MISS) {
            let function = function.name().to_owned();
            self.differences.push(Difference::Refused { sequence: entry.sequence, function });
            return;
        }
        let (mut logs, mut counters) = (Logs::default(), WorkerCounters::default());
        run_event(&mut self.tx, &mut logs.emitted, self.ports, now_ns, &mut counters, |event| {
            places.iter().try_for_each(|&at| function.expire(event, tables, at))
        });
        for at in places {
            let live = tables.meta_mut(at).live & !function.place().bit;
            tables.set_live(at, live);
            if live == 0 {
                tables.remove(at);
            }
        }
        self.check_made(entry, stage, &logs.emitted);
    }

    fn tick(&mut self, entry: &Entry, stage: usize, tick: Tick, now_ns: u64) {
        let chain = Arc::clone(&self.chain);
        let (mut logs, mut counters) = (Logs::default(), WorkerCounters::default());
        run_event(&mut self.tx, &mut logs.emitted, self.ports, now_ns, &mut counters, |event| {
            chain.stages()[stage].tick(event, tick)
        });
        self.check_made(entry, stage, &logs.emitted);
    }

    /// Compares the packets that an expiry or a tick made with the recorded ones.
    fn check_made(&mut self, entry: &Entry, stage: usize, emitted: &Emitted) {
        let sequential = made(emitted, 0);
        if sequential != entry.made {
            let (function, parallel) = (self.function(stage), entry.made.clone());
            let Entry { sequence, worker, .. } = *entry;
            self.differences.push(Difference::Made { sequence, worker, function, parallel, sequential });
        }
    }
}

/// The live content of a group's tables; states of functions in which a set is not live are zeroed.
pub fn content(chain: &Chain, group: usize, tables: &mut SetTables) -> SetContent {
    let mut live = Vec::new();
    tables.scan(0, tables.slots(), |at, meta| {
        if meta.live != 0 {
            live.push((at, meta.live));
        }
    });
    let entry = |(at, mask): (SetSlot, u16)| {
        let mut states = tables.state_bytes(at).to_vec();
        for &position in &chain.groups()[group].stages {
            let stage = &chain.stages()[position];
            if mask & stage.place().bit == 0 {
                states[stage.place().offset..][..stage.set_bytes()].fill(0);
            }
        }
        (tables.key(at), (mask, states))
    };
    live.into_iter().map(entry).collect()
}

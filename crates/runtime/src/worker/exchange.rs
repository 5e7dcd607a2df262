//! Exchanges a worker's functions and tables between two batches and keeps its packet sets.
//!
//! The exchange has two steps, so that a worker that runs out of memory leaves all workers unchanged, and no packet waits for an
//! allocation. [`Prepared`] is created off the worker's thread. [`Worker::exchange`] cannot fail, and takes as long for a million sets as
//! for none. A group with an unchanged record layout and an unchanged capacity keeps its tables. Every other group gets new ones, to which
//! its sets move batch by batch ([`braid_nf::SetTables::succeed`]): the sets of the packets in a batch, and [`MOVED_MAX`] more after each
//! batch. State objects that change their size are copied before the exchange ([`Succession`]).

use std::sync::Arc;
use std::sync::mpsc::Sender;

use braid_nf::{Carry, Former, MOVED_MAX, SetTables, Stage};
use braid_state::{Bringing, Succession, Tx};

use super::{Pace, Sets, Worker, indexes, periodic_ticks};
use crate::attempt::{Stretch, run_event};
use crate::chain::{Chain, Group, keys_hold};
use crate::observe::probe::Probe;
use crate::plan::Plan;

/// What a worker needs to continue with another chain, or with another capacity for packet sets.
pub struct Prepared {
    chain: Arc<Chain>,
    /// Maximum number of sets of one group on the worker.
    sets: usize,
    /// For each new group: newly mapped tables, or an old group whose tables are kept.
    groups: Vec<Tables>,
    emptied: Emptied,
}

enum Tables {
    New {
        sets: Box<Sets>,
        /// The old group whose sets move over, and how their states are copied.
        from: Option<(usize, Carry)>,
    },
    Kept(usize),
}

/// For each group: whether it has sets with short and with long keys; and its number of sets.
pub(crate) type SetsInUse = (Vec<[bool; 2]>, Vec<usize>);

/// The channel to the thread that unmaps unused tables while packets continue to flow.
#[derive(Clone)]
pub(crate) struct Emptied(pub(crate) Sender<Gone>);

/// Tables that are no longer needed.
pub(crate) enum Gone {
    Emptied(#[expect(dead_code, reason = "dropped, not read")] Box<Former>),
    Whole(#[expect(dead_code, reason = "dropped, not read")] Box<SetTables>),
}

impl Emptied {
    fn take(&self, gone: Gone) {
        // If the receiver is gone, the tables are unmapped here.
        let _ = self.0.send(gone);
    }
}

impl Prepared {
    /// Maps the tables that a worker needs to go from one chain to another (or the same one) under a plan. `now` is the capacity of its
    /// current tables in sets; `kinds` says for each old group whether it has sets with short keys and with long ones.
    pub(crate) fn new(
        (old, new): (&Chain, &Arc<Chain>),
        (now, plan): (usize, &Plan),
        kinds: &[[bool; 2]],
        emptied: Emptied,
    ) -> Result<Prepared, braid_memory::Error> {
        let sets = plan.sets_per_worker();
        let tables = |group: &Group| {
            let alike = old.groups().iter().position(|before| is_alike(old, before, new, group));
            if let Some(at) = alike.filter(|_| sets == now || group.shared) {
                return Ok(Tables::Kept(at));
            }
            let from = if group.shared { None } else { carry(old, new, group) };
            let own = Box::new(Sets::new(group, sets, plan.pages)?);
            let kinds = from.as_ref().and_then(|(at, _)| kinds.get(*at)).copied().unwrap_or_default();
            own.tables.touch(kinds);
            Ok(Tables::New { sets: own, from })
        };
        let groups = new.groups().iter().map(tables).collect::<Result<_, braid_memory::Error>>()?;
        Ok(Prepared { chain: Arc::clone(new), sets, groups, emptied })
    }
}

impl Worker {
    /// Runs `what` on the worker's transaction between two batches.
    pub fn transact<T>(&mut self, what: impl FnOnce(&mut Tx) -> T) -> T {
        what(&mut self.parts.tx)
    }

    /// Returns for each group whether it has sets with short and with long keys, and how many sets it has.
    pub(crate) fn sets_in_use(&self) -> SetsInUse {
        let kinds = self.sets.iter().map(|sets| sets.tables.kinds()).collect();
        (kinds, self.sets.iter().map(|sets| sets.tables.len()).collect())
    }

    /// Sets the number of sets at which a table that evicts sets counts as full.
    pub(crate) fn keep_at_most(&mut self, sets: usize) {
        self.parts.sets = sets;
    }

    /// Continues with other functions or other tables.
    pub(crate) fn exchange(&mut self, prepared: Prepared) {
        let Prepared { chain, sets, groups, emptied } = prepared;
        self.parts.sets = sets;
        let mut old: Vec<Option<Sets>> = std::mem::take(&mut self.sets).into_iter().map(Some).collect();
        for tables in groups {
            let sets = match tables {
                Tables::Kept(at) => old[at].take().unwrap_or_else(|| unreachable!("a set has one group")),
                Tables::New { mut sets, from } => {
                    if let Some((from, carry)) = from
                        && let Some(before) = old[from].take()
                    {
                        sets.tables.succeed(before.tables, carry);
                    }
                    *sets
                }
            };
            self.sets.push(sets);
        }
        for gone in old.into_iter().flatten() {
            // What these tables counted remains counted; the sets that were live in them have ended.
            let (created, _) = gone.tables.lives();
            self.logs.lives.created += created;
            self.logs.lives.ended += created;
            self.logs.lives.refused += gone.tables.refused();
            emptied.take(Gone::Whole(Box::new(gone.tables)));
        }
        self.emptied = Some(emptied);
        if !Arc::ptr_eq(&self.parts.chain, &chain) {
            self.turn_to(chain);
        }
    }

    /// Continues with the functions of another chain, whose tables are already installed.
    fn turn_to(&mut self, chain: Arc<Chain>) {
        let old_chain = std::mem::replace(&mut self.parts.chain, Arc::clone(&chain));
        let reached = |stage: &dyn Stage| {
            let before = old_chain.stages().iter().position(|old| old.name() == stage.name());
            before.map_or(0, |before| self.counters.reached[before])
        };
        let objects = chain.objects();
        self.counters.aborted.forget_elements(|gone| objects.iter().all(|object| object.id() != gone));
        self.stretches = vec![Stretch::default(); chain.stages().len()];
        self.indexes = indexes(&chain);
        self.counters.reached = chain.stages().iter().map(|stage| reached(&**stage)).collect();
        self.ticks = periodic_ticks(&chain, self.parts.share());
        self.pace = Pace::of(&chain, &self.parts.clock);
        if self.probe.split().is_some() {
            self.probe = Probe::Off;
        }
        self.tracer = None;
    }

    /// The number of packet sets that have yet to move from former tables.
    pub fn sets_to_move(&self) -> usize {
        self.sets.iter().map(|sets| sets.tables.to_move()).sum()
    }

    /// Moves at most [`MOVED_MAX`] more sets, over all groups; returns whether former tables remain.
    pub(crate) fn move_sets(&mut self) -> bool {
        let Some(emptied) = &self.emptied else { return false };
        let (mut left, mut is_moving) = (MOVED_MAX, false);
        for sets in &mut self.sets {
            left -= sets.tables.move_some(left);
            if let Some(former) = sets.tables.take_emptied() {
                emptied.take(Gone::Emptied(former));
            }
            is_moving |= sets.tables.is_moving();
        }
        if !is_moving {
            // Dropping the sender releases whoever waits for the last former table.
            self.emptied = None;
        }
        is_moving
    }

    /// Moves all remaining sets at once, when no packet waits.
    pub(crate) fn settle_sets(&mut self) {
        self.sets.iter_mut().for_each(|sets| sets.tables.settle());
        self.emptied = None;
    }

    /// Starts to track this worker's changes to state objects that are being replaced.
    pub(crate) fn begin_bringing(&mut self, succession: Arc<Succession>) {
        self.bringing = Some(Bringing::begin(succession, &mut self.parts.tx));
    }

    /// Whether state objects are being replaced.
    pub(crate) fn is_bringing(&self) -> bool {
        self.bringing.is_some()
    }

    /// Copies the elements that this worker changed since the last call, and a few more.
    pub(crate) fn bring_objects(&mut self) {
        if let Some(bringing) = &mut self.bringing {
            bringing.bring(&mut self.parts.tx);
        }
    }

    /// Copies the elements that this worker changed last; returns how many had to be copied.
    pub(crate) fn end_bringing(&mut self) -> usize {
        self.bringing.take().map_or(0, |bringing| bringing.end(&mut self.parts.tx))
    }

    /// Runs the start handlers of functions that are new in the worker's chain.
    pub fn start(&mut self, positions: &[usize]) {
        let chain = Arc::clone(&self.parts.chain);
        for &position in positions {
            let (tx, emitted, stage) = (&mut self.parts.tx, &mut self.logs.emitted, &chain.stages()[position]);
            run_event(tx, emitted, self.parts.ports, self.last_ns, &mut self.counters, |event| stage.start(event));
        }
    }
}

/// Whether the records of two groups have the same layout.
fn is_alike(old_chain: &Chain, old: &Group, new_chain: &Chain, new: &Group) -> bool {
    let layout = |chain: &Chain, group: &Group| -> Vec<_> {
        let stages = group.stages.iter().map(|position| &chain.stages()[*position]);
        stages.map(|stage| (stage.name().to_owned(), stage.kind(), stage.place(), stage.set_bytes())).collect()
    };
    keys_hold(&old.set, &new.set)
        && (old.shared, old.full) == (new.shared, new.full)
        && layout(old_chain, old) == layout(new_chain, new)
}

/// Finds the old group whose sets move to a new group, and where the states of the functions they have in common are stored.
fn carry(old_chain: &Chain, new_chain: &Chain, new: &Group) -> Option<(usize, Carry)> {
    let both = |old: &Group| -> Vec<_> {
        let old_stage =
            |name: &str| old.stages.iter().map(|at| &old_chain.stages()[*at]).find(|old| old.name() == name);
        let new_stages = new.stages.iter().map(|at| &new_chain.stages()[*at]);
        new_stages.filter_map(|new| Some((old_stage(new.name())?.place(), new.place(), new.set_bytes()))).collect()
    };
    let is_from = |old: &Group| keys_hold(&old.set, &new.set) && !both(old).is_empty();
    let from = old_chain.groups().iter().position(is_from)?;
    Some((from, Carry::of(both(&old_chain.groups()[from]))))
}

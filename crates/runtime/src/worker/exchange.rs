//! A worker's functions and tables exchanged between two batches, its packet sets kept.
//!
//! Two steps, so that running out of memory on one worker changes nothing on any, and no packet waits for memory: [`Prepared`] is
//! made beside the worker, [`Worker::exchange`] cannot fail and takes as long for a million sets as for none. A group whose records
//! look as before and whose room is the same keeps its tables; all others get new ones, to which their sets come over batch by batch
//! ([`braid_nf::SetTables::succeed`]): those of a batch's own packets, and [`MOVED_MAX`] more behind each batch. State objects of
//! another size come over before the exchange ([`Succession`]).

use std::sync::Arc;
use std::sync::mpsc::Sender;

use braid_nf::{Carry, Former, MOVED_MAX, SetTables, Stage};
use braid_state::{Bringing, Succession, Tx};

use super::{Pace, Sets, Worker, indexes, periodic_ticks};
use crate::attempt::{Stretch, run_event};
use crate::chain::{Chain, Group, keys_hold};
use crate::plan::Plan;
use crate::probe::Probe;

/// What a worker needs to go on with another chain, or with more or less room for packet sets.
pub struct Prepared {
    chain: Arc<Chain>,
    /// Sets of a group that the worker may keep.
    sets: usize,
    /// By new group: tables of its own, or those of an old group as they are.
    groups: Vec<Tables>,
    emptied: Emptied,
}

enum Tables {
    New {
        sets: Box<Sets>,
        /// The old group whose sets come over, and how.
        from: Option<(usize, Carry)>,
    },
    Kept(usize),
}

/// By group: whether there are sets with short keys and with long ones, and how many there are.
pub(crate) type SetsInUse = (Vec<[bool; 2]>, Vec<usize>);

/// Where tables go that are not needed any more: to whoever unmaps them while packets go on.
#[derive(Clone)]
pub(crate) struct Emptied(pub(crate) Sender<Gone>);

/// Tables that are not needed any more.
pub(crate) enum Gone {
    Emptied(#[expect(dead_code, reason = "dropped, not read")] Box<Former>),
    Whole(#[expect(dead_code, reason = "dropped, not read")] Box<SetTables>),
}

impl Emptied {
    fn take(&self, gone: Gone) {
        // If nobody is there to unmap it, it is unmapped here.
        let _ = self.0.send(gone);
    }
}

impl Prepared {
    /// Maps the tables that a worker needs to go from one chain to another, or to the same one, under a plan; `now` sets fit into its
    /// tables, and `kinds` says for each group whether there are sets with short keys and with long ones.
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
    /// Has the worker's transaction do something between two batches.
    pub fn transact<T>(&mut self, what: impl FnOnce(&mut Tx) -> T) -> T {
        what(&mut self.parts.tx)
    }

    /// For each group, whether there are sets with short keys and with long ones; and how many it has.
    pub(crate) fn sets_in_use(&self) -> SetsInUse {
        let kinds = self.sets.iter().map(|sets| sets.tables.kinds()).collect();
        (kinds, self.sets.iter().map(|sets| sets.tables.len()).collect())
    }

    /// From now on a table that lets sets go when it is full is full with so many.
    pub(crate) fn keep_at_most(&mut self, sets: usize) {
        self.parts.sets = sets;
    }

    /// Goes on with other functions, or with other tables.
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
            // What they counted stays counted, and what was live in them has ended.
            let (created, _) = gone.tables.lives();
            self.logs.lives.created += created;
            self.logs.lives.ended += created;
            emptied.take(Gone::Whole(Box::new(gone.tables)));
        }
        self.emptied = Some(emptied);
        if !Arc::ptr_eq(&self.parts.chain, &chain) {
            self.turn_to(chain);
        }
    }

    /// Goes on with the functions of another chain; its sets are there.
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

    /// Packet sets that are still to come over from former tables.
    pub fn sets_to_move(&self) -> usize {
        self.sets.iter().map(|sets| sets.tables.to_move()).sum()
    }

    /// Has some more sets come over, at most [`MOVED_MAX`] of all groups; whether there are former tables still.
    pub fn move_sets(&mut self) -> bool {
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
            // Whoever waits for the last of them waits no longer.
            self.emptied = None;
        }
        is_moving
    }

    /// Has all sets come over: when no packet waits.
    pub fn settle_sets(&mut self) {
        self.sets.iter_mut().for_each(|sets| sets.tables.settle());
        self.emptied = None;
    }

    /// Notes from now on what it changes of state objects whose place others take.
    pub(crate) fn begin_bringing(&mut self, succession: Arc<Succession>) {
        self.bringing = Some(Bringing::begin(succession, &mut self.parts.tx));
    }

    /// Whether there are such objects.
    pub(crate) fn is_bringing(&self) -> bool {
        self.bringing.is_some()
    }

    /// Brings over what it has changed of them since the last time, and some elements more.
    pub(crate) fn bring_objects(&mut self) {
        if let Some(bringing) = &mut self.bringing {
            bringing.bring(&mut self.parts.tx);
        }
    }

    /// Brings over what is left of that; says how many elements.
    pub(crate) fn end_bringing(&mut self) -> usize {
        self.bringing.take().map_or(0, |bringing| bringing.end(&mut self.parts.tx))
    }

    /// Runs the start handlers of functions that are new in its chain.
    pub fn start(&mut self, positions: &[usize]) {
        let chain = Arc::clone(&self.parts.chain);
        for &position in positions {
            let (tx, emitted, stage) = (&mut self.parts.tx, &mut self.logs.emitted, &chain.stages()[position]);
            run_event(tx, emitted, self.parts.ports, self.last_ns, &mut self.counters, |event| stage.start(event));
        }
    }
}

/// Whether the records of two groups are laid out alike.
fn is_alike(old_chain: &Chain, old: &Group, new_chain: &Chain, new: &Group) -> bool {
    let layout = |chain: &Chain, group: &Group| -> Vec<_> {
        let stages = group.stages.iter().map(|position| &chain.stages()[*position]);
        stages.map(|stage| (stage.name().to_owned(), stage.kind(), stage.place(), stage.set_bytes())).collect()
    };
    keys_hold(&old.set, &new.set)
        && (old.shared, old.full) == (new.shared, new.full)
        && layout(old_chain, old) == layout(new_chain, new)
}

/// The group whose sets come over to one of another chain, and where the states of the functions that both have are.
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

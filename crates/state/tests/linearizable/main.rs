//! Histories of real threads: each could have been produced by a single worker, one operation after another, and no operation takes effect
//! before it began or after it returned. Readers of a `Distributed` may see old values, but none older than allowed.
//!
//! Three threads do a handful of operations each on an object so small that they meet; in every other history they are made to lose the
//! processor inside their transactions. A structure that is wrong on purpose must be detected.

mod checker;
#[path = "../common/mod.rs"]
mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};

use braid_state::{
    Allocator, AllocatorConfig, Conflict, Distributed, DistributedConfig, Domain, Inserted, Lease, Map, MapConfig, Tx,
    Vector, VectorConfig,
};
use checker::{Call, Sequential, linearization};
use common::{Random, builder};

const THREADS: usize = 3;
const CALLS: usize = 5;
const HISTORIES: u64 = 300;

/// Repeats an operation until it commits.
fn committed<R>(tx: &mut Tx, mut operation: impl FnMut(&mut Tx) -> Result<R, Conflict>) -> R {
    loop {
        if let Ok(answer) = operation(tx)
            && tx.commit().is_ok()
        {
            return answer;
        }
        tx.abort();
    }
}

/// The history of threads that run at the same time; `act` does a thread's next operation.
fn history<D: Send>(domain: &Arc<Domain>, seed: u64, act: impl Fn(&mut Tx, &mut Random) -> D + Sync) -> Vec<Call<D>> {
    let (clock, start) = (AtomicU64::new(1), Barrier::new(THREADS));
    let thread = |worker: usize| {
        let (mut tx, mut random) = (Tx::new(domain, worker), Random::new(seed * THREADS as u64 + worker as u64));
        if seed.is_multiple_of(2) {
            let mut chance = Random::new(seed ^ 0x5eed ^ (worker as u64) << 32);
            tx.yield_with(move |_| (0..chance.below(3)).for_each(|_| std::thread::yield_now()));
        }
        start.wait();
        let call = |_| {
            let begun = clock.fetch_add(1, Ordering::SeqCst);
            tx.set_now(begun);
            let done = act(&mut tx, &mut random);
            Call { done, begun, returned: clock.fetch_add(1, Ordering::SeqCst) }
        };
        (0..CALLS).map(call).collect::<Vec<_>>()
    };
    std::thread::scope(|scope| {
        let thread = &thread;
        let threads: Vec<_> = (0..THREADS).map(|worker| scope.spawn(move || thread(worker))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    })
}

fn check<S: Sequential>(start: &S, history: &[Call<S::Done>], seed: u64) {
    assert!(linearization(start, history).is_some(), "seed {seed}: no order explains {history:#?}");
}

/// Whether any operations of different threads overlapped.
fn overlaps<D>(history: &[Call<D>]) -> bool {
    let thread = |n: usize| n / CALLS;
    let meet = |(a, one): (usize, &Call<D>)| {
        let others = history.iter().enumerate().filter(|(b, _)| thread(a) != thread(*b));
        others.into_iter().any(|(_, other)| one.begun < other.returned && other.begun < one.returned)
    };
    history.iter().enumerate().any(meet)
}

#[derive(Clone, Debug, PartialEq)]
enum MapCall {
    Get(u64, Option<u64>),
    Insert(u64, u64, Inserted),
    Add(u64, Option<u64>),
    Remove(u64, Option<u64>),
    Swap(u64, u64, Option<(u64, u64)>),
}

/// A map with room for this many keys.
#[derive(Clone, PartialEq, Eq, Hash)]
struct OneMap(BTreeMap<u64, u64>, usize);

impl Sequential for OneMap {
    type Done = MapCall;

    fn allows(&mut self, done: &MapCall) -> bool {
        let OneMap(map, room) = self;
        match *done {
            MapCall::Get(key, seen) => map.get(&key).copied() == seen,
            MapCall::Insert(key, value, outcome) => {
                let expected = match (map.contains_key(&key), map.len() < *room) {
                    (true, _) => Inserted::Replaced,
                    (false, true) => Inserted::New,
                    (false, false) => Inserted::Full,
                };
                if expected != Inserted::Full {
                    map.insert(key, value);
                }
                expected == outcome
            }
            MapCall::Add(key, before) => {
                let seen = map.get(&key).copied();
                map.entry(key).and_modify(|value| *value += 1);
                seen == before
            }
            MapCall::Remove(key, seen) => map.remove(&key) == seen,
            MapCall::Swap(a, b, seen) => {
                let both = map.get(&a).copied().zip(map.get(&b).copied());
                if let Some((one, other)) = both {
                    map.insert(a, other);
                    map.insert(b, one);
                }
                both == seen
            }
        }
    }
}

fn act_on_map(map: &Map<u64, u64>, tx: &mut Tx, random: &mut Random) -> MapCall {
    let (key, other, value) = (random.below(3), random.below(3), random.below(100));
    match random.below(6) {
        0 => MapCall::Get(key, committed(tx, |tx| map.get(tx, &key))),
        1 | 2 => MapCall::Insert(key, value, committed(tx, |tx| map.insert(tx, &key, &value))),
        3 => MapCall::Add(key, committed(tx, |tx| map.update(tx, &key, |v| std::mem::replace(v, *v + 1)))),
        4 => MapCall::Remove(key, committed(tx, |tx| map.remove(tx, &key))),
        _ => MapCall::Swap(
            key,
            other,
            committed(tx, |tx| {
                let Some(both) = map.get(tx, &key)?.zip(map.get(tx, &other)?) else { return Ok(None) };
                map.insert(tx, &key, &both.1)?;
                map.insert(tx, &other, &both.0)?;
                Ok(Some(both))
            }),
        ),
    }
}

#[test]
fn what_threads_did_to_a_map_one_worker_could_have_done() {
    let mut met = 0;
    for seed in 0..HISTORIES {
        let (domain, mut b) = builder(THREADS);
        // In half of the histories two keys fill it.
        let capacity = if seed % 4 < 2 { 2 } else { 64 };
        let map = Map::<u64, u64>::new(&mut b, &MapConfig { name: "m".into(), capacity, ..MapConfig::default() });
        let map = map.expect("small");
        let room = map.capacity() as usize;
        let history = history(&domain, seed, |tx, random| act_on_map(&map, tx, random));
        met += u64::from(overlaps(&history));
        check(&OneMap(BTreeMap::new(), room), &history, seed);
    }
    assert!(met > HISTORIES / 10, "only {met} histories have operations that overlap");
}

#[derive(Clone, Debug)]
enum CellCall {
    Get(u32, u64),
    Set(u32, u64),
    Add(u32, u64),
    Both(u64, u64),
}

/// A vector of two cells.
#[derive(Clone, PartialEq, Eq, Hash)]
struct OneVector([u64; 2]);

impl Sequential for OneVector {
    type Done = CellCall;

    fn allows(&mut self, done: &CellCall) -> bool {
        let OneVector(cells) = self;
        match *done {
            CellCall::Get(at, seen) => cells[at as usize] == seen,
            CellCall::Set(at, value) => {
                cells[at as usize] = value;
                true
            }
            CellCall::Add(at, before) => {
                cells[at as usize] += 1;
                cells[at as usize] == before + 1
            }
            CellCall::Both(one, other) => *cells == [one, other],
        }
    }
}

fn act_on_vector(vector: &Vector<u64>, tx: &mut Tx, random: &mut Random) -> CellCall {
    let (at, value) = (random.below(2) as u32, random.below(100));
    let get = |tx: &mut Tx, at| vector.get(tx, at).map(|cell| cell.expect("it is there"));
    match random.below(4) {
        0 => CellCall::Get(at, committed(tx, |tx| get(tx, at))),
        1 => {
            committed(tx, |tx| vector.set(tx, at, value));
            CellCall::Set(at, value)
        }
        2 => {
            let add = |tx: &mut Tx| vector.update(tx, at, |cell| std::mem::replace(cell, *cell + 1));
            CellCall::Add(at, committed(tx, add).expect("it is there"))
        }
        _ => {
            let (one, other) = committed(tx, |tx| Ok((get(tx, 0)?, get(tx, 1)?)));
            CellCall::Both(one, other)
        }
    }
}

fn cells(builder: &mut braid_state::StateBuilder) -> Vector<u64> {
    Vector::new(builder, &VectorConfig { name: "v".into(), len: 2 }, 0).expect("small")
}

#[test]
fn what_threads_did_to_a_vector_one_worker_could_have_done() {
    for seed in 0..HISTORIES {
        let (domain, mut b) = builder(THREADS);
        let vector = cells(&mut b);
        let history = history(&domain, seed, |tx, random| act_on_vector(&vector, tx, random));
        check(&OneVector([0; 2]), &history, seed);
    }
}

/// An update split into two transactions, with time for another thread in between.
#[test]
fn an_update_that_is_torn_in_two_is_found_out() {
    let found = (0..HISTORIES).any(|seed| {
        let (domain, mut b) = builder(THREADS);
        let vector = cells(&mut b);
        let history = history(&domain, seed, |tx, _| {
            let before = committed(tx, |tx| vector.get(tx, 0)).expect("it is there");
            (0..3).for_each(|_| std::thread::yield_now());
            committed(tx, |tx| vector.set(tx, 0, before + 1));
            CellCall::Add(0, before)
        });
        linearization(&OneVector([0; 2]), &history).is_none()
    });
    assert!(found, "no history of a wrong vector was refused");
}

#[derive(Clone, Debug)]
enum LeaseCall {
    Allocate(Option<u32>),
    Free(u32, bool),
    IsLive(u32, bool),
}

/// The free resources; any of them may be allocated.
#[derive(Clone, PartialEq, Eq, Hash)]
struct OneAllocator(BTreeSet<u32>);

impl Sequential for OneAllocator {
    type Done = LeaseCall;

    fn allows(&mut self, done: &LeaseCall) -> bool {
        let OneAllocator(free) = self;
        match *done {
            LeaseCall::Allocate(None) => free.is_empty(),
            LeaseCall::Allocate(Some(resource)) => free.remove(&resource),
            // The caller holds the latest lease of this resource, so it is live unless the resource is free.
            LeaseCall::Free(resource, was_live) => free.insert(resource) == was_live,
            LeaseCall::IsLive(resource, live) => free.contains(&resource) != live,
        }
    }
}

#[test]
fn what_threads_leased_one_worker_could_have_leased() {
    const RESOURCES: u32 = 4;
    for seed in 0..HISTORIES {
        let (domain, mut b) = builder(THREADS);
        let config = AllocatorConfig { name: "a".into(), resources: RESOURCES, ..AllocatorConfig::default() };
        let allocator = Allocator::new(&mut b, &config).expect("small");
        let held: [std::sync::Mutex<Vec<Lease>>; THREADS] = Default::default();
        let history = history(&domain, seed, |tx, random| {
            let mut held = held[tx.worker()].lock().expect("no panic");
            match (random.below(4), held.last().copied()) {
                (0 | 1, _) | (_, None) => {
                    let lease = committed(tx, |tx| allocator.allocate(tx));
                    held.extend(lease);
                    LeaseCall::Allocate(lease.map(|lease| lease.index))
                }
                (2, Some(lease)) => {
                    held.pop();
                    LeaseCall::Free(lease.index, committed(tx, |tx| allocator.free(tx, lease)))
                }
                (_, Some(lease)) => LeaseCall::IsLive(lease.index, committed(tx, |tx| allocator.is_live(tx, lease))),
            }
        });
        check(&OneAllocator((0..RESOURCES).collect()), &history, seed);
    }
}

#[derive(Clone, Debug)]
enum SumCall {
    Add,
    Read(u64),
}

/// Whether each reader saw everything that had returned `staleness` before the reader began, and nothing that began after it returned.
fn is_fresh_enough(history: &[Call<SumCall>], staleness: u64) -> bool {
    let added = |when: &dyn Fn(&Call<SumCall>) -> bool| {
        history.iter().filter(|call| matches!(call.done, SumCall::Add) && when(call)).count() as u64
    };
    history.iter().all(|read| match read.done {
        SumCall::Add => true,
        SumCall::Read(sum) => {
            let least = added(&|add| add.returned + staleness < read.begun);
            let most = added(&|add| add.begun < read.returned);
            (least..=most).contains(&sum)
        }
    })
}

fn sums(seed: u64, allowed: u64) -> Vec<Call<SumCall>> {
    let (domain, mut b) = builder(THREADS);
    let config = DistributedConfig { name: "sum".into(), staleness_ns: allowed };
    let sum = Distributed::<u64>::new(&mut b, &config, 0).expect("small");
    let history = history(&domain, seed, |tx, random| match random.below(2) {
        0 => {
            committed(tx, |tx| sum.update(tx, |own| *own += 1));
            SumCall::Add
        }
        _ => SumCall::Read(committed(tx, |tx| sum.read(tx, |all, part| *all += part))),
    });
    let all = history.iter().filter(|call| matches!(call.done, SumCall::Add)).count() as u64;
    assert_eq!(sum.total(|all, part| *all += part), all, "seed {seed}: the final value is exact");
    history
}

#[test]
fn a_sum_is_no_older_than_was_allowed() {
    for seed in 0..HISTORIES {
        for allowed in [0, 1, 8, 1000] {
            let history = sums(seed, allowed);
            assert!(is_fresh_enough(&history, allowed), "seed {seed}, staleness {allowed}: {history:#?}");
        }
    }
}

#[test]
fn a_sum_that_is_older_than_was_allowed_is_found_out() {
    // Values may be 1000 old, but are required not to be old at all.
    assert!((0..HISTORIES).any(|seed| !is_fresh_enough(&sums(seed, 1000), 0)));
}

#[test]
fn orders_that_answers_contradict_are_refused() {
    fn call<D>(done: D, begun: u64, returned: u64) -> Call<D> {
        Call { done, begun, returned }
    }
    let twice = [call(LeaseCall::Allocate(Some(0)), 1, 4), call(LeaseCall::Allocate(Some(0)), 2, 3)];
    assert!(linearization(&OneAllocator([0, 1].into()), &twice).is_none(), "leased twice");
    let late = [call(MapCall::Insert(1, 5, Inserted::New), 1, 2), call(MapCall::Get(1, None), 3, 4)];
    assert!(linearization(&OneMap(BTreeMap::new(), 4), &late).is_none(), "what had returned was not seen");
    let beside = [call(MapCall::Insert(1, 5, Inserted::New), 1, 3), call(MapCall::Get(1, None), 2, 4)];
    assert_eq!(linearization(&OneMap(BTreeMap::new(), 4), &beside), Some(vec![1, 0]));
}

//! Objects are replaced by others of another size while workers change them: nothing is lost, nothing is duplicated, and references to
//! elements stay valid.

mod common;

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier};

use braid_state::{
    Allocator, AllocatorConfig, Bringing, Brought, Conflict, Distributed, DistributedConfig, DistributedVector,
    DistributedVectorConfig, Domain, Handle, HugePages, Inserted, Lease, Locked, Map, MapConfig, Pair, StateBuilder,
    StateObject, Succession, Tx, Vector, VectorConfig,
};
use common::Random;
use proptest::prelude::*;

const WORKERS: usize = 3;
/// Maximum number of keys and resources of a worker.
const OWN: u64 = 40;
const KEYS: u32 = WORKERS as u32 * OWN as u32;

type Key = [u64; 2];

/// The objects of a function, of some size.
#[derive(Clone)]
struct Objects {
    /// Entries on lines of their own.
    wide: Map<Key, u64>,
    /// Two entries per line.
    dense: Map<u32, u32>,
    leases: Allocator,
    sums: Vector<u64>,
    parts: Distributed<u64>,
}

impl Objects {
    fn new(domain: &Arc<Domain>, size: u32) -> Objects {
        let builder = &mut StateBuilder::new(domain, HugePages::Never);
        let map = |name: &str| MapConfig { name: name.to_owned(), capacity: size, ..MapConfig::default() };
        let leases = AllocatorConfig { resources: size, validity_ns: Some(1 << 40), ..AllocatorConfig::default() };
        let parts = DistributedConfig { name: "parts".into(), staleness_ns: u64::from(size) };
        Objects {
            wide: Map::new(builder, &map("wide")).expect("a map"),
            dense: Map::new(builder, &map("dense")).expect("a map"),
            leases: Allocator::new(builder, &leases).expect("an allocator"),
            sums: Vector::new(builder, &VectorConfig { name: "sums".into(), len: size }, 0).expect("a vector"),
            parts: Distributed::new(builder, &parts, 0).expect("an object"),
        }
    }

    fn all(&self) -> [Arc<dyn StateObject>; 5] {
        let Objects { wide, dense, leases, sums, parts } = self;
        [wide.object(), dense.object(), leases.object(), sums.object(), parts.object()]
    }

    fn pairs(&self, new: &Objects) -> Vec<Pair> {
        self.all().into_iter().zip(new.all()).collect()
    }
}

/// What a worker knows of its own operations: the oracle.
#[derive(Clone, Default)]
struct Known {
    values: HashMap<u32, (u64, Handle)>,
    /// Handles of keys that it has removed.
    gone: Vec<Handle>,
    leases: Vec<Lease>,
    ended: Vec<Lease>,
    added: u64,
}

struct Worker {
    id: u32,
    tx: Tx,
    objects: Objects,
    known: Known,
    random: Random,
    now: u64,
    bringing: Option<Bringing>,
}

fn wide(key: u32) -> Key {
    [u64::from(key) * 7, 3]
}

impl Worker {
    /// Runs a transaction and repeats it until it commits.
    fn transact(&mut self) {
        let steps: Vec<(u64, u32)> =
            (0..=self.random.below(3)).map(|_| (self.random.below(8), self.random.below(OWN) as u32)).collect();
        self.now += 1_000_000;
        self.tx.set_now(self.now);
        loop {
            let mut known = self.known.clone();
            let done = steps.iter().try_for_each(|step| self.step(&mut known, *step));
            if done.and_then(|()| self.tx.commit()).is_ok() {
                self.known = known;
                return;
            }
            self.tx.abort();
        }
    }

    fn step(&mut self, known: &mut Known, (what, n): (u64, u32)) -> Result<(), Conflict> {
        let Worker { tx, objects, id, now, .. } = self;
        let Objects { wide: map, dense, leases, sums, parts } = objects;
        let key = n * WORKERS as u32 + *id;
        match what {
            0..3 => {
                let inserted = map.insert(tx, &wide(key), now)?;
                assert!(inserted != Inserted::Full && dense.insert(tx, &key, &(*now as u32))? == inserted);
                let handle = map.find(tx, &wide(key))?.expect("it is there now");
                known.values.insert(key, (*now, handle));
            }
            3 | 4 => {
                let removed = map.remove(tx, &wide(key))?;
                assert_eq!(dense.remove(tx, &key)?, removed.map(|value| value as u32));
                assert_eq!(removed, known.values.get(&key).map(|(value, _)| *value));
                known.gone.extend(known.values.remove(&key).map(|(_, handle)| handle));
            }
            5 if known.leases.len() < OWN as usize => {
                known.leases.push(leases.allocate(tx)?.expect("there are enough"));
            }
            5 | 6 => {
                if let Some(lease) = known.leases.pop() {
                    assert!(leases.free(tx, lease)?);
                    known.ended.push(lease);
                }
            }
            _ => {
                for lease in &known.leases {
                    assert!(leases.refresh(tx, *lease)?);
                }
                sums.update(tx, n, |sum| *sum += 1)?;
                parts.update(tx, |sum| *sum += 1)?;
                known.added += 1;
            }
        }
        Ok(())
    }

    /// Changes a value in a transaction that holds its entry.
    fn hold_one(&mut self) {
        let Some((key, known)) = self.known.values.iter_mut().next() else { return };
        let is_own = |held: &Locked<'_>| [held.key_word(0), held.key_word(1)] == wide(*key);
        let held = self.objects.wide.hold_if(&mut self.tx, known.1.index, is_own).expect("nobody else removes it");
        self.now += 1;
        known.0 = self.now;
        self.objects.wide.give_back(&mut self.tx, held, &[self.now]);
        let (key, value) = (*key, self.now as u32);
        while self.objects.dense.insert(&mut self.tx, &key, &value).and_then(|_| self.tx.commit()).is_err() {
            self.tx.abort();
        }
    }

    /// Checks that everything it knows is true.
    fn check(&mut self) {
        while let Err(Conflict { .. }) = self.look().and_then(|()| self.tx.commit()) {
            self.tx.abort();
        }
    }

    fn look(&mut self) -> Result<(), Conflict> {
        let Worker { tx, objects: Objects { wide: map, dense, leases, .. }, known, id, .. } = self;
        for key in (0..OWN as u32).map(|n| n * WORKERS as u32 + *id) {
            let value = known.values.get(&key).map(|(value, _)| *value);
            assert_eq!(map.get(tx, &wide(key))?, value);
            assert_eq!(dense.get(tx, &key)?, value.map(|value| value as u32));
        }
        for (value, handle) in known.values.values() {
            assert_eq!(map.value_at(tx, *handle)?, Some(*value), "a handle finds what it was made for");
        }
        for handle in &known.gone {
            assert_eq!(map.value_at(tx, *handle)?, None, "or nothing");
        }
        for (lease, is_live) in
            known.leases.iter().map(|lease| (lease, true)).chain(known.ended.iter().map(|lease| (lease, false)))
        {
            assert_eq!(leases.is_live(tx, *lease)?, is_live);
        }
        Ok(())
    }
}

type Order = Box<dyn FnOnce(&mut Worker) + Send>;

/// Runs batches of transactions and, in between, what a worker of a run does.
fn work(mut worker: Worker, orders: &Receiver<Order>) -> Known {
    loop {
        for _ in 0..worker.random.below(8) {
            worker.transact();
        }
        worker.hold_one();
        if let Some(bringing) = &mut worker.bringing {
            bringing.bring(&mut worker.tx);
        }
        match orders.try_recv() {
            Ok(order) => order(&mut worker),
            Err(std::sync::mpsc::TryRecvError::Empty) => {}
            Err(std::sync::mpsc::TryRecvError::Disconnected) => return worker.known,
        }
    }
}

/// Has every worker run something, and waits for all of them.
fn tell<T: Send + 'static>(
    desks: &[Sender<Order>],
    what: impl Fn(&mut Worker) -> T + Clone + Send + 'static,
) -> Vec<T> {
    let begin = |desk: &Sender<Order>| {
        let ((answer, answered), what) = (channel(), what.clone());
        desk.send(Box::new(move |worker| answer.send(what(worker)).expect("somebody waits"))).expect("it runs");
        answered
    };
    let answers: Vec<_> = desks.iter().map(begin).collect();
    answers.into_iter().map(|answered| answered.recv().expect("an answer")).collect()
}

/// Exchanges the objects of all workers; returns `None` if the new ones are too small.
fn exchange(domain: &Arc<Domain>, desks: &[Sender<Order>], now: &Objects, size: u32) -> Option<Objects> {
    let new = Objects::new(domain, size);
    let succession = Succession::new(now.pairs(&new)).expect("alike");
    let begun = Arc::clone(&succession);
    tell(desks, move |worker| worker.bringing = Some(Bringing::begin(Arc::clone(&begun), &mut worker.tx)));
    succession.open();
    while !succession.is_complete() {
        std::thread::yield_now();
    }
    let (still, on) = (Arc::new(Barrier::new(WORKERS + 1)), Arc::new(Barrier::new(WORKERS + 1)));
    for desk in desks {
        let (still, on, new, succession) = (Arc::clone(&still), Arc::clone(&on), new.clone(), Arc::clone(&succession));
        let stand_still = move |worker: &mut Worker| {
            let left = worker.bringing.take().map(|bringing| bringing.end(&mut worker.tx));
            assert_eq!(left, Some(0), "all was brought over before it stood still");
            still.wait();
            on.wait();
            if succession.finish().is_ok() {
                worker.objects = new;
            }
        };
        desk.send(Box::new(stand_still)).expect("it runs");
    }
    still.wait();
    let fits = succession.finish().is_ok();
    let differing = if fits { differing(now, &new) } else { None };
    on.wait();
    assert_eq!(differing, None);
    tell(desks, Worker::check);
    fits.then_some(new)
}

/// An object that differs from its predecessor in a number, a generation, a key, a value or a time.
fn differing(former: &Objects, new: &Objects) -> Option<String> {
    let differs = |(former, new): &Pair| match former.kind() {
        // The image of a vector begins with its length.
        "Vector" => former.snapshot()[..8 * OWN as usize] != new.snapshot()[..8 * OWN as usize],
        _ => former.save() != new.save() || former.len() != new.len(),
    };
    former.pairs(new).iter().find(|pair| differs(pair)).map(|(_, new)| new.name().to_owned())
}

/// Exchanges objects repeatedly while workers continue; returns how many exchanges found room.
fn run(seed: u64, sizes: &[u32]) -> usize {
    let domain = Domain::new(WORKERS);
    let mut objects = Objects::new(&domain, 4 * KEYS);
    std::thread::scope(|scope| {
        let spawn = |id: usize| {
            let (desk, orders) = channel();
            let worker = Worker {
                id: id as u32,
                tx: Tx::new(&domain, id),
                objects: objects.clone(),
                known: Known::default(),
                random: Random::new(seed * 10 + id as u64),
                now: 0,
                bringing: None,
            };
            (desk, scope.spawn(move || work(worker, &orders)))
        };
        let (desks, threads): (Vec<_>, Vec<_>) = (0..WORKERS).map(spawn).unzip();
        let mut exchanged = 0;
        for size in sizes {
            (0..20).for_each(|_| drop(tell(&desks, |_| ())));
            if let Some(new) = exchange(&domain, &desks, &objects, *size) {
                (objects, exchanged) = (new, exchanged + 1);
            }
        }
        drop(desks);
        let added: u64 = threads.into_iter().map(|thread| thread.join().expect("no panic").added).sum();
        assert_eq!(objects.parts.total(|sum, part| *sum += part), added);
        exchanged
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]
    #[test]
    fn every_committed_change_is_there_exactly_once(
        seed in 0u64..1000,
        sizes in prop::collection::vec(3 * KEYS..8 * KEYS, 1..6),
    ) {
        prop_assert!(run(seed, &sizes) > 0);
    }
}

/// A map of one worker with keys `0..keys`, from which all that are no multiple of `left` have been removed again.
fn filled(capacity: u32, keys: u32, left: u32) -> (Arc<Domain>, Tx, Map<u32, u32>) {
    let domain = Domain::new(1);
    let (map, mut tx) = (map(&domain, capacity), Tx::new(&domain, 0));
    for key in 0..keys {
        map.insert(&mut tx, &key, &key).expect("alone");
    }
    for key in (0..keys).filter(|key| key % left != 0) {
        map.remove(&mut tx, &key).expect("alone");
    }
    tx.commit().expect("alone");
    (domain, tx, map)
}

fn map(domain: &Arc<Domain>, capacity: u32) -> Map<u32, u32> {
    let builder = &mut StateBuilder::new(domain, HugePages::Never);
    Map::new(builder, &MapConfig { capacity, ..MapConfig::default() }).expect("a map")
}

/// Replaces a map by another one, and runs `meanwhile` in the middle.
fn succeed(tx: &mut Tx, pair: Pair, mut meanwhile: impl FnMut(&mut Tx)) -> Result<usize, String> {
    let succession = Succession::new(vec![pair]).map_err(|error| error.to_string())?;
    let mut bringing = Bringing::begin(Arc::clone(&succession), tx);
    succession.open();
    while !succession.is_complete() {
        bringing.bring(tx);
        meanwhile(tx);
    }
    bringing.end(tx);
    succession.finish().map_err(|error| error.to_string())
}

#[test]
fn every_free_entry_of_the_new_map_can_be_had_and_no_more() {
    for capacity in [300, 200, 1000] {
        let (domain, mut tx, before) = filled(300, 150, 3);
        let after = map(&domain, capacity);
        assert!(succeed(&mut tx, (before.object(), after.object()), |_| ()) >= Ok(50));
        let next = |tx: &mut Tx, key: u32| loop {
            match after.insert(tx, &key, &0).and_then(|inserted| tx.commit().map(|_| inserted)) {
                Ok(inserted) => break inserted,
                Err(_) => tx.abort(),
            }
        };
        let more = (1000..).take_while(|key| next(&mut tx, *key) == Inserted::New).count();
        assert_eq!(more as u32, capacity - 50);
    }
}

#[test]
fn a_smaller_object_takes_over_only_if_nothing_is_in_use_beyond_its_end() {
    let (domain, mut tx, before) = filled(300, 150, 3);
    let small = map(&domain, 140);
    let pair = || (before.object(), small.object());
    let error = succeed(&mut tx, pair(), |_| ()).expect_err("entry 147 is in use");
    assert!(error.contains("beyond the 140"), "{error}");
    // Keys that are removed while the others are copied are no longer in the way.
    let mut keys = [141, 144, 147].into_iter();
    let small = map(&domain, 140);
    let done = succeed(&mut tx, (before.object(), small.object()), |tx| {
        for key in keys.by_ref() {
            before.remove(tx, &key).expect("alone");
        }
        tx.commit().expect("alone");
    });
    assert!(done.is_ok(), "{done:?}");
    assert_eq!((small.len(), small.object().snapshot()), (47, before.object().snapshot()));
}

#[test]
fn elements_of_another_kind_are_refused() {
    let domain = Domain::new(1);
    let vector = |len| {
        let config = DistributedVectorConfig { name: "vector".into(), len };
        let builder = &mut StateBuilder::new(&domain, HugePages::Never);
        DistributedVector::<u64>::new(builder, &config, |sum, part| *sum += part).expect("a vector").object()
    };
    let refused = |pair: Pair| Succession::new(vec![pair]).expect_err("unlike").to_string();
    assert!(refused((vector(5), vector(6))).contains("others than those that it would get"));
    assert!(refused((map(&domain, 5).object(), vector(6))).contains("others than those"));
    assert!(Succession::new(vec![(vector(5), vector(5))]).is_ok());
}

#[test]
fn what_was_never_used_is_not_brought() {
    let (domain, _, before) = filled(300, 10, 1);
    let after = map(&domain, 400).object();
    assert_eq!(after.bring(&*before.object(), 9), Brought::Whole);
    assert_eq!(after.bring(&*before.object(), 9), Brought::Nothing);
    assert_eq!(after.bring(&*before.object(), 10), Brought::Nothing);
}

//! Every structure compared with its sequential counterpart in std, with attempts that abort and packets that are rolled back.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use braid_state::{
    Allocator, AllocatorConfig, Conflict, Distributed, DistributedConfig, Inserted, Lease, Map, MapConfig, Tx, Vector,
    VectorConfig, Visit,
};
use common::{builder, commit};
use proptest::prelude::*;

/// The fate of a step: it stays, it is rolled back to its savepoint, or the whole attempt aborts.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Keep,
    Rollback,
    Abort,
    Commit,
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![6 => Just(Fate::Keep), 2 => Just(Fate::Rollback), 1 => Just(Fate::Abort), 3 => Just(Fate::Commit)]
}

/// Runs steps with their fates on a structure and on a model, which can be cloned.
fn run<M: Clone, S: std::fmt::Debug>(
    tx: &mut Tx,
    model: &mut M,
    steps: &[(S, Fate)],
    step: impl Fn(&mut Tx, &mut M, &S) -> Result<(), Conflict>,
) {
    let mut committed = model.clone();
    // "Full" and "none left" are decided by a worker that has its turn.
    tx.serialise();
    for (what, fate) in steps {
        let (savepoint, before) = (tx.savepoint(), model.clone());
        step(tx, model, what).expect("one worker meets no conflict");
        match fate {
            Fate::Keep => {}
            Fate::Rollback => {
                tx.rollback(&savepoint);
                *model = before;
            }
            Fate::Abort => {
                tx.abort();
                *model = committed.clone();
            }
            Fate::Commit => {
                commit(tx);
                tx.serialise();
                committed = model.clone();
            }
        }
    }
    commit(tx);
}

#[derive(Clone, Debug)]
enum MapStep {
    Get(u16),
    Insert(u16, u64),
    Update(u16),
    Remove(u16),
    ByHandle(u16),
    Scan,
    Sweep,
}

fn map_step() -> impl Strategy<Value = MapStep> {
    let key = || 0u16..48;
    prop_oneof![
        key().prop_map(MapStep::Get),
        (key(), any::<u64>()).prop_map(|(key, value)| MapStep::Insert(key, value)),
        key().prop_map(MapStep::Update),
        key().prop_map(MapStep::Remove),
        key().prop_map(MapStep::ByHandle),
        Just(MapStep::Scan),
        Just(MapStep::Sweep),
    ]
}

/// A key as long as an IPv6 five-tuple.
type Wide = [u8; 40];
type WideMap = Map<Wide, [u64; 3]>;

fn wide(key: u16) -> Wide {
    let mut bytes = [0xAA; 40];
    bytes[30..32].copy_from_slice(&key.to_be_bytes());
    bytes
}

fn map_case(tx: &mut Tx, map: &WideMap, model: &mut BTreeMap<u16, u64>, step: &MapStep) -> Result<(), Conflict> {
    let capacity = map.capacity() as usize;
    match *step {
        MapStep::Get(key) => assert_eq!(map.get(tx, &wide(key))?, model.get(&key).map(|v| [*v, 1, 2])),
        MapStep::Insert(key, value) => {
            let expected = match (model.contains_key(&key), model.len() < capacity) {
                (true, _) => Inserted::Replaced,
                (false, true) => Inserted::New,
                (false, false) => Inserted::Full,
            };
            assert_eq!(map.insert(tx, &wide(key), &[value, 1, 2])?, expected);
            if expected != Inserted::Full {
                model.insert(key, value);
            }
        }
        MapStep::Update(key) => {
            let updated = map.update(tx, &wide(key), |v| {
                v[0] = v[0].wrapping_add(1);
                v[0]
            })?;
            let expected = model.get_mut(&key).map(|v| {
                *v = v.wrapping_add(1);
                *v
            });
            assert_eq!(updated, expected);
        }
        MapStep::Remove(key) => assert_eq!(map.remove(tx, &wide(key))?.map(|v| v[0]), model.remove(&key)),
        MapStep::ByHandle(key) => {
            let handle = map.find(tx, &wide(key))?;
            assert_eq!(handle.is_some(), model.contains_key(&key));
            if let Some(handle) = handle {
                assert_eq!(map.value_at(tx, handle)?.map(|v| v[0]), model.get(&key).copied());
                assert_eq!(map.update_at(tx, handle, |v| v[0] = 9)?, Some(()));
                model.insert(key, 9);
            }
        }
        MapStep::Scan => {
            let (mut cursor, mut seen) = (Some(0), BTreeMap::new());
            while let Some(at) = cursor {
                cursor = map.for_each(tx, at, 5, |_, key, value| {
                    seen.insert(u16::from_be_bytes([key[30], key[31]]), value[0]);
                    Ok(if value[0] % 7 == 3 { Visit::Remove } else { Visit::Keep })
                })?;
            }
            assert_eq!(&seen, &*model);
            model.retain(|_, value| *value % 7 != 3);
        }
        MapStep::Sweep => {
            let number = |key: &Wide| u16::from_be_bytes([key[30], key[31]]);
            let mut seen = BTreeMap::new();
            let odd = map.glance(tx, 0..u32::MAX, |key, value| {
                seen.insert(number(key), value[0]);
                value[0] % 2 == 1
            })?;
            assert_eq!(&seen, &*model);
            assert_eq!(odd.count_ones() as usize, model.values().filter(|value| **value % 2 == 1).count());
            for index in 0..map.capacity() {
                let is_odd = odd >> index & 1 == 1;
                if let Some((key, value)) = map.remove_if(tx, index, |_, value| value[0] % 5 == 2)? {
                    assert_eq!((value, is_odd), ([seen[&number(&key)], 1, 2], value[0] % 2 == 1));
                }
            }
            assert_eq!(map.remove_if(tx, map.capacity(), |_, _| true)?, None, "there is no such entry");
            model.retain(|_, value| *value % 5 != 2);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_map_is_a_map(steps in prop::collection::vec((map_step(), fate()), 1..120), capacity in 1u32..60, poor in any::<bool>()) {
        let (domain, mut builder) = builder(1);
        // A hash that maps everything to the same two buckets must not lose a single entry.
        let hash = if poor { |_: &[u8], _| 7 } else { braid_state::hash::mixed };
        let config = MapConfig { name: "m".into(), capacity, hash, ..MapConfig::default() };
        let map = WideMap::new(&mut builder, &config).unwrap();
        let mut tx = Tx::new(&domain, 0);
        let mut model = BTreeMap::new();
        run(&mut tx, &mut model, &steps, |tx, model, step| map_case(tx, &map, model, step));
        prop_assert_eq!(map.len(), model.len());
        let expected: Vec<u8> = model.iter().flat_map(|(key, value)| {
            [&wide(*key)[..], &value.to_ne_bytes(), &1u64.to_ne_bytes(), &2u64.to_ne_bytes()].concat()
        }).collect();
        prop_assert_eq!(map.object().snapshot(), expected);
    }

    #[test]
    fn a_vector_is_a_vector(steps in prop::collection::vec(((0u32..12, any::<u32>()), fate()), 1..80)) {
        let (domain, mut builder) = builder(1);
        let config = VectorConfig { name: "v".into(), len: 10 };
        let vector = Vector::<[u32; 3]>::new(&mut builder, &config, [5, 0, 1]).unwrap();
        let mut tx = Tx::new(&domain, 0);
        let mut model = vec![[5u32, 0, 1]; 10];
        run(&mut tx, &mut model, &steps, |tx, model, (index, value)| {
            assert_eq!(vector.get(tx, *index)?, model.get(*index as usize).copied());
            let updated = vector.update(tx, *index, |v| { v[1] ^= value; v[1] })?;
            let expected = model.get_mut(*index as usize).map(|v| { v[1] ^= value; v[1] });
            assert_eq!(updated, expected);
            if value % 3 == 0 {
                assert_eq!(vector.set(tx, *index, [*value; 3])?, *index < 10);
                if let Some(v) = model.get_mut(*index as usize) { *v = [*value; 3] }
            }
            Ok(())
        });
        let bytes: Vec<u8> = model.iter().flatten().flat_map(|word| word.to_ne_bytes()).collect();
        prop_assert_eq!(vector.object().snapshot(), bytes);
    }

    #[test]
    fn an_allocator_leases_every_resource_once(
        steps in prop::collection::vec(((0u8..6, 0u32..16), fate()), 1..120),
        workers in 1usize..4,
    ) {
        let (domain, mut builder) = builder(workers);
        let config = AllocatorConfig { name: "a".into(), resources: 16, ..AllocatorConfig::default() };
        let allocator = Allocator::new(&mut builder, &config).unwrap();
        let mut tx = Tx::new(&domain, 0);
        let mut model: BTreeMap<u32, Lease> = BTreeMap::new();
        run(&mut tx, &mut model, &steps, |tx, model, (what, at)| {
            let lease = match what {
                0 if model.len() == 16 => {
                    assert_eq!(allocator.allocate(tx)?, None);
                    return Ok(());
                }
                1 if model.len() == 16 => return Ok(()),
                0 => allocator.allocate(tx)?.unwrap(),
                1 => {
                    let lease = allocator.allocate_preferring(tx, *at)?.unwrap();
                    assert!(lease.index == *at || model.contains_key(at), "{lease:?} instead of {at}");
                    lease
                }
                2 => {
                    let range = at / 4 * 4..at / 4 * 4 + 4;
                    if range.clone().all(|n| model.contains_key(&n)) {
                        assert_eq!(allocator.allocate_where(tx, range)?, None);
                        return Ok(());
                    }
                    let lease = allocator.allocate_where(tx, range.clone())?.unwrap();
                    assert!(range.contains(&lease.index));
                    lease
                }
                3 | 4 => {
                    if let Some(lease) = model.remove(at) {
                        assert!(allocator.is_live(tx, lease)?);
                        assert!(allocator.free(tx, lease)?);
                        assert!(!allocator.is_live(tx, lease)? && !allocator.free(tx, lease)?);
                    }
                    return Ok(());
                }
                _ => {
                    for lease in model.values() { assert!(allocator.refresh(tx, *lease)?) }
                    return Ok(());
                }
            };
            assert_eq!(model.insert(lease.index, lease), None, "leased twice");
            Ok(())
        });
        prop_assert_eq!(allocator.leased(), model.len());
        // Nothing is lost: everything that is not leased can still be allocated.
        let mut rest = BTreeSet::new();
        while model.len() + rest.len() < 16 {
            rest.insert(allocator.allocate(&mut tx).unwrap().unwrap().index);
        }
        commit(&mut tx);
    }

    #[test]
    fn a_distributed_sum_is_a_sum(
        steps in prop::collection::vec(((0usize..3, 1u64..100), fate()), 1..80),
        staleness_ns in prop_oneof![Just(0u64), Just(50)],
    ) {
        let (domain, mut builder) = builder(3);
        let config = DistributedConfig { name: "d".into(), staleness_ns };
        let sum = Distributed::<u64>::new(&mut builder, &config, 0).unwrap();
        let mut tx = Tx::new(&domain, 0);
        let mut model = [0u64; 3];
        let mut now = 0;
        for ((worker, add), fate) in &steps {
            // One worker after another, as in a replay; every read finds copies that are too old.
            now += 100;
            tx.set_now(now);
            tx.set_worker(*worker);
            let before = model;
            model[*worker] += add;
            sum.update(&mut tx, |part| *part += add).unwrap();
            prop_assert_eq!(sum.read(&mut tx, |sum, part| *sum += part).unwrap(), model.iter().sum::<u64>());
            match fate {
                Fate::Keep | Fate::Commit => commit(&mut tx),
                Fate::Rollback | Fate::Abort => { tx.abort(); model = before; }
            }
        }
        prop_assert_eq!(sum.total(|sum, part| *sum += part), model.iter().sum::<u64>());
    }
}

#[test]
fn a_full_map_says_so_exactly_and_has_room_again_after_a_removal() {
    let (domain, mut builder) = builder(2);
    let config = MapConfig { name: "m".into(), capacity: 10, ..MapConfig::default() };
    let map = Map::<u32, u32>::new(&mut builder, &config).unwrap();
    let mut tx = Tx::new(&domain, 0);
    for key in 0..10 {
        assert_eq!(map.insert(&mut tx, &key, &key), Ok(Inserted::New));
    }
    commit(&mut tx);
    // The first answer is decided alone, the following ones by one read.
    assert!(map.insert(&mut tx, &10, &0).is_err());
    tx.abort();
    for _ in 0..3 {
        assert_eq!(map.insert(&mut tx, &10, &0), Ok(Inserted::Full));
        assert_eq!(map.insert(&mut tx, &3, &33), Ok(Inserted::Replaced));
        commit(&mut tx);
    }
    assert_eq!(tx.stats().turns, 1);
    assert_eq!(map.remove(&mut tx, &4), Ok(Some(4)));
    commit(&mut tx);
    assert_eq!(map.insert(&mut tx, &10, &0), Ok(Inserted::New));
    commit(&mut tx);
    assert_eq!((map.len(), map.get(&mut tx, &4), map.get(&mut tx, &3)), (10, Ok(None), Ok(Some(33))));
}

#[test]
fn a_key_that_came_after_the_look_is_filled_once() {
    let (domain, mut builder) = builder(1);
    let config = MapConfig { name: "m".into(), capacity: 8, ..MapConfig::default() };
    let map: Map<u64, u64> = Map::new(&mut builder, &config).expect("fits");
    let mut tx = Tx::new(&domain, 0);
    for key in 0..3 {
        let vacancy = map.look(&mut tx, &key).expect("alone").expect_err("it is not there yet");
        assert_eq!(map.insert(&mut tx, &key, &1), Ok(Inserted::New));
        let found = map.find(&mut tx, &key).expect("alone");
        assert_eq!(map.fill(&mut tx, vacancy, &key, &2).expect("alone"), found);
        tx.commit().expect("alone");
        assert_eq!(map.len() as u64, key + 1);
    }
    // The same holds if the attempt itself has freed the entry that the key gets.
    map.remove(&mut tx, &0).expect("alone");
    let vacancy = map.look(&mut tx, &9).expect("alone").expect_err("it is not there yet");
    assert_eq!(map.insert(&mut tx, &9, &1), Ok(Inserted::New));
    map.fill(&mut tx, vacancy, &9, &2).expect("alone");
    tx.commit().expect("alone");
    assert_eq!((map.len(), map.remove(&mut tx, &9), map.get(&mut tx, &9)), (3, Ok(Some(2)), Ok(None)));
}

#[test]
fn an_empty_range_is_said_to_be_empty_until_one_of_it_comes_back() {
    let (domain, mut builder) = builder(2);
    let config = AllocatorConfig { name: "a".into(), resources: 100, ..AllocatorConfig::default() };
    let allocator = Allocator::new(&mut builder, &config).unwrap();
    let mut tx = Tx::new(&domain, 1);
    let leases: Vec<_> = (0..10).map(|_| allocator.allocate_where(&mut tx, 20..30).unwrap().unwrap()).collect();
    commit(&mut tx);
    tx.serialise();
    for _ in 0..3 {
        assert_eq!(allocator.allocate_where(&mut tx, 20..30), Ok(None));
        assert_eq!(allocator.allocate_where(&mut tx, 24..26), Ok(None));
        commit(&mut tx);
    }
    assert!(allocator.free(&mut tx, leases[5]).unwrap());
    commit(&mut tx);
    let again = allocator.allocate_where(&mut tx, 20..30).unwrap().unwrap();
    assert_eq!((again.index, again.generation), (leases[5].index, 1));
}

#[test]
fn a_wanted_resource_that_is_taken_costs_a_neighbour_and_no_turn() {
    let (domain, mut builder) = builder(2);
    let config = AllocatorConfig { name: "a".into(), resources: 100, ..AllocatorConfig::default() };
    let allocator = Allocator::new(&mut builder, &config).unwrap();
    let mut tx = Tx::new(&domain, 1);
    let mut near = |wanted, from| {
        let lease = allocator.allocate_near(&mut tx, 20..30, wanted, from).unwrap();
        commit(&mut tx);
        lease.map(|lease| lease.index)
    };
    assert_eq!(near(Some(25), 20), Some(25));
    assert_eq!(near(Some(25), 25), Some(26));
    assert_eq!(near(Some(7), 28), Some(28), "beyond the range it is not wanted");
    assert_eq!(near(None, 99), Some(20));
    assert_eq!(tx.stats().turns, 0);
}

#[test]
fn a_lease_expires_after_its_validity_and_never_before() {
    let (domain, mut builder) = builder(1);
    let config =
        AllocatorConfig { name: "a".into(), resources: 50, validity_ns: Some(1_000_000), precision_ns: 1 << 10 };
    let allocator = Allocator::new(&mut builder, &config).unwrap();
    let mut tx = Tx::new(&domain, 0);
    let expire = |tx: &mut Tx, now: u64| {
        let mut gone = Vec::new();
        allocator
            .expire(tx, now, 50, |_, lease| {
                gone.push(lease.index);
                Ok(())
            })
            .unwrap();
        commit(tx);
        gone
    };
    tx.set_now(5_000);
    let (a, b) = (allocator.allocate(&mut tx).unwrap().unwrap(), allocator.allocate(&mut tx).unwrap().unwrap());
    commit(&mut tx);
    assert_eq!(expire(&mut tx, 1_004_999), vec![]);
    tx.set_now(900_000);
    assert!(allocator.refresh(&mut tx, b).unwrap());
    commit(&mut tx);
    assert_eq!(expire(&mut tx, 1_005_000 + 1024), vec![a.index]);
    assert!(!allocator.refresh(&mut tx, a).unwrap() && allocator.is_live(&mut tx, b).unwrap());
    commit(&mut tx);
    assert_eq!(expire(&mut tx, 1_899_999), vec![]);
    assert_eq!(expire(&mut tx, 1_900_000 + 1024), vec![b.index]);
    assert_eq!(allocator.leased(), 0);
}

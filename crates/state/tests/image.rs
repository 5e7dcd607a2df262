//! Structures are saved and restored: into larger and smaller ones, and from damaged images.

use std::sync::Arc;

use braid_state::{
    Allocator, AllocatorConfig, Distributed, DistributedConfig, DistributedVector, DistributedVectorConfig, Domain,
    HugePages, Map, MapConfig, StateBuilder, StateObject, Tx, Vector, VectorConfig,
};
use proptest::prelude::*;

/// A builder and worker 0 of a fresh domain.
fn fresh(workers: usize) -> (StateBuilder, Tx) {
    let domain = Domain::new(workers);
    (StateBuilder::new(&domain, HugePages::Never), Tx::new(&domain, 0))
}

fn map(builder: &mut StateBuilder, capacity: u32) -> Map<u32, u64> {
    Map::new(builder, &MapConfig { capacity, ..MapConfig::default() }).expect("a map")
}

fn restore(object: Arc<dyn StateObject>, tx: &mut Tx, image: &[u8]) -> Result<(), String> {
    object.restore(tx, image).map_err(|error| error.to_string())
}

/// A map of `keys` keys from which every fifth was removed again.
fn filled(keys: u32) -> (Map<u32, u64>, Vec<u8>) {
    let (mut builder, mut tx) = fresh(2);
    let map = map(&mut builder, 300);
    for key in 0..keys {
        map.insert(&mut tx, &key, &(u64::from(key) * 3)).expect("alone");
    }
    for key in (0..keys).step_by(5) {
        map.remove(&mut tx, &key).expect("alone");
    }
    tx.commit().expect("alone");
    let image = map.object().save();
    (map, image)
}

#[test]
fn a_map_keeps_keys_values_and_handles() {
    let (mut builder, mut tx) = fresh(2);
    let before = map(&mut builder, 300);
    for key in 0..200 {
        before.insert(&mut tx, &key, &u64::from(key * 7)).expect("alone");
    }
    let (kept, lost) = (before.find(&mut tx, &17).expect("alone"), before.find(&mut tx, &18).expect("alone"));
    before.remove(&mut tx, &18).expect("alone");
    tx.commit().expect("alone");
    for (workers, capacity) in [(1, 300), (4, 1000)] {
        let (mut builder, mut tx) = fresh(workers);
        let after = map(&mut builder, capacity);
        assert_eq!(restore(after.object(), &mut tx, &before.object().save()), Ok(()));
        assert_eq!(after.len(), 199);
        assert_eq!(after.object().snapshot(), before.object().snapshot());
        assert_eq!(after.value_at(&mut tx, kept.expect("there")), Ok(Some(17 * 7)));
        assert_eq!(after.value_at(&mut tx, lost.expect("there")), Ok(None));
        for key in 1000..1000 + (capacity - 199) {
            after.insert(&mut tx, &key, &1).expect("alone");
        }
        tx.commit().expect("alone");
        assert_eq!(after.len() as u32, capacity, "every free entry is still there");
        assert_eq!(after.value_at(&mut tx, lost.expect("there")), Ok(None), "a stale handle stays stale");
    }
}

#[test]
fn a_smaller_map_takes_what_fits_and_refuses_what_does_not() {
    let (before, image) = filled(100);
    let (mut builder, mut tx) = fresh(1);
    let after = map(&mut builder, 80);
    assert_eq!(restore(after.object(), &mut tx, &image), Ok(()));
    assert_eq!(after.object().snapshot(), before.object().snapshot());
    let small =
        Map::<u32, u64>::new(&mut builder, &MapConfig { name: "small".into(), capacity: 79, ..MapConfig::default() });
    let error = restore(small.expect("a map").object(), &mut tx, &image).expect_err("80 keys");
    assert!(error.contains("room for 79"), "{error}");
}

#[test]
fn a_key_that_stands_in_an_image_twice_is_refused_wherever_it_is_put() {
    let (_, image) = filled(100);
    // After the sizes of key and value follow number and head of each entry and, if it is live (an odd head), four bytes of key and eight of value.
    let mut at = 16;
    while image[at + 8] & 1 == 0 {
        at += 16;
    }
    let entry = &image[at..at + 28];
    for index in [200u64, 100_000] {
        let mut twice = image.clone();
        twice.extend(index.to_le_bytes().iter().chain(&entry[8..]));
        let (mut builder, mut tx) = fresh(1);
        let error = restore(map(&mut builder, 300).object(), &mut tx, &twice).expect_err("the key again");
        assert!(error.contains("a key stands in it twice"), "{error}");
    }
}

#[test]
fn an_allocator_keeps_leases_generations_and_times() {
    let config = AllocatorConfig { resources: 50, validity_ns: Some(1_000_000_000), ..AllocatorConfig::default() };
    let (mut builder, mut tx) = fresh(2);
    let before = Allocator::new(&mut builder, &config).expect("an allocator");
    tx.set_now(5_000_000_000);
    let leases: Vec<_> = (0..20).map(|_| before.allocate(&mut tx).expect("alone").expect("free")).collect();
    tx.commit().expect("alone");
    before.free(&mut tx, leases[3]).expect("alone");
    tx.commit().expect("alone");
    let (mut builder, mut tx) = fresh(3);
    let after = Allocator::new(&mut builder, &config).expect("an allocator");
    assert_eq!(restore(after.object(), &mut tx, &before.object().save()), Ok(()));
    assert_eq!((after.leased(), after.object().snapshot()), (19, before.object().snapshot()));
    assert!(after.is_live(&mut tx, leases[4]).expect("alone"));
    assert!(!after.is_live(&mut tx, leases[3]).expect("alone"));
    let mut given = vec![];
    // "None" is decided in a turn, which the first attempt only requests.
    let next = |tx: &mut Tx| loop {
        match after.allocate(tx) {
            Ok(lease) => break lease,
            Err(_) => tx.abort(),
        }
    };
    while let Some(lease) = next(&mut tx) {
        given.push(lease);
        tx.commit().expect("alone");
    }
    tx.commit().expect("alone");
    assert_eq!(given.len(), 31, "nothing is leased twice and nothing lost");
    assert!(!given.contains(&leases[3]), "its resource has another generation");
    let gone = after.expire(&mut tx, 5_900_000_000, 50, |_, _| Ok(())).expect("alone");
    tx.commit().expect("alone");
    assert_eq!(gone, 31, "those of time 0 are too old; those put back were used a moment ago");
}

#[test]
fn parts_of_workers_that_are_no_more_are_added_to_the_others() {
    let config = DistributedConfig { name: "d".into(), staleness_ns: 0 };
    let made = |workers: usize| {
        let domain = Domain::new(workers);
        let mut builder = StateBuilder::new(&domain, HugePages::Never);
        let object = Distributed::<[u64; 2]>::new(&mut builder, &config, [0, 0]).expect("an object");
        (domain, object)
    };
    let (domain, before) = made(3);
    for worker in 0..3 {
        let mut tx = Tx::new(&domain, worker);
        before.update(&mut tx, |value| *value = [worker as u64 + 1, 10]).expect("alone");
        tx.commit().expect("alone");
    }
    for workers in [1, 2, 3, 5] {
        let (domain, after) = made(workers);
        assert_eq!(restore(after.object(), &mut Tx::new(&domain, 0), &before.object().save()), Ok(()));
        let sum = after.total(|sum, part| (sum[0], sum[1]) = (sum[0] + part[0], sum[1] + part[1]));
        assert_eq!(sum, [6, 30], "{workers} workers");
    }
}

#[test]
fn elements_of_workers_that_are_no_more_are_merged_into_those_of_the_others() {
    let made = |workers: usize, len: u32| {
        let domain = Domain::new(workers);
        let mut builder = StateBuilder::new(&domain, HugePages::Never);
        let config = DistributedVectorConfig { name: "v".into(), len };
        let object = DistributedVector::<u32>::new(&mut builder, &config, |sum, part| *sum = (*sum).max(*part));
        (domain, object.expect("an object"))
    };
    let (domain, before) = made(3, 4);
    for worker in 0..3 {
        let mut tx = Tx::new(&domain, worker);
        assert_eq!(before.update(&mut tx, 2, |value| *value = 10 - worker as u32), Ok(Some(())));
        assert_eq!(before.update(&mut tx, 4, |_| ()), Ok(None), "there are four");
        tx.commit().expect("alone");
    }
    for (workers, wanted) in [(1, vec![10]), (2, vec![10, 9]), (3, vec![10, 9, 8]), (5, vec![10, 9, 8, 0, 0])] {
        let (domain, after) = made(workers, 4);
        let mut tx = Tx::new(&domain, 0);
        assert_eq!(restore(after.object(), &mut tx, &before.object().save()), Ok(()));
        let mut parts = Vec::new();
        after.visit(&mut tx, 2, |part| parts.push(*part)).expect("alone");
        assert_eq!(parts, wanted, "{workers} workers");
    }
    let (domain, other) = made(3, 5);
    let error = restore(other.object(), &mut Tx::new(&domain, 0), &before.object().save());
    assert_eq!(error, Err("v: 4 elements were saved, 5 are wanted".to_owned()));
}

#[test]
fn a_vector_grows_and_keeps_its_elements() {
    let (mut builder, mut tx) = fresh(1);
    let vector = |builder: &mut StateBuilder, name: &str, len| {
        Vector::<u32>::new(builder, &VectorConfig { name: name.into(), len }, 9).expect("a vector")
    };
    let before = vector(&mut builder, "a", 3);
    before.update(&mut tx, 1, |value| *value = 0).expect("alone");
    tx.commit().expect("alone");
    let (longer, shorter) = (vector(&mut builder, "b", 5), vector(&mut builder, "c", 2));
    for (after, wanted) in [(longer, vec![9, 0, 9, 9, 9]), (shorter, vec![9, 0])] {
        assert_eq!(restore(after.object(), &mut tx, &before.object().save()), Ok(()));
        let values: Vec<_> = (0..after.len()).map(|i| after.get(&mut tx, i).expect("alone").expect("there")).collect();
        assert_eq!(values, wanted);
    }
}

#[test]
fn a_structure_under_an_inherited_name_is_the_inherited_one_if_it_is_alike() {
    let (mut builder, mut tx) = fresh(1);
    let before = map(&mut builder, 300);
    before.insert(&mut tx, &1, &2).expect("alone");
    tx.commit().expect("alone");
    let mut again = StateBuilder::new(builder.domain(), HugePages::Never);
    again.inherit(builder.finish());
    assert_eq!(map(&mut again, 300).get(&mut tx, &1), Ok(Some(2)));
    assert_eq!(map(&mut again, 301).get(&mut tx, &1), Ok(None), "another capacity: a structure of its own");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_image_harms_a_map_or_an_allocator(
        at in 0usize..4000, value: u8, cut in 0usize..4000, noise in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let (_, mut image) = filled(100);
        let at = at % image.len();
        image[at] = value;
        image.truncate(image.len() - cut.min(image.len()) % 97);
        for image in [image, noise] {
            let (mut builder, mut tx) = fresh(2);
            let after = map(&mut builder, 120);
            let _ = after.object().restore(&mut tx, &image);
            for key in 0..50 {
                let _ = after.insert(&mut tx, &key, &1);
            }
            prop_assert!(tx.commit().is_ok());
            let allocator = Allocator::new(&mut builder, &AllocatorConfig { name: "a".into(), resources: 40, ..Default::default() });
            let allocator = allocator.expect("an allocator");
            let _ = allocator.object().restore(&mut tx, &image);
            prop_assert!(allocator.allocate(&mut tx).is_ok());
            prop_assert!(tx.commit().is_ok());
        }
    }
}

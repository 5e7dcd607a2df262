//! Entries of a map that are guessed, held and given back: whatever was guessed, an entry that is held belongs to the key.

mod common;

use braid_state::{Locked, Map, MapConfig, Tx};
use common::{Random, builder, commit};

/// A hash that hardly distinguishes keys: different keys have the same tags and buckets.
fn poor(bytes: &[u8], _seed: u64) -> u64 {
    u64::from(bytes[0] & 1)
}

fn map(workers: usize, hash: fn(&[u8], u64) -> u64) -> (std::sync::Arc<braid_state::Domain>, Map<u64, [u64; 2]>) {
    let (domain, mut builder) = builder(workers);
    let config = MapConfig { name: "map".into(), capacity: 40, hash, ..MapConfig::default() };
    let map = Map::new(&mut builder, &config).expect("small");
    (domain, map)
}

/// Whether a key has these words.
fn is(words: &[u64]) -> impl FnOnce(&Locked<'_>) -> bool {
    move |held| words.iter().enumerate().all(|(k, word)| held.key_word(k) == *word)
}

/// Adds one to a key's first word in a transaction that holds its entry; false if it was not found this way.
fn add(map: &Map<u64, [u64; 2]>, tx: &mut Tx, key: u64, hash: u64) -> bool {
    let Some(held) = map.guess(hash, 1).and_then(|index| map.hold_if(tx, index, is(&[key]))) else { return false };
    let mut words = [0; 2];
    held.copy_to(&mut words);
    map.give_back(tx, held, &[words[0] + 1]);
    true
}

#[test]
fn what_is_held_is_changed_for_everybody_and_the_rest_of_the_value_stays() {
    let (domain, map) = map(2, braid_state::hash::mixed);
    let (mut tx, key) = (Tx::new(&domain, 0), 7u64);
    let hash = braid_state::hash::mixed(&key.to_ne_bytes(), MapConfig::default().seed);
    assert!(!add(&map, &mut tx, key, hash), "not there yet");
    map.insert(&mut tx, &key, &[1, 9]).expect("alone");
    commit(&mut tx);
    assert!(add(&map, &mut tx, key, hash) && add(&map, &mut Tx::new(&domain, 1), key, hash));
    assert_eq!(map.get(&mut tx, &key), Ok(Some([3, 9])));
}

#[test]
fn of_an_entry_of_several_lines_what_is_not_given_back_stays() {
    type Long = Map<[u64; 6], [u64; 8]>;
    let (domain, mut builder) = builder(1);
    let map = Long::new(&mut builder, &MapConfig { name: "long".into(), capacity: 4, ..MapConfig::default() });
    let (map, mut tx) = (map.expect("small"), Tx::new(&domain, 0));
    let keys: [[u64; 6]; 2] = [[1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 7]];
    for key in &keys {
        map.insert(&mut tx, key, &[9; 8]).expect("alone");
    }
    commit(&mut tx);
    let hash = braid_state::hash::mixed(zerocopy::IntoBytes::as_bytes(&keys[0]), MapConfig::default().seed);
    let guess = map.guess(hash, 5).expect("it is there");
    assert!(map.hold_if(&mut tx, guess, is(&keys[1])).is_none(), "keys differ in their last words");
    let held = map.hold_if(&mut tx, guess, is(&keys[0])).expect("its own");
    let mut words = [0; 8];
    held.copy_to(&mut words);
    assert_eq!(words, [9; 8]);
    map.give_back(&mut tx, held, &[1, 2, 3, 4, 5]);
    assert_eq!(map.get(&mut tx, &keys[0]), Ok(Some([1, 2, 3, 4, 5, 9, 9, 9])));
    assert_eq!(map.get(&mut tx, &keys[1]), Ok(Some([9; 8])));
}

#[test]
fn a_guess_that_has_become_wrong_holds_nothing() {
    let (domain, map) = map(1, braid_state::hash::mixed);
    let (mut tx, key) = (Tx::new(&domain, 0), 7u64);
    map.insert(&mut tx, &key, &[1, 9]).expect("alone");
    commit(&mut tx);
    let hash = braid_state::hash::mixed(&key.to_ne_bytes(), MapConfig::default().seed);
    let guess = map.guess(hash, 1).expect("it is there");
    map.remove(&mut tx, &key).expect("alone");
    commit(&mut tx);
    assert!(map.hold_if(&mut tx, guess, is(&[key])).is_none(), "its entry is free");
    for other in 100..140 {
        map.insert(&mut tx, &other, &[0, 0]).expect("alone");
    }
    commit(&mut tx);
    assert!(map.hold_if(&mut tx, guess, is(&[key])).is_none(), "its entry is another key's");
    assert!(map.hold_if(&mut tx, u32::MAX, is(&[key])).is_none(), "there is no such entry");
}

#[test]
fn keys_that_look_alike_are_never_taken_for_one_another() {
    let (domain, map) = map(1, poor);
    let (mut tx, mut random) = (Tx::new(&domain, 0), Random::new(1));
    let mut sums = [0; 30];
    for key in 0..30u64 {
        map.insert(&mut tx, &key, &[0, key]).expect("alone");
    }
    commit(&mut tx);
    let mut found = 0;
    for _ in 0..1000 {
        let key = random.below(30);
        if add(&map, &mut tx, key, poor(&key.to_ne_bytes(), 0)) {
            sums[key as usize] += 1;
            found += 1;
        }
    }
    assert!(found > 0, "the first of those that look alike is found");
    for key in 0..30u64 {
        assert_eq!(map.get(&mut tx, &key), Ok(Some([sums[key as usize], key])));
    }
}

//! Tests tables whose sets are moved from former tables against a plain `HashMap`.

use std::collections::HashMap;

use braid_packet::key::{KeyClass, KeyShape};
use braid_state::HugePages;
use proptest::prelude::*;

use super::*;
use crate::Whereabouts;
use crate::pass::{Found, PassSets};

/// Returns the places of two functions in a record, swapped on request.
fn places(swapped: bool) -> [Place; 2] {
    let places = [Place { bit: 1, offset: 0 }, Place { bit: 2, offset: 8 }];
    if swapped { [places[1], places[0]] } else { places }
}

/// Sets are identified by numbers; odd ones have long keys.
fn key(id: u16) -> SetKey {
    let id = u64::from(id);
    match id % 2 {
        0 => SetKey::narrow(KeyShape::default(), [id, !id]),
        _ => SetKey::wide(KeyShape::default(), [id, 1, 2, 3, !id]),
    }
}

fn keys_of(ids: &[u16]) -> Box<Keys> {
    let mut keys = Keys::boxed();
    let class = |id: &u16| key(*id).class();
    keys.of_all = ids.first().map(class).filter(|first| ids.iter().all(|id| class(id) == *first)).unwrap_or_default();
    for (i, key) in ids.iter().map(|&id| key(id)).enumerate() {
        (keys.class[i], keys.hash[i]) = (key.class(), hash_of(&key));
        match key.class() {
            KeyClass::Narrow => keys.narrow[i] = key.narrow_words(),
            _ => keys.wide[i] = key.wide_words(),
        }
    }
    keys
}

fn tables(capacity: usize) -> SetTables {
    SetTables::new(capacity, 16, KeyShape::default(), HugePages::Never).expect("small tables fit")
}

/// The tables, and their expected contents: the states of both functions by set.
struct Both {
    tables: SetTables,
    oracle: HashMap<u16, [u64; 2]>,
    swapped: bool,
    /// Makes each written state unique.
    count: u64,
}

impl Both {
    fn new(capacity: usize) -> Both {
        Both { tables: tables(capacity), oracle: HashMap::new(), swapped: false, count: 0 }
    }

    fn states(&mut self, at: SetSlot) -> [u64; 2] {
        places(self.swapped).map(|place| *self.tables.state::<u64>(at, place.offset))
    }

    fn write(&mut self, at: SetSlot, id: u16) {
        self.count += 1;
        let states = [self.count, self.count << 32];
        for (place, state) in places(self.swapped).into_iter().zip(states) {
            *self.tables.state(at, place.offset) = state;
        }
        self.oracle.insert(id, states);
    }

    /// Handles packets of these sets: known sets are found with their states and get new states, others become live if there
    /// is room.
    fn batch(&mut self, ids: &[u16]) {
        let (keys, mut found) = (keys_of(ids), Found::boxed());
        let todo: Vec<u16> = (0..ids.len() as u16).collect();
        let left = self.tables.to_move();
        PassSets { tables: &mut self.tables, keys: &keys, found: &mut found }.look_up(&todo, &[0; 256]);
        assert!(left - self.tables.to_move() <= ids.len(), "one set for each packet at most");
        for (i, &id) in ids.iter().enumerate() {
            let at = found.slots[i];
            let at = if at == SetSlot::MISS { self.tables.find(&keys, i) } else { at };
            if at != SetSlot::MISS {
                assert_eq!(Some(&self.states(at)), self.oracle.get(&id), "set {id}");
                self.write(at, id);
                continue;
            }
            assert!(!self.oracle.contains_key(&id), "set {id} is lost");
            let made = self.tables.insert(&keys, i);
            assert_eq!(made.is_some(), self.oracle.len() < self.tables.capacity());
            if let Some(at) = made {
                self.tables.set_live(at, 3);
                self.write(at, id);
            }
        }
    }

    fn end(&mut self, id: u16) {
        let at = self.tables.find_key(&key(id));
        assert_eq!(at != SetSlot::MISS, self.oracle.remove(&id).is_some());
        if at != SetSlot::MISS {
            self.tables.set_live(at, 0);
            self.tables.remove(at);
        }
    }

    /// Replaces the tables; `swap` exchanges the places of the two functions in the new ones.
    fn succeed(&mut self, capacity: usize, swap: bool) {
        let capacity = capacity.max(self.oracle.len());
        let from = places(self.swapped);
        self.swapped ^= swap;
        let to = places(self.swapped);
        let former = std::mem::replace(&mut self.tables, tables(capacity));
        self.tables.succeed(former, Carry::of([(from[0], to[0], 8), (from[1], to[1], 8)]));
    }

    fn round(&mut self, most: usize) {
        let left = self.tables.to_move();
        assert_eq!(self.tables.move_some(most), left - self.tables.to_move());
        assert!(left - self.tables.to_move() <= most.min(MOVED_MAX));
        if let Some(emptied) = self.tables.take_emptied() {
            assert_eq!(emptied.lens(), [0, 0]);
        }
    }

    fn check(&mut self) {
        let (created, ended) = self.tables.lives();
        assert_eq!((self.tables.len(), (created - ended) as usize), (self.oracle.len(), self.oracle.len()));
    }

    /// Returns the final contents of the tables.
    fn content(&mut self) -> HashMap<SetKey, [u64; 2]> {
        self.tables.settle();
        let mut all = Vec::new();
        self.tables.scan(0, self.tables.slots(), |at, _| all.push(at));
        all.into_iter().map(|at| (self.tables.key(at), self.states(at))).collect()
    }
}

#[derive(Clone, Debug)]
enum Step {
    Batch(Vec<u16>),
    End(u16),
    Round(usize),
    Succeed(usize, bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => prop::collection::vec(0..400u16, 1..120).prop_map(Step::Batch),
        4 => (0..400u16).prop_map(Step::End),
        4 => (0..40usize).prop_map(Step::Round),
        1 => (1..600usize, any::<bool>()).prop_map(|(capacity, swap)| Step::Succeed(capacity, swap)),
    ];
    prop::collection::vec(step, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn tables_that_change_in_the_middle_hold_what_a_hash_map_holds(steps in steps()) {
        let mut both = Both::new(150);
        for step in steps {
            match step {
                Step::Batch(ids) => both.batch(&ids),
                Step::End(id) => both.end(id),
                Step::Round(most) => both.round(most),
                Step::Succeed(capacity, swap) => both.succeed(capacity, swap),
            }
            both.check();
        }
        let expected: HashMap<SetKey, [u64; 2]> = both.oracle.iter().map(|(&id, &states)| (key(id), states)).collect();
        prop_assert_eq!(both.content(), expected);
    }
}

#[test]
fn all_sets_come_over_in_rounds_of_a_stated_size_and_the_former_tables_go() {
    let mut both = Both::new(1000);
    (0..10).for_each(|part| both.batch(&(part * 100..part * 100 + 100).collect::<Vec<_>>()));
    both.succeed(4000, false);
    let mapped = both.tables.memory_bytes();
    let mut rounds = 0;
    while both.tables.is_moving() {
        both.round(MOVED_MAX);
        rounds += 1;
        assert!(rounds < 1000, "{} sets are left", both.tables.to_move());
    }
    assert!(rounds >= 1000 / MOVED_MAX && both.tables.memory_bytes() < mapped);
    both.check();
    assert_eq!(both.content().len(), 1000);
}

#[test]
fn a_set_that_no_function_goes_on_with_ends() {
    let mut both = Both::new(10);
    both.batch(&[1, 2, 3]);
    let at = both.tables.find_key(&key(2));
    both.tables.set_live(at, 1);
    let at = both.tables.find_key(&key(3));
    both.tables.meta_mut(at).last_seen_ms = 77;
    let former = std::mem::replace(&mut both.tables, tables(10));
    // Only the second function stays, and is now the first.
    both.tables.succeed(former, Carry::of([(places(false)[1], places(false)[0], 8)]));
    assert_eq!((both.tables.find_key(&key(2)), both.tables.lives()), (SetSlot::MISS, (3, 1)));
    let at = both.tables.find_key(&key(3));
    let meta = *both.tables.meta_mut(at);
    assert_eq!((meta.live, meta.last_seen_ms, *both.tables.state::<u64>(at, 0)), (1, 77, 3 << 32));
    assert_eq!((both.tables.to_move(), both.tables.move_some(10), both.tables.to_move()), (1, 1, 0));
    both.tables.settle();
    assert_eq!((both.tables.len(), both.tables.lives()), (2, (3, 1)));
}

#[test]
fn tables_that_change_twice_before_all_sets_have_come_over_lose_none() {
    let mut both = Both::new(300);
    both.batch(&(0..200).collect::<Vec<_>>());
    both.succeed(500, true);
    both.round(5);
    both.succeed(200, true);
    assert_eq!((both.tables.to_move(), both.tables.capacity()), (200, 200));
    both.batch(&[7, 1000]);
    both.check();
    assert_eq!(both.content().len(), 200, "there was no room for another one");
}

#[test]
fn a_set_can_be_chosen_among_those_that_have_not_come_over() {
    let mut both = Both::new(20);
    both.batch(&[4, 5]);
    both.succeed(30, false);
    let mut left = Vec::new();
    both.tables.scan_former(0, both.tables.former_slots(), |at, _| left.push(at));
    let places = [both.tables.bring_one(left[0]), both.tables.bring_one(left[0]), both.tables.bring_one(left[1])];
    assert!(places[0].is_some() && places[1].is_none() && places[2].is_some() && both.tables.to_move() == 0);
    both.check();
}

#[test]
fn a_set_that_is_still_to_come_over_is_asked_for_its_state_where_that_was() {
    let (mut former, mut new, [before, now]) = (tables(10), tables(10), [places(false), places(true)]);
    let at = former.put(&key(4), SetMeta { live: before[0].bit, ..SetMeta::default() }).expect("room");
    *former.state(at, before[0].offset) = 7_u64;
    new.succeed(former, Carry::of([(before[0], now[0], 8), (before[1], now[1], 8)]));
    let mut found = Vec::new();
    new.scan_former(0, new.former_slots(), |at, _| found.push(Whereabouts::ToCome(at)));
    let [at] = found[..] else { panic!("{found:?}") };
    let states = now.map(|place| new.state_at::<u64>(at, place).copied());
    assert_eq!(states, [Some(7), None], "live for the first function only");
}

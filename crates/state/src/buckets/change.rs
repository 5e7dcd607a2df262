//! Inserts entries into buckets and removes them, in transactions or before any; chains keep the invariants of the parent
//! module.

use std::convert::Infallible;

use braid_stm::{Conflict, Op, Tx};

use super::{At, BUCKET_WORDS, Bucket, Buckets, Home, PLACES};
use crate::pool::{GIVEN, Giving};

/// Access to buckets while they change.
pub(super) trait Reach {
    /// Why a change is aborted.
    type Stop;

    /// The content of a bucket, which the change may depend on.
    fn read(&mut self, at: At) -> Result<Bucket, Self::Stop>;
    fn write(&mut self, at: At, bucket: &Bucket) -> Result<(), Self::Stop>;
    /// Takes a free overflow bucket.
    fn take_spare(&mut self) -> Result<Option<u32>, Self::Stop>;
    fn give_spare(&mut self, index: u32) -> Result<(), Self::Stop>;
}

/// Access in a transaction.
pub(super) struct Transacted<'a> {
    pub(super) buckets: &'a Buckets,
    pub(super) tx: &'a mut Tx,
    pub(super) op: Op,
}

impl Reach for Transacted<'_> {
    type Stop = Conflict;

    #[inline(always)]
    #[track_caller]
    fn read(&mut self, at: At) -> Result<Bucket, Conflict> {
        self.buckets.read(self.tx, at, self.op)
    }

    #[inline(always)]
    #[track_caller]
    fn write(&mut self, at: At, bucket: &Bucket) -> Result<(), Conflict> {
        let (arena, index) = self.buckets.place(at);
        self.tx.write(arena, index, &bucket.0, self.op)
    }

    #[track_caller]
    fn take_spare(&mut self) -> Result<Option<u32>, Conflict> {
        self.buckets.spare.take(self.tx)
    }

    #[track_caller]
    fn give_spare(&mut self, index: u32) -> Result<(), Conflict> {
        let giving = Giving { op: self.op, action: GIVEN, argument: u64::from(index) };
        self.buckets.spare.give(self.tx, index, giving)
    }
}

/// Access by one thread at a time, before any transaction uses the buckets.
pub(super) struct Unused<'a>(pub(super) &'a Buckets);

impl Reach for Unused<'_> {
    type Stop = Infallible;

    fn read(&mut self, at: At) -> Result<Bucket, Infallible> {
        Ok(self.0.bucket(at))
    }

    fn write(&mut self, at: At, bucket: &Bucket) -> Result<(), Infallible> {
        let (arena, index) = self.0.place(at);
        arena.initialise(index, &bucket.0);
        Ok(())
    }

    fn take_spare(&mut self) -> Result<Option<u32>, Infallible> {
        Ok(self.0.spare.remove_any(0))
    }

    fn give_spare(&mut self, index: u32) -> Result<(), Infallible> {
        self.0.spare.push(0, index);
        Ok(())
    }
}

/// Inserts an entry into the emptier of its key's buckets, or into the chain of the first.
#[cold]
#[track_caller]
pub(super) fn insert<R: Reach>(reach: &mut R, home: Home, entry: u32) -> Result<(), R::Stop> {
    let first = reach.read(At::Main(home.first))?;
    let second = reach.read(At::Main(home.second))?;
    let (main, mut bucket) = if second.used() < first.used() { (home.second, second) } else { (home.first, first) };
    if let Some(place) = bucket.empty_place() {
        bucket.set(place, Some(entry), home.tag);
        return reach.write(At::Main(main), &bucket);
    }
    insert_in_chain(reach, home, first, entry)
}

#[cold]
#[track_caller]
fn insert_in_chain<R: Reach>(reach: &mut R, home: Home, mut main: Bucket, entry: u32) -> Result<(), R::Stop> {
    if let Some(index) = main.next() {
        let at = At::Overflow(index);
        let mut bucket = reach.read(at)?;
        if let Some(place) = bucket.empty_place() {
            bucket.set(place, Some(entry), home.tag);
            return reach.write(at, &bucket);
        }
    }
    let Some(index) = reach.take_spare()? else {
        unreachable!("capacity / 8 + 1 overflow buckets are always enough, see the module's invariant")
    };
    let mut bucket = Bucket([0; BUCKET_WORDS]);
    bucket.set(0, Some(entry), home.tag);
    bucket.set_next(main.next());
    reach.write(At::Overflow(index), &bucket)?;
    main.set_next(Some(index));
    reach.write(At::Main(home.first), &main)
}

/// Removes an entry from the bucket that has it and fills the hole from the chain, if there is one.
#[cold]
#[track_caller]
pub(super) fn remove<R: Reach>(reach: &mut R, home: Home, entry: u32) -> Result<(), R::Stop> {
    for main in [home.first, home.second] {
        let mut at = At::Main(main);
        loop {
            let bucket = reach.read(at)?;
            let place = bucket.candidates(home.tag).find(|(_, found)| *found == entry);
            if let Some((place, _)) = place {
                return clear(reach, main, at, place);
            }
            match bucket.next() {
                Some(next) if main == home.first => at = At::Overflow(next),
                _ => break,
            }
        }
    }
    unreachable!("entry {entry} is live but in none of its key's buckets")
}

/// Clears a place in a main bucket or in its chain.
#[track_caller]
fn clear<R: Reach>(reach: &mut R, main: u32, at: At, place: usize) -> Result<(), R::Stop> {
    let mut head = reach.read(At::Main(main))?;
    let Some(index) = head.next() else {
        head.set(place, None, 0);
        return reach.write(At::Main(main), &head);
    };
    // The chain's first bucket gives away one of its numbers.
    let mut giver = reach.read(At::Overflow(index))?;
    let Some(last) = (0..PLACES).rev().find(|place| giver.entry(*place).is_some()) else {
        unreachable!("an empty overflow bucket in a chain")
    };
    let (moved, tag) = (giver.entry(last), giver.tag(last));
    giver.set(last, None, 0);
    reach.write(At::Overflow(index), &giver)?;
    // If the removed number itself was given away, there is no hole to fill.
    if at != At::Overflow(index) || place != last {
        let mut holed = reach.read(at)?;
        holed.set(place, moved, tag);
        reach.write(at, &holed)?;
    }
    if giver.used() == 0 {
        let mut head = reach.read(At::Main(main))?;
        head.set_next(giver.next());
        reach.write(At::Main(main), &head)?;
        reach.give_spare(index)?;
    }
    Ok(())
}

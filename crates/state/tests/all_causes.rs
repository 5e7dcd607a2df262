//! Every row of the table of conflicts occurs, and every conflict that occurs has a row.
//!
//! The test generates small structures at random, and two operations that meet in one of two ways: the other one commits (twice, because
//! numbers are reused) between ours and our commit, or ours runs while the other one holds its locks. Each conflict is looked up; in the end
//! none is unexplained, and every row has occurred.

mod common;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use braid_state::causes::{self, CAUSES};
use braid_state::{
    Allocator, AllocatorConfig, Conflict, Distributed, DistributedConfig, Domain, Lease, Map, MapConfig, Tx, Vector,
    VectorConfig, Visit,
};
use braid_stm::{ConflictKind, ConflictReport, YieldPoint};
use common::{Random, builder};

/// What a worker does in a transaction.
type Work = Arc<dyn Fn(&mut Tx) -> Result<(), Conflict> + Send + Sync>;
/// Kind, arena, the operation that was repeated, and the one that it met.
type Row = (&'static str, u16, String, String);

/// The transactions of two workers on one structure.
struct Scene {
    domain: Arc<Domain>,
    mine: Work,
    /// Whether `mine` takes something from a pool: then no other transaction may wait for everything taken to be returned.
    mine_takes: bool,
    /// Transactions that run one after another.
    theirs: Vec<Work>,
}

fn work(act: impl Fn(&mut Tx) -> Result<(), Conflict> + Send + Sync + 'static) -> Work {
    Arc::new(act)
}

fn set_up(domain: &Arc<Domain>, act: impl Fn(&mut Tx) -> Result<(), Conflict>) {
    let mut tx = Tx::new(domain, 0);
    while act(&mut tx).and_then(|()| tx.commit()).is_err() {
        tx.abort();
    }
}

fn on_a_map(random: &mut Random) -> Scene {
    let (domain, mut b) = builder(2);
    let capacity = [1, 2, 2, 8, 64][random.below(5) as usize];
    let usual = MapConfig { name: "map".into(), capacity, ..MapConfig::default() };
    // With the other hash, all keys look alike until they are compared.
    let hash = if random.below(2) == 0 { usual.hash } else { |_: &[u8], _| 7 };
    let config = MapConfig { hash, ..usual };
    let map = Map::<u64, u64>::new(&mut b, &config).expect("small");
    let present = if random.below(2) == 0 { capacity.into() } else { random.below(u64::from(capacity) + 1).min(8) };
    set_up(&domain, |tx| (0..present).try_for_each(|key| map.insert(tx, &key, &key).map(drop)));
    if random.below(2) == 0 {
        // Another worker may have been told that there is no room.
        set_up(&domain, |tx| if present >= capacity.into() { map.insert(tx, &99, &0).map(drop) } else { Ok(()) });
    }
    let mut tx = Tx::new(&domain, 0);
    let handles: Vec<_> = (0..present).filter_map(|key| map.find(&mut tx, &key).ok().flatten()).collect();
    drop(tx);
    let keys = present + 2;
    let mut act = || -> (Work, bool) {
        let map = map.clone();
        let key = if random.below(4) == 0 { present + random.below(2) } else { random.below(keys) };
        let handle = handles.get(random.below(present.max(1)) as usize).copied().unwrap_or_default();
        let kind = random.below(7);
        let act = match kind {
            0 => work(move |tx| map.get(tx, &key).map(drop)),
            1 => work(move |tx| map.insert(tx, &key, &7).map(drop)),
            2 => work(move |tx| map.update(tx, &key, |value| *value += 1).map(drop)),
            3 => work(move |tx| map.remove(tx, &key).map(drop)),
            4 => work(move |tx| map.value_at(tx, handle).map(drop)),
            5 => work(move |tx| map.update_at(tx, handle, |value| *value += 1).map(drop)),
            _ => {
                let (removes, cursor, budget) = (key % 2 == 0, random.below(8) as u32, 1 + random.below(8) as u32);
                let visit = move |value: u64| if removes { Visit::Remove } else { Visit::Replace(value + 1) };
                work(move |tx| map.for_each(tx, cursor, budget, |_, _, value| Ok(visit(*value))).map(drop))
            }
        };
        (act, kind == 1)
    };
    let (mine, mine_takes) = act();
    let mut theirs = vec![act().0, act().0];
    if random.below(2) == 0 {
        // An entry is freed and reused.
        let (map, gone, come) = (map.clone(), random.below(keys), random.below(keys));
        let again = map.clone();
        theirs = vec![
            work(move |tx| map.remove(tx, &gone).map(drop)),
            work(move |tx| again.insert(tx, &come, &5).map(drop)),
        ];
    }
    Scene { domain, mine, mine_takes, theirs }
}

fn on_a_vector(random: &mut Random) -> Scene {
    let (domain, mut b) = builder(2);
    let vector = Vector::<u64>::new(&mut b, &VectorConfig { name: "v".into(), len: 1 }, 0).expect("small");
    let mut act = || -> (Work, bool) {
        let vector = vector.clone();
        let act = match random.below(3) {
            0 => work(move |tx| vector.get(tx, 0).map(drop)),
            1 => work(move |tx| vector.set(tx, 0, 1).map(drop)),
            _ => work(move |tx| vector.update(tx, 0, |value| *value += 1).map(drop)),
        };
        (act, false)
    };
    let (mine, mine_takes) = act();
    let theirs = vec![act().0, act().0];
    Scene { domain, mine, mine_takes, theirs }
}

fn on_an_allocator(random: &mut Random) -> Scene {
    let (domain, mut b) = builder(2);
    let resources = [1, 2, 7, 14][random.below(4) as usize];
    let config = AllocatorConfig { name: "a".into(), resources, validity_ns: Some(1000), precision_ns: 1 };
    let allocator = Allocator::new(&mut b, &config).expect("small");
    let leases: Mutex<Vec<Lease>> = Mutex::default();
    let leased = if random.below(2) == 0 { resources.into() } else { random.below(u64::from(resources) + 1) };
    for _ in 0..leased {
        set_up(&domain, |tx| {
            leases.lock().expect("no panic").extend(allocator.allocate(tx)?);
            Ok(())
        });
    }
    let leases = leases.into_inner().expect("no panic");
    if random.below(2) == 0 {
        // Another worker may have been told that nothing is left.
        set_up(&domain, |tx| if leased >= resources.into() { allocator.allocate(tx).map(drop) } else { Ok(()) });
    }
    let mut act = || -> (Work, bool) {
        let (allocator, now, budget) = (allocator.clone(), random.below(2500), 1 + random.below(14) as u32);
        let lease = leases.get(random.below(leased.max(1)) as usize).copied().unwrap_or_default();
        let at = move |tx: &mut Tx| tx.set_now(now);
        let kind = random.below(6);
        let act = match kind {
            0 => work(move |tx| allocator.allocate(tx).map(drop)),
            1 => work(move |tx| {
                at(tx);
                allocator.refresh(tx, lease).map(drop)
            }),
            2 => work(move |tx| allocator.free(tx, lease).map(drop)),
            3 => work(move |tx| allocator.is_live(tx, lease).map(drop)),
            4 => work(move |tx| allocator.allocate_preferring(tx, lease.index).map(drop)),
            _ => work(move |tx| allocator.expire(tx, now, budget, |_, _| Ok(())).map(drop)),
        };
        (act, kind == 0 || kind == 4)
    };
    let (mine, mine_takes) = act();
    let theirs = vec![act().0, act().0];
    Scene { domain, mine, mine_takes, theirs }
}

fn on_a_sum(random: &mut Random) -> Scene {
    let (domain, mut b) = builder(2);
    let config = DistributedConfig { name: "sum".into(), staleness_ns: 0 };
    let sum = Distributed::<u64>::new(&mut b, &config, 0).expect("small");
    let mut act = || -> (Work, bool) {
        let sum = sum.clone();
        let act = match random.below(2) {
            0 => work(move |tx| sum.update(tx, |own| *own += 1)),
            _ => work(move |tx| sum.read(tx, |all, part| *all += part).map(drop)),
        };
        (act, false)
    };
    let (mine, mine_takes) = act();
    let theirs = vec![act().0, act().0];
    Scene { domain, mine, mine_takes, theirs }
}

/// The conflict of our transaction when the other one commits in between, or while it holds its locks.
fn meet(scene: &Scene, while_locked: bool, alone: bool) -> Option<ConflictReport> {
    let (mut a, mut b) = (Tx::new(&scene.domain, 0), Tx::new(&scene.domain, 1));
    // A recorded reader validates at its commit, so reads show their conflicts too.
    a.record();
    if while_locked {
        let (ours, found) = (Mutex::new(a), Arc::new(Mutex::new(None)));
        let (mine, into) = (Arc::clone(&scene.mine), Arc::clone(&found));
        b.yield_with(move |point| {
            if point == YieldPoint::Publish {
                let mut a = ours.lock().expect("one thread");
                let conflict = mine(&mut a).and_then(|()| a.commit().map(drop)).is_err();
                *into.lock().expect("one thread") = a.last_conflict().copied().filter(|_| conflict);
                a.abort();
            }
        });
        let _ = (scene.theirs[0])(&mut b).and_then(|()| b.commit().map(drop));
        drop(b);
        return found.lock().expect("one thread").take();
    }
    if alone {
        // Operations that can only be decided alone are decided.
        a.serialise();
    }
    let done = (scene.mine)(&mut a);
    if done.is_err() {
        return a.last_conflict().copied();
    }
    if a.has_turn() {
        return None;
    }
    for theirs in &scene.theirs {
        // An operation that needs to be alone asks for its turn first, and is then repeated alone.
        let tries = if scene.mine_takes { 1 } else { 2 };
        (0..tries).find(|_| {
            let done = theirs(&mut b).and_then(|()| b.commit().map(drop));
            b.abort();
            done.is_ok()
        })?;
    }
    match a.commit() {
        Ok(_) => None,
        Err(_) => a.last_conflict().copied(),
    }
}

#[test]
fn every_cause_happens_and_every_conflict_has_its_cause() {
    let scenes: [fn(&mut Random) -> Scene; 4] = [on_a_map, on_a_vector, on_an_allocator, on_a_sum];
    let (mut met, mut unexplained) = (BTreeSet::<Row>::new(), BTreeSet::<Row>::new());
    for seed in 0..60_000u64 {
        let mut random = Random::new(seed);
        let scene = scenes[[0, 0, 0, 1, 2, 2, 2, 3][(seed % 8) as usize]](&mut random);
        let Some(report) = meet(&scene, random.below(2) == 0, random.below(4) == 0) else { continue };
        let Some(object) = report.object else { continue };
        let kind = scene.domain.info(object).kind;
        assert!(report.location.file().ends_with("all_causes.rs"), "{kind}: {} is not the author's", report.location);
        match causes::cause(kind, &report) {
            Some(cause) => {
                met.insert((kind, cause.part.0.into(), cause.mine.to_owned(), cause.theirs.to_owned()));
            }
            None if report.kind == ConflictKind::Turn => {}
            None => {
                let name = |op| causes::operation(kind, op).unwrap_or("?").to_owned();
                unexplained.insert((kind, report.part.0.into(), name(report.mine), name(report.theirs)));
            }
        }
    }
    let all: BTreeSet<Row> =
        CAUSES.iter().map(|c| (c.kind, c.part.0.into(), c.mine.to_owned(), c.theirs.to_owned())).collect();
    let idle: Vec<_> = all.difference(&met).collect();
    assert!(unexplained.is_empty() && idle.is_empty(), "without a row: {unexplained:#?}\nnever happened: {idle:#?}");
}

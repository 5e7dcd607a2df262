//! The promise of the project, on the structures alone: random programs on several workers, under random schedules, equal a sequential
//! run in the recorded order: the same answers, the same final state, no illegal choice.

mod common;

use std::sync::Arc;

use braid_state::{
    Allocator, AllocatorConfig, Conflict, Distributed, DistributedConfig, Domain, Inserted, Lease, Map, MapConfig,
    StateBuilder, StateObject, Tx, Vector, VectorConfig,
};
use common::scheduler::Scheduler;
use common::{Random, builder};

const WORKERS: usize = 3;
const KEYS: u64 = 12;

struct World {
    map: Map<[u8; 40], u64>,
    vector: Vector<u64>,
    ports: Allocator,
    fresh: Distributed<u64>,
    stale: Distributed<u64>,
    /// Leases by their owner's key, so that handlers have something to free and refresh.
    leases: Map<u64, Lease>,
    objects: Vec<Arc<dyn StateObject>>,
}

fn world(mut builder: StateBuilder) -> World {
    let b = &mut builder;
    // Small on purpose: bugs hide in full maps, exhausted ports and shared buckets.
    let map = MapConfig { name: "map".into(), capacity: 8, ..MapConfig::default() };
    let leases = MapConfig { name: "leases".into(), capacity: 32, ..MapConfig::default() };
    let ports = AllocatorConfig { name: "ports".into(), resources: 9, validity_ns: Some(400), precision_ns: 16 };
    World {
        map: Map::new(b, &map).unwrap(),
        vector: Vector::new(b, &VectorConfig { name: "vector".into(), len: 4 }, 0).unwrap(),
        ports: Allocator::new(b, &ports).unwrap(),
        fresh: Distributed::new(b, &DistributedConfig { name: "fresh".into(), staleness_ns: 0 }, 0).unwrap(),
        stale: Distributed::new(b, &DistributedConfig { name: "stale".into(), staleness_ns: 60 }, 0).unwrap(),
        leases: Map::new(b, &leases).unwrap(),
        objects: builder.finish(),
    }
}

#[derive(Clone, Copy, Debug)]
struct Packet {
    what: u64,
    key: u64,
}

fn wide(key: u64) -> [u8; 40] {
    let mut bytes = [0; 40];
    bytes[16..24].copy_from_slice(&key.to_be_bytes());
    bytes
}

/// A handler with several effects per packet; its result stands for the packet that leaves.
fn handle(world: &World, tx: &mut Tx, packet: Packet) -> Result<u64, Conflict> {
    let Packet { what, key } = packet;
    let answer = match what % 10 {
        0 => world.map.get(tx, &wide(key))?.unwrap_or(u64::MAX),
        1 => match world.map.insert(tx, &wide(key), &what)? {
            Inserted::New => 0,
            Inserted::Replaced => 1,
            Inserted::Full => 2,
        },
        2 => world
            .map
            .update(tx, &wide(key), |v| {
                *v += 1;
                *v
            })?
            .unwrap_or(7),
        3 => world.map.remove(tx, &wide(key))?.unwrap_or(8),
        4 => world
            .vector
            .update(tx, (key % 5) as u32, |v| {
                *v = v.wrapping_mul(31) + what;
                *v
            })?
            .unwrap_or(9),
        5 | 6 => lease(world, tx, what, key)?,
        7 => {
            if let Some(lease) = world.leases.remove(tx, &key)? {
                u64::from(world.ports.free(tx, lease)?) + 10
            } else {
                12
            }
        }
        8 => {
            world.fresh.update(tx, |part| *part += 1)?;
            world.stale.update(tx, |part| *part += 1)?;
            world.stale.read(tx, |sum, part| *sum += part)?
        }
        _ => {
            let mut gone = 0;
            world.ports.expire(tx, tx.now(), 4, |tx, lease| {
                gone = gone * 16 + u64::from(lease.index) + 1;
                world.fresh.update(tx, |part| *part += 100)
            })?;
            gone * 1000 + world.fresh.read(tx, |sum, part| *sum += part)?
        }
    };
    Ok(answer)
}

fn lease(world: &World, tx: &mut Tx, what: u64, key: u64) -> Result<u64, Conflict> {
    if let Some(lease) = world.leases.get(tx, &key)?
        && world.ports.refresh(tx, lease)?
    {
        return Ok(u64::from(lease.index) + 1000);
    }
    let lease = match what % 3 {
        0 => world.ports.allocate(tx)?,
        1 => world.ports.allocate_preferring(tx, (key % 9) as u32)?,
        _ => world.ports.allocate_where(tx, 3..6)?,
    };
    let Some(lease) = lease else { return Ok(5000) };
    world.leases.insert(tx, &key, &lease)?;
    Ok(2000 + u64::from(lease.index) + (u64::from(lease.generation) << 16))
}

/// One committed transaction of the parallel run.
struct Recorded {
    sequence: u64,
    worker: usize,
    now: u64,
    packets: Vec<Packet>,
    answers: Vec<u64>,
    choices: Vec<u64>,
}

/// Runs a batch as the runtime does: with a savepoint per packet, and packets before a conflict commit.
fn run_batch(world: &World, tx: &mut Tx, packets: &[Packet], out: &mut Vec<Recorded>) {
    let (now, worker) = (tx.now(), tx.worker());
    let mut from = 0;
    while from < packets.len() {
        let mut answers = Vec::new();
        let mut savepoints = vec![tx.savepoint()];
        let mut result = Ok(());
        for packet in &packets[from..] {
            match handle(world, tx, *packet) {
                Ok(answer) => answers.push(answer),
                Err(conflict) => {
                    result = Err(conflict);
                    break;
                }
            }
            savepoints.push(tx.savepoint());
        }
        let mut committed = result.and_then(|()| tx.commit());
        while committed.is_err() {
            // The longest prefix that is not affected by the conflict.
            let keep = savepoints.iter().rposition(|savepoint| tx.survives(savepoint)).unwrap_or(0);
            let keep = keep.min(answers.len());
            if keep == 0 || keep == answers.len() && result.is_ok() {
                break;
            }
            result = Ok(());
            tx.rollback(&savepoints[keep]);
            answers.truncate(keep);
            savepoints.truncate(keep + 1);
            committed = tx.commit();
        }
        match committed {
            Ok(committed) => {
                let packets = packets[from..from + answers.len()].to_vec();
                from += packets.len();
                let choices = tx.recorded_choices().to_vec();
                out.push(Recorded { sequence: committed.sequence, worker, now, packets, answers, choices });
            }
            Err(_) => tx.abort(),
        }
    }
}

fn parallel(seed: u64, scheduled: bool, batches: usize) -> (Vec<Recorded>, Vec<Vec<u8>>) {
    let (domain, b) = builder(WORKERS);
    let world = world(b);
    let scheduler = Scheduler::new(WORKERS, seed);
    let mut recorded: Vec<Recorded> = std::thread::scope(|scope| {
        let run = |worker: usize| {
            let mut tx = Tx::new(&domain, worker);
            let (world, scheduler) = (&world, scheduler.clone());
            move || {
                let mut random = Random::new(seed * 31 + worker as u64);
                tx.record();
                if scheduled {
                    let token = scheduler.clone();
                    tx.yield_with(move |_| token.switch(worker));
                    scheduler.enter(worker);
                }
                let mut out = Vec::new();
                for batch in 0..batches as u64 {
                    tx.set_now(1000 + batch * 20 + random.below(15));
                    let packet = |_| Packet { what: random.below(1 << 20), key: random.below(KEYS) };
                    let packets: Vec<_> = (0..6).map(packet).collect();
                    run_batch(world, &mut tx, &packets, &mut out);
                }
                drop(tx);
                if scheduled {
                    scheduler.leave(worker);
                }
                out
            }
        };
        let threads: Vec<_> = (0..WORKERS).map(|worker| scope.spawn(run(worker))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no worker panics")).collect()
    });
    recorded.sort_by_key(|transaction| transaction.sequence);
    (recorded, world.objects.iter().map(|object| object.snapshot()).collect())
}

fn replay(recorded: &[Recorded]) -> Result<Vec<Vec<u8>>, String> {
    let (domain, b): (Arc<Domain>, _) = builder(WORKERS);
    let world = world(b);
    let mut tx = Tx::new(&domain, 0);
    for Recorded { sequence, worker, now, packets, answers, choices } in recorded {
        tx.set_worker(*worker);
        tx.set_now(*now);
        tx.replay(*sequence, choices.clone());
        for (packet, answer) in packets.iter().zip(answers) {
            let again = handle(&world, &mut tx, *packet).map_err(|_| format!("conflict at {sequence}"))?;
            if again != *answer {
                return Err(format!("{sequence}: {packet:?} answered {answer}, sequentially {again}"));
            }
        }
        tx.commit().map_err(|_| format!("conflict at the commit of {sequence}"))?;
        if let Some(violation) = tx.violations().first() {
            return Err(format!("{sequence}: {violation}"));
        }
    }
    Ok(world.objects.iter().map(|object| object.snapshot()).collect())
}

fn check(seed: u64, scheduled: bool, batches: usize) {
    let (recorded, parallel_state) = parallel(seed, scheduled, batches);
    match replay(&recorded) {
        Ok(sequential_state) => assert_eq!(parallel_state, sequential_state, "final state, seed {seed}"),
        Err(difference) => panic!("seed {seed}: {difference}"),
    }
}

#[test]
fn under_random_schedules_every_run_equals_a_sequential_one() {
    (0..60).for_each(|seed| check(seed, true, 12));
}

#[test]
fn with_threads_running_free_every_run_equals_a_sequential_one() {
    (0..40).for_each(|seed| check(seed, false, 150));
}

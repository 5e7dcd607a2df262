//! Threads move money between accounts while others count it: nothing may be lost, and no thread may ever see a wrong sum.
#![cfg(not(loom))]

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use braid_stm::{Conflict, Domain, Op, Tx};
use common::{Random, arena, retry};

const ACCOUNTS: u32 = 64;
const MONEY: u64 = 1000;
const READ: Op = Op::new(1);
const MOVE: Op = Op::new(2);

fn sum(tx: &mut Tx, bank: &braid_stm::Arena) -> Result<u64, Conflict> {
    let mut sum = 0u64;
    for account in 0..ACCOUNTS {
        sum = sum.wrapping_add(tx.read::<2>(bank, account, READ)?[0]);
    }
    // Opacity holds even in an attempt that will abort.
    assert_eq!(sum, u64::from(ACCOUNTS) * MONEY, "a state that no order produces");
    Ok(sum)
}

fn transfer(tx: &mut Tx, bank: &braid_stm::Arena, from: u32, to: u32) -> Result<(), Conflict> {
    let [a, n]: [u64; 2] = tx.read(bank, from, READ)?;
    tx.write(bank, from, &[a.wrapping_sub(1), n + 1], MOVE)?;
    let [b, n]: [u64; 2] = tx.read(bank, to, READ)?;
    tx.write(bank, to, &[b.wrapping_add(1), n + 1], MOVE)
}

#[test]
fn money_is_neither_made_nor_lost_and_every_reader_sees_the_right_sum() {
    let domain = Domain::new(3);
    let bank = arena(&domain, ACCOUNTS, 2);
    (0..ACCOUNTS).for_each(|account| bank.initialise(account, &[MONEY, 0]));
    let stop = AtomicBool::new(false);
    let moved: u64 = std::thread::scope(|scope| {
        let worker = |id: usize| {
            let (mut tx, mut random) = (Tx::new(&domain, id), Random::new(id as u64));
            let (bank, stop) = (&bank, &stop);
            move || {
                let mut moved = 0;
                while !stop.load(Ordering::Relaxed) {
                    if id == 2 || random.below(8) == 0 {
                        retry(&mut tx, |tx| sum(tx, bank).map(drop));
                        continue;
                    }
                    let pairs: Vec<_> =
                        (0..1 + random.below(4)).map(|_| (random.below(64), random.below(64))).collect();
                    retry(&mut tx, |tx| pairs.iter().try_for_each(|(a, b)| transfer(tx, bank, *a as u32, *b as u32)));
                    moved += pairs.len() as u64;
                }
                moved
            }
        };
        let workers: Vec<_> = (0..3).map(|id| scope.spawn(worker(id))).collect();
        std::thread::sleep(Duration::from_secs(1));
        stop.store(true, Ordering::Relaxed);
        workers.into_iter().map(|worker| worker.join().expect("no worker panics")).sum()
    });
    let mut tx = Tx::new(&domain, 0);
    retry(&mut tx, |tx| sum(tx, &bank).map(drop));
    let touched: u64 = (0..ACCOUNTS)
        .map(|n| {
            let mut words = [0; 2];
            bank.snapshot(n, &mut words);
            words[1]
        })
        .sum();
    assert_eq!(touched, 2 * moved, "every move counted on both sides, exactly once");
    assert!(moved > 1000, "{moved} moves");
}

#[test]
fn a_long_reader_in_a_storm_of_writers_gets_its_turn() {
    let domain = Domain::new(3);
    let bank = arena(&domain, ACCOUNTS, 2);
    (0..ACCOUNTS).for_each(|account| bank.initialise(account, &[MONEY, 0]));
    let stop = AtomicBool::new(false);
    let (long, attempts_most) = std::thread::scope(|scope| {
        for id in 1..3 {
            let (domain, bank, stop) = (&domain, &bank, &stop);
            scope.spawn(move || {
                let (mut tx, mut random) = (Tx::new(domain, id), Random::new(id as u64));
                while !stop.load(Ordering::Relaxed) {
                    let (a, b) = (random.below(64) as u32, random.below(64) as u32);
                    retry(&mut tx, |tx| transfer(tx, bank, a, b));
                }
            });
        }
        let (mut tx, mut done, mut most) = (Tx::new(&domain, 0), 0u64, 0u32);
        let end = Instant::now() + Duration::from_millis(700);
        while Instant::now() < end {
            // Reads everything and writes: a transaction that starves without turns.
            let attempts = retry(&mut tx, |tx| sum(tx, &bank).and_then(|_| transfer(tx, &bank, 1, 2)));
            most = most.max(attempts);
            done += 1;
        }
        stop.store(true, Ordering::Relaxed);
        (done, most)
    });
    assert!(long > 20, "{long} long transactions committed");
    // The patience, then the turn, with at most one commit per other worker that had already passed the check.
    assert!(attempts_most <= braid_stm::PATIENCE + 1 + 2, "{attempts_most} attempts");
}

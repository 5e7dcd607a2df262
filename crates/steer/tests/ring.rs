//! Dispatcher and rings: nothing is lost, nothing is reordered, and what is dropped is counted and its buffers are returned.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use braid_packet::{Batch, Buffers, FrameInfo, Layout, Pool, PoolConfig};
use braid_steer::ring::{WhenFull, rings};
use braid_steer::{Fields, Key, Reta, Steering, Symmetry};

const BUFFERS: u32 = 4096;

fn steering(workers: usize) -> Steering {
    let reta = Reta::new(128, workers).unwrap();
    Steering::new(Fields::FOUR_TUPLE, Symmetry::OneWay, &Key::microsoft(), reta).unwrap()
}

fn pool() -> Arc<Pool> {
    Pool::new(&PoolConfig { buffers: BUFFERS, jumbos: 0, ..PoolConfig::default() }).unwrap()
}

/// A UDP frame from 10.0.0.`flow`.
fn frame(flow: u8) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = etherparse::PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, flow], [192, 0, 2, 1], 64);
    builder.udp(1000, 53).write(&mut frame, b"question").unwrap();
    frame
}

fn fill(batch: &mut Batch, buffers: &mut Buffers, first: u64, count: u64) {
    for sequence in first..first + count {
        let info = FrameInfo { sequence, ..FrameInfo::default() };
        assert!(batch.copy_in(buffers, &frame((sequence % 23) as u8), &info));
    }
    batch.parse_all();
}

#[test]
fn every_frame_arrives_once_and_flows_keep_their_order() {
    const BATCHES: u64 = 200;
    const WORKERS: usize = 3;
    let (pool, layout) = (pool(), Arc::new(Layout::capture()));
    let (mut dispatcher, inlets) = rings(WORKERS, 256, WhenFull::Wait);
    let received = std::thread::scope(|scope| {
        let workers: Vec<_> = inlets
            .into_iter()
            .map(|mut inlet| {
                let (mut batch, mut buffers) = (Batch::new(&pool, &layout), Buffers::new(&pool));
                scope.spawn(move || {
                    let mut last: HashMap<u64, u64> = HashMap::new();
                    let mut count = 0;
                    while !inlet.is_finished() {
                        count += inlet.receive(&mut batch, 256) as u64;
                        for sequence in (0..batch.len()).map(|i| batch.sequence(i)) {
                            let before = last.insert(sequence % 23, sequence);
                            assert!(before.is_none_or(|before| before < sequence), "{before:?} before {sequence}");
                        }
                        batch.release(&mut buffers);
                        std::thread::yield_now();
                    }
                    count
                })
            })
            .collect();
        let (mut batch, mut buffers) = (Batch::new(&pool, &layout), Buffers::new(&pool));
        let steering = steering(WORKERS);
        for number in 0..BATCHES {
            fill(&mut batch, &mut buffers, number * 100, 100);
            dispatcher.dispatch(&mut batch, &steering, &mut buffers);
            assert!(batch.is_empty());
        }
        let counters = dispatcher.counters().clone();
        drop(dispatcher);
        let received: Vec<u64> = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
        assert_eq!((counters.ring_full, counters.worker_gone), (0, 0));
        assert_eq!(counters.packets, received);
        received
    });
    assert_eq!(received.iter().sum::<u64>(), BATCHES * 100);
    assert_eq!(pool.shared_free(), BUFFERS as usize, "every buffer came back");
}

#[test]
fn a_full_ring_drops_the_newest_frames_and_counts_them() {
    let (pool, layout) = (pool(), Arc::new(Layout::capture()));
    let (mut dispatcher, mut inlets) = rings(1, 256, WhenFull::WaitAtMost(Duration::ZERO));
    let (mut batch, mut buffers) = (Batch::new(&pool, &layout), Buffers::new(&pool));
    for first in [0, 200] {
        fill(&mut batch, &mut buffers, first, 200);
        dispatcher.dispatch(&mut batch, &steering(1), &mut buffers);
    }
    let counters = dispatcher.counters();
    assert_eq!((counters.packets[0], counters.full, counters.ring_full, inlets[0].lost()), (256, 1, 144, 144));
    assert_eq!(inlets[0].waiting(), 256);
    assert_eq!(inlets[0].receive(&mut batch, 256), 256);
    assert!((0..256).all(|i| batch.sequence(i) == i as u64), "the oldest stay, in order");
    batch.release(&mut buffers);
    drop(buffers);
    assert_eq!(pool.shared_free(), BUFFERS as usize);
}

#[test]
fn a_worker_that_takes_nothing_does_not_keep_the_others_from_their_packets() {
    let (pool, layout) = (pool(), Arc::new(Layout::capture()));
    let (mut dispatcher, mut inlets) = rings(2, 256, WhenFull::WaitAtMost(Duration::from_millis(1)));
    let (mut batch, mut buffers) = (Batch::new(&pool, &layout), Buffers::new(&pool));
    let mut blocked = inlets.pop().expect("two");
    let mut taken = 0;
    for first in 0..20 {
        fill(&mut batch, &mut buffers, first * 200, 200);
        dispatcher.dispatch(&mut batch, &steering(2), &mut buffers);
        taken += inlets[0].receive(&mut batch, 256) as u64;
        batch.release(&mut buffers);
    }
    let counters = dispatcher.counters();
    assert_eq!((counters.packets[0], counters.packets[1]), (taken, 256));
    assert_eq!(counters.ring_full, 4000 - taken - 256);
    assert_eq!((inlets[0].lost(), blocked.lost()), (0, counters.ring_full));
    // It goes on once it takes some again.
    assert_eq!(blocked.receive(&mut batch, 256), 256);
    batch.release(&mut buffers);
    fill(&mut batch, &mut buffers, 4000, 200);
    dispatcher.dispatch(&mut batch, &steering(2), &mut buffers);
    assert_eq!(inlets[0].receive(&mut batch, 256) + blocked.receive(&mut batch, 256), 200);
    batch.release(&mut buffers);
}

#[test]
fn a_worker_that_is_gone_does_not_stall_the_others() {
    let (pool, layout) = (pool(), Arc::new(Layout::capture()));
    let (mut dispatcher, inlets) = rings(2, 256, WhenFull::Wait);
    let (mut batch, mut buffers) = (Batch::new(&pool, &layout), Buffers::new(&pool));
    drop(inlets);
    for first in 0..6 {
        fill(&mut batch, &mut buffers, first * 200, 200);
        dispatcher.dispatch(&mut batch, &steering(2), &mut buffers);
    }
    let counters = dispatcher.counters();
    assert_eq!(counters.packets.iter().sum::<u64>() + counters.worker_gone, 1200);
    assert!(counters.worker_gone > 0 && batch.is_empty());
}

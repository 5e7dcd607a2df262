//! Measures how fast this crate is on this machine: generating, receiving from memory, reading and writing captures.
//! `cargo run --release -p braid-io --example rates`
//!
//! With a number as argument, it only receives that many batches of 128 small frames; the difference between two numbers, under
//! `valgrind --tool=callgrind`, gives the instructions.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use braid_io::generate::{Generator, Profile};
use braid_io::{FirstQueue, FrameStream, Next, Received, Repeat, ReplaySource, Source};
use braid_packet::{Batch, Buffers, Layout, Pool, PoolConfig};

/// Packets generated per profile.
const GENERATED: u64 = 2_000_000;
/// Packets received from memory.
const RECEIVED: u64 = 50_000_000;

fn main() {
    if let Some(batches) = std::env::args().nth(1).and_then(|argument| argument.parse().ok()) {
        receive(Profile::Uniform, 10_000, Layout::bare(), batches);
        return;
    }
    for profile in Profile::ALL {
        let mut generator = Generator::new(profile.config(GENERATED)).expect("a profile is valid");
        let start = Instant::now();
        while generator.advance() == Next::Frame {
            black_box(generator.frame());
        }
        let seconds = start.elapsed().as_secs_f64();
        println!("generate {profile:10} {:6.1} million packets/s", GENERATED as f64 / seconds / 1e6);
    }
    for (profile, frames, layout) in [
        (Profile::Uniform, 10_000, Layout::bare()),
        (Profile::Uniform, 1_000_000, Layout::bare()),
        (Profile::Uniform, 1_000_000, Layout::capture()),
        (Profile::Backbone, 1_000_000, Layout::bare()),
    ] {
        let carried = layout.record_bytes;
        let ns = receive(profile, frames, layout, u64::MAX);
        println!("receive  {profile:10} {ns:6.2} ns/packet, {frames} frames, {carried} bytes of metadata");
    }
}

/// Minimum time in nanoseconds per packet received from memory: replays `frames` frames in batches of 128 and does nothing with them.
fn receive(profile: Profile, frames: u64, layout: Layout, batches: u64) -> f64 {
    let mut generator = Generator::new(profile.config(frames)).expect("a profile is valid");
    let source = ReplaySource::load(
        profile.name(),
        &mut generator,
        u64::MAX,
        Repeat::PacketsPerQueue(RECEIVED.min(batches.saturating_mul(128))),
    );
    let mut queues = Box::new(source).open(1, Arc::new(FirstQueue)).expect("it opens");
    let pool = Pool::new(&PoolConfig::default()).expect("there is memory");
    let (mut batch, mut buffers) = (Batch::new(&pool, &Arc::new(layout)), Buffers::new(&pool));
    let mut best = f64::INFINITY;
    loop {
        // Take the best of many short pieces, so that other load on the machine does not count.
        let (start, before) = (Instant::now(), queues[0].counters().packets);
        for _ in 0..1000 {
            if queues[0].receive(&mut batch, &mut buffers, 128) != Received::Packets {
                return best;
            }
            black_box(&batch);
            batch.release(&mut buffers);
        }
        best = best.min(start.elapsed().as_secs_f64() * 1e9 / (queues[0].counters().packets - before) as f64);
    }
}

//! Nanoseconds per packet of hashing and steering. `cargo bench -p braid-steer`
//!
//! Frames of 64 bytes in batches of 128, UDP over IPv4, 4,096 flows, all in the first-level cache: only the arithmetic is
//! measured.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use braid_packet::{BATCH_MAX, Batch, Buffers, FrameInfo, Layout, Link, Pool, PoolConfig};
use braid_steer::{Fields, Key, Reta, Steering, Symmetry, Toeplitz};

const BATCH: usize = 128;
const ROUNDS: usize = 200;

/// Reports the best of many runs of about a tenth of a millisecond, some of which are undisturbed.
fn measure(name: &str, packets: usize, mut run: impl FnMut()) {
    let once = |run: &mut dyn FnMut()| {
        let start = Instant::now();
        run();
        start.elapsed().as_secs_f64() * 1e9 / packets as f64
    };
    let best = (0..2_000).map(|_| once(&mut run)).fold(f64::INFINITY, f64::min);
    println!("{name:<44} {best:>6.2} ns/packet");
}

fn frame(flow: u32) -> [u8; 60] {
    let mut frame = [0; 60];
    frame[12..16].copy_from_slice(&[0x08, 0x00, 0x45, 0x00]);
    frame[17] = 46;
    frame[22..24].copy_from_slice(&[64, 17]);
    frame[26..30].copy_from_slice(&(0x0a00_0000 | flow >> 3).to_be_bytes());
    frame[30..34].copy_from_slice(&[198, 51, 100, 7]);
    frame[34..36].copy_from_slice(&(10_000 + (flow & 7) as u16).to_be_bytes());
    frame[36..38].copy_from_slice(&80u16.to_be_bytes());
    frame[39] = 26;
    frame
}

fn batch() -> Batch {
    let Ok(pool) = Pool::new(&PoolConfig::default()) else { panic!("no memory for the pool") };
    let mut buffers = Buffers::new(&pool);
    let mut batch = Batch::new(&pool, &Arc::new(Layout::bare()));
    for i in 0..BATCH as u32 {
        assert!(batch.copy_in(&mut buffers, &frame(i.wrapping_mul(2_654_435_761) >> 20), &FrameInfo::default()));
    }
    batch.parse_all();
    batch
}

fn steering(fields: Fields, symmetry: Symmetry) -> Steering {
    let Ok(reta) = Reta::new(512, 4) else { panic!("a table of 512 for 4 workers") };
    let Ok(steering) = Steering::new(fields, symmetry, &Key::microsoft(), reta) else { panic!("{fields} steers") };
    steering
}

fn steer(name: &str, batch: &Batch, steering: &Steering) {
    let mut workers = [0; BATCH_MAX];
    measure(name, BATCH * ROUNDS, || {
        for _ in 0..ROUNDS {
            black_box(steering).workers_of(black_box(batch), &mut workers);
            black_box(&workers);
        }
    });
}

fn main() {
    let toeplitz = Toeplitz::new(&Key::microsoft());
    let inputs: Vec<[u8; 12]> = (0..1024u32).map(|i| std::array::from_fn(|k| (i * 31 + k as u32 * 97) as u8)).collect();
    measure("toeplitz, 12 bytes", inputs.len() * 25, || {
        for _ in 0..25 {
            black_box(inputs.iter().fold(0, |sum, input| sum ^ toeplitz.hash_fixed(black_box(input))));
        }
    });
    let batch = batch();
    let four_tuple = steering(Fields::FOUR_TUPLE, Symmetry::OneWay);
    let Ok(addresses) = four_tuple.clone().without_udp_ports() else { panic!("addresses are left") };
    let macs = Fields::of(&[braid_packet::FieldId::EthSrc, braid_packet::FieldId::EthDst]);
    steer("workers_of, four-tuple", &batch, &four_tuple);
    steer("workers_of, four-tuple without UDP's ports", &batch, &addresses);
    steer("workers_of, four-tuple both ways", &batch, &steering(Fields::FOUR_TUPLE, Symmetry::BothWays));
    steer("workers_of, mac pair (by key)", &batch, &steering(macs, Symmetry::OneWay));
    measure("queue, parsing included", BATCH * ROUNDS, || {
        for _ in 0..ROUNDS {
            for i in 0..BATCH {
                black_box(four_tuple.queue(black_box(batch.bytes(i)), Link::Ethernet, 0));
            }
        }
    });
}

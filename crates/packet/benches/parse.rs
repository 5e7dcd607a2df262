//! Nanoseconds per packet for the work done on every packet: parsing, and the key and hash of its five-tuple. It uses 64-byte
//! frames in the first- or second-level cache and one core. Run with `cargo bench -p braid-packet`.
//!
//! Each figure is the best of several runs, to exclude other work on the machine. With two arguments, a part of a name and a
//! number, only benchmarks with that name run, and that many times: the difference between two such counts, under `valgrind
//! --tool=callgrind`, is in instructions.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use braid_packet::{
    BATCH_MAX, Batch, Buffers, FieldId, FrameInfo, IpAddress, KeyExtractor, Keys, Layout, MacAddress, Packet, Pool,
    PoolConfig, SetDef, Undo,
};

const ROUNDS: usize = 2000;
const RUNS: usize = 15;

/// Name and number of rounds given as arguments.
fn asked() -> Option<(String, usize)> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    Some((arguments.first()?.clone(), arguments.get(1)?.parse().ok()?))
}

fn udp4(n: usize) -> Vec<u8> {
    let mut frame = vec![0; 64];
    frame[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 50, 0, 0, 0x40, 0, 64, 17]);
    frame[26..34].copy_from_slice(&[10, 0, (n >> 8) as u8, n as u8, 10, (n * 7) as u8, 1, 1]);
    frame[34..40].copy_from_slice(&[4, n as u8, 0, 53, 0, 30]);
    frame
}

fn udp6(n: usize) -> Vec<u8> {
    let mut frame = vec![0; 78];
    frame[12..22].copy_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0, 0, 24, 17, 64]);
    frame[22] = 0x20;
    frame[37] = n as u8;
    frame[54..60].copy_from_slice(&[4, n as u8, 0, 53, 0, 24]);
    frame
}

fn tagged(n: usize) -> Vec<u8> {
    let frame = udp4(n);
    [&frame[..12], &[0x81, 0, 0, 5], &frame[12..]].concat()
}

fn filled(packets: usize, frame: fn(usize) -> Vec<u8>) -> Batch {
    let pool = Pool::new(&PoolConfig { buffers: 1024, jumbos: 0, ..PoolConfig::default() }).expect("1024 buffers");
    let mut batch = Batch::new(&pool, &Arc::new(Layout::bare()));
    let mut buffers = Buffers::new(&pool);
    for n in 0..packets {
        assert!(batch.copy_in(&mut buffers, &frame(n), &FrameInfo::default()));
    }
    batch.parse_all();
    batch
}

fn measure(name: &str, batch: &mut Batch, mut work: impl FnMut(&mut Batch)) {
    if let Some((part, rounds)) = asked() {
        if format!("{name} {}", batch.len()).contains(&part) {
            (0..rounds).for_each(|_| work(black_box(batch)));
        }
        return;
    }
    let mut best = f64::MAX;
    for _ in 0..RUNS {
        let start = Instant::now();
        for _ in 0..ROUNDS {
            work(black_box(batch));
        }
        best = best.min(start.elapsed().as_secs_f64() * 1e9 / (ROUNDS * batch.len()) as f64);
    }
    println!("{name:<44} batch {:>3} {best:>6.2} ns/packet", batch.len());
}

fn main() {
    let one_way = KeyExtractor::compile(&SetDef::five_tuple()).expect("five-tuples fit");
    let both_ways = KeyExtractor::compile(&SetDef::five_tuple().symmetric()).expect("five-tuples fit");
    let source = KeyExtractor::compile(&SetDef::src_ip()).expect("addresses fit");
    let mut pair = SetDef::mac_pair();
    pair.fields.push(FieldId::VlanId);
    let pair = KeyExtractor::compile(&pair).expect("Ethernet addresses fit");
    let mut keys = Keys::boxed();
    for (kind, frame) in [("IPv4/UDP", udp4 as fn(usize) -> Vec<u8>), ("IPv6/UDP", udp6), ("VLAN/IPv4/UDP", tagged)] {
        for packets in [64, 128, BATCH_MAX] {
            let mut batch = filled(packets, frame);
            let name = |what: &str| format!("{kind}: {what}");
            measure(&name("parse"), &mut batch, Batch::parse_all);
            measure(&name("five-tuple"), &mut batch, |batch| one_way.extract_batch(batch, &mut keys));
            measure(&name("symmetric five-tuple"), &mut batch, |batch| both_ways.extract_batch(batch, &mut keys));
            measure(&name("Ethernet pair and VLAN"), &mut batch, |batch| pair.extract_batch(batch, &mut keys));
            measure(&name("source address"), &mut batch, |batch| source.extract_batch(batch, &mut keys));
            measure(&name("parse and symmetric five-tuple"), &mut batch, |batch| {
                batch.parse_all();
                both_ways.extract_batch(batch, &mut keys);
            });
        }
    }
    edits(&mut filled(128, udp4));
}

fn edits(batch: &mut Batch) {
    edit("address and port translated", batch, |packet| {
        let (address, port) = (packet.dst_ip(), packet.ports().map_or(0, |ports| ports.1));
        packet.set_src(address, port ^ packet.index() as u16);
    });
    edit("address and port set", batch, |packet| {
        packet.set_src(
            IpAddress::from_v4((0x0a01_0200 + packet.index() as u32).to_be_bytes()),
            1000 + packet.index() as u16,
        );
    });
    edit("address set", batch, |packet| {
        packet.set_dst_ip(IpAddress::from_v4((0x0a01_0200 + packet.index() as u32).to_be_bytes()));
    });
    edit("hop counted, neighbour set", batch, |packet| {
        packet.decrement_ttl();
        packet.set_eth_dst(MacAddress([2, 0, 0, 0, 0, packet.index() as u8]));
    });
}

fn edit(name: &str, batch: &mut Batch, change: impl Fn(&mut Packet<'_>)) {
    measure(name, batch, |batch| (0..batch.len()).for_each(|i| change(&mut batch.packet(i, None))));
    let mut undo = Undo::default();
    measure(&format!("{name}, undo saved"), batch, |batch| {
        (0..batch.len()).for_each(|i| change(&mut batch.packet(i, Some(&mut undo))));
        undo.clear();
    });
}

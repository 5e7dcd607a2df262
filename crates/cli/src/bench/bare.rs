//! Upper bound of what this machine can do: a loop that touches the memory which a chain touches for each packet, and does nothing else.
//!
//! A frame is copied from a ring into a buffer; then a line of tags is read and a line of a record on the same page is modified,
//! both at random positions, with the prefetches, batches and memory layout of the runtime. It parses nothing, compares no keys,
//! makes no decisions, and no flows begin or end. It is thus an upper bound for every chain whose functions share one packet set.
//! To compare machines, express the rates of chains as shares of it.

use std::hint::black_box;
use std::time::{Duration, Instant};

use braid_control::BATCH_DEFAULT;
use braid_control::runtime::memory::{Backing, Bytes, HugePages, prefetch_second_level, thread_time};
use braid_control::runtime::nf::packet::KeyHash;
use braid_control::runtime::nf::packet::key::seed;

use super::meter::Reading;
use crate::failure::{Failure, Kind};

/// Name of its rows.
pub const NAME: &str = "bare loop";
/// Number of packets in a batch.
pub const BATCH: usize = BATCH_DEFAULT as usize;

/// Size in bytes of a cache line, of a frame, and of a record.
const LINE: usize = 64;
/// Distance between buffers in lines, and the number of buffers used in turn.
const STRIDE: usize = 33;
const BUFFERS: usize = 256;
/// Lines of a group, of which one holds tags and the others hold records, and flows per group: as full as flow tables are.
const GROUP: usize = 32;
const FLOWS_IN_GROUP: usize = 20;
/// Prefetch distance of the copy in lines.
const AHEAD: usize = 256;

/// The memory on which one thread works.
struct Bare {
    ring: Bytes,
    buffers: Bytes,
    records: Bytes,
}

impl Bare {
    /// Allocates memory for this number of flows, with one frame for each in the ring.
    fn new(flows: usize) -> Result<Bare, Failure> {
        let region = |lines: usize| {
            Bytes::new(lines * LINE, HugePages::Prefer)
                .map_err(|error| Failure::new(Kind::Io, error.to_string(), "name fewer --flows or --workers"))
        };
        let groups = flows.div_ceil(FLOWS_IN_GROUP);
        let mut bare =
            Bare { ring: region(flows)?, buffers: region(BUFFERS * STRIDE)?, records: region(groups * GROUP)? };
        for (frame, number) in lines_mut(&mut bare.ring).iter_mut().zip(1u64..) {
            frame[26..34].copy_from_slice(&number.to_le_bytes());
        }
        // Pages that have never been written to would all be the same page.
        lines_mut(&mut bare.records).iter_mut().for_each(|line| line[0] = 1);
        Ok(bare)
    }

    fn backing(&self) -> Backing {
        self.records.backing()
    }

    /// Passes `packets` packets through the loop in batches, beginning with frame `from`.
    fn run(&mut self, from: usize, packets: u64) {
        let ring = lines(&self.ring);
        let (buffers, records) = (lines_mut(&mut self.buffers), lines_mut(&mut self.records));
        let (mut hashes, mut places, mut sum) = ([0u64; BATCH], [0usize; BATCH], 0u64);
        let (mut next, groups) = (from % ring.len(), (records.len() / GROUP) as u64);
        let key_hash = KeyHash::new(seed());
        // Position of a group's tags: a different line in consecutive groups.
        let tags = |hash: u64| {
            let group = (((hash >> 32) * groups) >> 32) as usize;
            group * GROUP + group % GROUP
        };
        for batch in 0..packets.div_ceil(BATCH as u64) as usize {
            let first = batch * BATCH % BUFFERS;
            for (i, hash) in hashes.iter_mut().enumerate() {
                let frame = &ring[next];
                prefetch_second_level(std::ptr::from_ref(frame).wrapping_add(AHEAD));
                let buffer = &mut buffers[(first + i) % BUFFERS * STRIDE];
                *buffer = *frame;
                // Hash the original frame, because the copy is not available yet.
                *hash = key_hash.narrow(&[word(frame, 26), 0]);
                next = if next + 1 == ring.len() { 0 } else { next + 1 };
            }
            hashes.iter().for_each(|hash| prefetch_second_level(&raw const records[tags(*hash)]));
            for (place, hash) in places.iter_mut().zip(&hashes) {
                // Always zero, but the processor does not know that before the line arrives.
                let nothing = usize::from(records[tags(*hash)][LINE - 1]);
                *place = (tags(*hash) ^ (1 + *hash as usize % (GROUP - 1))) + nothing;
                prefetch_second_level(&raw const records[*place]);
            }
            for (i, place) in places.iter().enumerate() {
                let record = &mut records[*place];
                let count = word(record, 8) + 1;
                record[8..16].copy_from_slice(&count.to_le_bytes());
                buffers[(first + i) % BUFFERS * STRIDE][30] = count as u8;
                sum = sum.wrapping_add(count);
            }
        }
        black_box(sum);
    }
}

fn lines(bytes: &Bytes) -> &[[u8; LINE]] {
    bytes.as_chunks().0
}

fn lines_mut(bytes: &mut Bytes) -> &mut [[u8; LINE]] {
    bytes.as_chunks_mut().0
}

fn word(line: &[u8; LINE], at: usize) -> u64 {
    line[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Measures `packets` packets on each of `workers` threads, after one pass over the flows, which are
/// divided equally; also returns the kind of pages used.
pub fn measure(flows: u64, workers: usize, packets: u64) -> Result<(Vec<Reading>, Backing), Failure> {
    let own = (flows as usize).div_ceil(workers.max(1)).max(1);
    let mut bares = (0..workers).map(|_| Bare::new(own)).collect::<Result<Vec<_>, _>>()?;
    let backing = bares.first().map_or(Backing::Ordinary, Bare::backing);
    let readings = std::thread::scope(|scope| {
        let threads: Vec<_> = bares.iter_mut().map(|bare| scope.spawn(|| reading(bare, own, packets))).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.map(|reading| reading.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    Ok((readings, backing))
}

fn reading(bare: &mut Bare, own: usize, packets: u64) -> Reading {
    let warm = own.next_multiple_of(BATCH);
    bare.run(0, warm as u64);
    let (cpu, wall): (Duration, Instant) = (thread_time(), Instant::now());
    bare.run(warm, packets);
    let packets = packets.next_multiple_of(BATCH as u64);
    Reading { packets, cpu: thread_time() - cpu, wall: wall.elapsed() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_packet_changes_the_record_of_its_flow() {
        let mut bare = Bare::new(1000).expect("a small loop fits");
        bare.run(0, 8 * 1024);
        bare.run(8 * 1024 % 1000, 1000 * 128 - 8 * 1024);
        let counts: Vec<u64> = lines(&bare.records).iter().map(|record| word(record, 8)).collect();
        assert_eq!(counts.iter().sum::<u64>(), 1000 * 128, "each is counted once");
        assert!(counts.iter().all(|count| count % 128 == 0), "and those of a flow in one place");
        assert!(
            counts.iter().filter(|count| **count > 0).count() > 500,
            "flows have places of their own, but for chance"
        );
        let frames = lines(&bare.buffers).iter().step_by(STRIDE);
        assert!(
            frames.into_iter().all(|frame| (1..=1000).contains(&(word(frame, 26) & 0xffff_ffff))),
            "frames were copied"
        );
    }

    #[test]
    fn threads_have_the_flows_in_parts_and_count_whole_batches() {
        let (readings, _) = measure(3000, 2, 1000).expect("a small loop fits");
        assert_eq!(readings.iter().map(|reading| reading.packets).collect::<Vec<_>>(), [1024, 1024]);
    }
}

//! Four frames looked at together: of nearly all only the same few bytes have to be compared, and one vector has those of two.
//!
//! A frame is *plainest* if it is Ethernet without tags, a whole IPv4 packet without options that is no fragment or a whole IPv6 packet without
//! extension headers, and TCP or UDP, in a buffer where it was received. What is found and the key of its flow are as from the ordinary way; four
//! among which one is not so, or is of the other family, are left to that.

#[cfg(all(target_arch = "x86_64", target_feature = "avx2"))]
mod vectors;

use super::held::{Seen, parse_one, see_one};
use super::slab::{Bases, Slab};
use crate::record::Record;

/// Frames that are looked at together.
pub(crate) const FOUR: usize = 4;

/// Whether this processor has such vectors.
pub(crate) const HAS_FOURS: bool = cfg!(all(target_arch = "x86_64", target_feature = "avx2"));

/// Addresses; ports, and the protocol in the upper half: source before destination, first byte lowest.
pub(crate) type Tuple = [u64; 2];

/// The same of IPv6, two words an address.
pub(crate) type TupleV6 = [u64; 5];

/// A version of IP.
trait Family {
    /// What the flow of its packets is known by.
    type Tuple;
}

/// Without options.
struct V4;

/// Without extension headers.
struct V6;

impl Family for V4 {
    type Tuple = Tuple;
}

impl Family for V6 {
    type Tuple = TupleV6;
}

/// So many fours of a batch may be found to be something else before the rest goes the ordinary way at once.
const PATIENCE: u32 = 4;

/// Who looks at the packets of a batch, most of which come four at a time.
pub(crate) trait VisitFours {
    /// Four of them, from the `first` on, that are plainest and of IPv4, with their five-tuples.
    fn four(&mut self, first: usize, records: &[Record; FOUR], tuples: [Tuple; FOUR]);
    /// The same of IPv6.
    fn four_v6(&mut self, first: usize, records: &[Record; FOUR], tuples: [TupleV6; FOUR]);
    /// Another one.
    fn one(&mut self, i: usize, packet: Seen<'_>);
}

/// Finds the headers of all packets, writes them into the records and shows the packets. Who is shown them is handed on and returned, so that what it
/// consists of is in registers in the loop for IPv4.
///
/// # Safety
/// The records own ordinary buffers of this slab, to which nobody writes meanwhile.
#[inline(always)]
pub(super) unsafe fn parse_in_fours<V: VisitFours>(slab: &Slab, records: &mut [Record], mut visit: V) -> V {
    let (bases, mut done, mut patience) = (slab.bases(), 0, PATIENCE);
    while done < records.len() {
        let mut many = records.len() - done;
        if patience > 0 {
            while let Some(four) = records[done..].first_chunk_mut() {
                // SAFETY: as this function asks.
                let Some(tuples) = (unsafe { parse_four::<V4>(bases, four) }) else { break };
                visit.four(done, four, tuples);
                done += FOUR;
            }
            // SAFETY: as this function asks.
            let (of_v6, visitor) = unsafe { parse_row_v6(bases, &mut records[done..], done, visit) };
            (visit, done) = (visitor, done + of_v6);
            if of_v6 > 0 {
                continue;
            }
            many = FOUR.min(records.len() - done);
            patience -= 1;
        }
        for (i, record) in records[done..][..many].iter_mut().enumerate() {
            // SAFETY: as this function asks.
            visit.one(done + i, unsafe { parse_one(slab, record) });
        }
        done += many;
    }
    visit
}

/// The same for the packets that come first, as long as four of them are plainest and of IPv6; says how many are.
///
/// # Safety
/// As for [`parse_in_fours`].
#[inline(never)]
unsafe fn parse_row_v6<V: VisitFours>(
    bases: Bases<'_>,
    records: &mut [Record],
    first: usize,
    mut visit: V,
) -> (usize, V) {
    let mut done = 0;
    for four in records.as_chunks_mut().0 {
        // SAFETY: as this function asks.
        let Some(tuples) = (unsafe { parse_four::<V6>(bases, four) }) else { break };
        visit.four_v6(first + done, four, tuples);
        done += FOUR;
    }
    (done, visit)
}

/// Shows all packets, whose headers have been found.
///
/// # Safety
/// As for [`parse_in_fours`].
#[inline(always)]
pub(super) unsafe fn see_in_fours<V: VisitFours>(slab: &Slab, records: &[Record], mut visit: V) -> V {
    let (bases, mut done) = (slab.bases(), 0);
    while done < records.len() {
        while let Some(four) = records[done..].first_chunk() {
            // SAFETY: as this function asks.
            let Some(tuples) = (unsafe { tuples_of_four::<V4>(bases, four) }) else { break };
            visit.four(done, four, tuples);
            done += FOUR;
        }
        // SAFETY: as this function asks.
        let (of_v6, visitor) = unsafe { see_row_v6(bases, &records[done..], done, visit) };
        (visit, done) = (visitor, done + of_v6);
        if of_v6 > 0 {
            continue;
        }
        let many = FOUR.min(records.len() - done);
        for (i, record) in records[done..][..many].iter().enumerate() {
            // SAFETY: as this function asks.
            visit.one(done + i, unsafe { see_one(bases, record) });
        }
        done += many;
    }
    visit
}

/// As [`parse_row_v6`], of packets whose headers have been found.
///
/// # Safety
/// As for [`parse_in_fours`].
#[inline(never)]
unsafe fn see_row_v6<V: VisitFours>(bases: Bases<'_>, records: &[Record], first: usize, mut visit: V) -> (usize, V) {
    let mut done = 0;
    for four in records.as_chunks().0 {
        // SAFETY: as this function asks.
        let Some(tuples) = (unsafe { tuples_of_four::<V6>(bases, four) }) else { break };
        visit.four_v6(first + done, four, tuples);
        done += FOUR;
    }
    (done, visit)
}

/// Finds the headers of four frames if all are plainest, and writes them into their records; the five-tuples are those of the packets then.
///
/// # Safety
/// The records own ordinary buffers, to which nobody writes meanwhile.
#[cfg(all(target_arch = "x86_64", target_feature = "avx2"))]
#[inline(always)]
unsafe fn parse_four<F: vectors::Layout>(bases: Bases<'_>, records: &mut [Record; FOUR]) -> Option<[F::Tuple; FOUR]> {
    let (pairs, _) = records.as_chunks_mut::<2>();
    let [first, second] = pairs else { return None };
    // SAFETY: the program is built for processors with AVX2, and buffers are as this function's contract has them.
    unsafe {
        let (one, other) = (vectors::Pair::<F>::load(bases, first), vectors::Pair::<F>::load(bases, second));
        if !vectors::hold([one.as_expected(), other.as_expected()], [one.too_much(), other.too_much()]) {
            return None;
        }
        let ([a, b], [c, d]) = (one.tuples(bases, first), other.tuples(bases, second));
        one.note(first);
        other.note(second);
        Some([a, b, c, d])
    }
}

/// Five-tuples of four packets with the smaller end first, and of which of them the ends have changed places.
#[cfg(all(target_arch = "x86_64", target_feature = "avx2"))]
#[inline(always)]
pub(crate) fn by_end([a, b, c, d]: [Tuple; FOUR]) -> ([Tuple; FOUR], [bool; FOUR]) {
    let (([a, b], first), ([c, d], second)) = (vectors::by_end([a, b]), vectors::by_end([c, d]));
    ([a, b, c, d], vectors::lowest_of([first, second]))
}

/// The five-tuples of four packets whose headers have been found, if all are plainest.
///
/// # Safety
/// As for [`parse_four`].
#[cfg(all(target_arch = "x86_64", target_feature = "avx2"))]
#[inline(always)]
unsafe fn tuples_of_four<F: vectors::Layout>(bases: Bases<'_>, records: &[Record; FOUR]) -> Option<[F::Tuple; FOUR]> {
    let (pairs, _) = records.as_chunks::<2>();
    let [first, second] = pairs else { return None };
    // SAFETY: as in `parse_four`.
    unsafe {
        let (one, other) = (vectors::Found::<F>::load(first), vectors::Found::<F>::load(second));
        if !vectors::hold([one.as_expected(), other.as_expected()], [one.too_short(), other.too_short()]) {
            return None;
        }
        let ([a, b], [c, d]) = (one.tuples(bases, first), other.tuples(bases, second));
        Some([a, b, c, d])
    }
}

/// On other processors none ever is.
///
/// # Safety
/// None needed.
#[cfg(not(all(target_arch = "x86_64", target_feature = "avx2")))]
unsafe fn parse_four<F: Family>(_: Bases<'_>, _: &mut [Record; FOUR]) -> Option<[F::Tuple; FOUR]> {
    None
}

/// As [`parse_four`].
///
/// # Safety
/// None needed.
#[cfg(not(all(target_arch = "x86_64", target_feature = "avx2")))]
unsafe fn tuples_of_four<F: Family>(_: Bases<'_>, _: &[Record; FOUR]) -> Option<[F::Tuple; FOUR]> {
    None
}

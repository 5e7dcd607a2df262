//! Parses four frames together: for nearly all frames the same few bytes have to be compared, and one vector holds those of
//! two frames.
//!
//! A frame is *plainest* if it is untagged Ethernet with a whole, unfragmented IPv4 packet without options or a whole IPv6
//! packet without extension headers, carries TCP or UDP, and starts at the arrival offset of an ordinary buffer. The parser
//! results and flow keys equal those of the ordinary path. A group of four in which one frame is not plainest, or is of the
//! other family, takes the ordinary path.

#[cfg(all(target_arch = "x86_64", target_feature = "avx2"))]
mod vectors;

use super::records::{Seen, parse_one, see_one};
use super::slab::{Bases, Slab};
use crate::record::Record;

/// Number of frames parsed together.
pub(crate) const FOUR: usize = 4;

/// Whether the target processor has such vectors.
pub(crate) const HAS_FOURS: bool = cfg!(all(target_arch = "x86_64", target_feature = "avx2"));

/// A five-tuple: addresses, then ports with the protocol in the upper half; source before destination, first byte lowest.
pub(crate) type Tuple = [u64; 2];

/// A five-tuple of IPv6, with two words per address.
pub(crate) type TupleV6 = [u64; 5];

/// An IP version.
trait Family {
    /// The five-tuple of a packet of this version.
    type Tuple;
}

/// IPv4 without options.
struct V4;

/// IPv6 without extension headers.
struct V6;

impl Family for V4 {
    type Tuple = Tuple;
}

impl Family for V6 {
    type Tuple = TupleV6;
}

/// Number of failed groups of four in a batch after which the rest takes the ordinary path directly.
const PATIENCE: u32 = 4;

/// Visitor of the packets of a batch, most of which come four at a time.
pub(crate) trait VisitFours {
    /// Visits four plainest IPv4 packets, starting with number `first`, with their five-tuples.
    fn four(&mut self, first: usize, records: &[Record; FOUR], tuples: [Tuple; FOUR]);
    /// Visits four plainest IPv6 packets, starting with number `first`, with their five-tuples.
    fn four_v6(&mut self, first: usize, records: &[Record; FOUR], tuples: [TupleV6; FOUR]);
    /// Visits a single packet of any kind.
    fn one(&mut self, i: usize, packet: Seen<'_>);
}

/// Finds the headers of all packets, writes them into the records and shows the packets to the visitor. The visitor is passed
/// by value and returned, so that its fields stay in registers in the IPv4 loop.
///
/// # Safety
/// The records must own ordinary buffers of this slab, to which nothing may write meanwhile.
#[inline(always)]
pub(super) unsafe fn parse_in_fours<V: VisitFours>(slab: &Slab, records: &mut [Record], mut visit: V) -> V {
    let (bases, mut done, mut patience) = (slab.bases(), 0, PATIENCE);
    while done < records.len() {
        let mut many = records.len() - done;
        if patience > 0 {
            while let Some(four) = records[done..].first_chunk_mut() {
                // SAFETY: by this function's contract.
                let Some(tuples) = (unsafe { parse_four::<V4>(bases, four) }) else { break };
                visit.four(done, four, tuples);
                done += FOUR;
            }
            // SAFETY: by this function's contract.
            let (of_v6, visitor) = unsafe { parse_row_v6(bases, &mut records[done..], done, visit) };
            (visit, done) = (visitor, done + of_v6);
            if of_v6 > 0 {
                continue;
            }
            many = FOUR.min(records.len() - done);
            patience -= 1;
        }
        for (i, record) in records[done..][..many].iter_mut().enumerate() {
            // SAFETY: by this function's contract.
            visit.one(done + i, unsafe { parse_one(slab, record) });
        }
        done += many;
    }
    visit
}

/// Parses the leading packets as long as four at a time are plainest IPv6; returns their number.
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
        // SAFETY: by this function's contract.
        let Some(tuples) = (unsafe { parse_four::<V6>(bases, four) }) else { break };
        visit.four_v6(first + done, four, tuples);
        done += FOUR;
    }
    (done, visit)
}

/// Shows all packets, whose headers must have been found, to the visitor.
///
/// # Safety
/// As for [`parse_in_fours`].
#[inline(always)]
pub(super) unsafe fn see_in_fours<V: VisitFours>(slab: &Slab, records: &[Record], mut visit: V) -> V {
    let (bases, mut done) = (slab.bases(), 0);
    while done < records.len() {
        while let Some(four) = records[done..].first_chunk() {
            // SAFETY: by this function's contract.
            let Some(tuples) = (unsafe { tuples_of_four::<V4>(bases, four) }) else { break };
            visit.four(done, four, tuples);
            done += FOUR;
        }
        // SAFETY: by this function's contract.
        let (of_v6, visitor) = unsafe { see_row_v6(bases, &records[done..], done, visit) };
        (visit, done) = (visitor, done + of_v6);
        if of_v6 > 0 {
            continue;
        }
        let many = FOUR.min(records.len() - done);
        for (i, record) in records[done..][..many].iter().enumerate() {
            // SAFETY: by this function's contract.
            visit.one(done + i, unsafe { see_one(bases, record) });
        }
        done += many;
    }
    visit
}

/// Like [`parse_row_v6`], for packets whose headers have been found.
///
/// # Safety
/// As for [`parse_in_fours`].
#[inline(never)]
unsafe fn see_row_v6<V: VisitFours>(bases: Bases<'_>, records: &[Record], first: usize, mut visit: V) -> (usize, V) {
    let mut done = 0;
    for four in records.as_chunks().0 {
        // SAFETY: by this function's contract.
        let Some(tuples) = (unsafe { tuples_of_four::<V6>(bases, four) }) else { break };
        visit.four_v6(first + done, four, tuples);
        done += FOUR;
    }
    (done, visit)
}

/// Finds the headers of four frames if all are plainest, writes them into their records, and returns the five-tuples.
///
/// # Safety
/// The records must own ordinary buffers, to which nothing may write meanwhile.
#[cfg(all(target_arch = "x86_64", target_feature = "avx2"))]
#[inline(always)]
unsafe fn parse_four<F: vectors::Layout>(bases: Bases<'_>, records: &mut [Record; FOUR]) -> Option<[F::Tuple; FOUR]> {
    let (pairs, _) = records.as_chunks_mut::<2>();
    let [first, second] = pairs else { return None };
    // SAFETY: the program is built for processors with AVX2, and the buffers are as this function's contract requires.
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

/// Returns the five-tuples of four packets with the smaller end first, and for which of them the ends were exchanged.
#[cfg(all(target_arch = "x86_64", target_feature = "avx2"))]
#[inline(always)]
pub(crate) fn by_end([a, b, c, d]: [Tuple; FOUR]) -> ([Tuple; FOUR], [bool; FOUR]) {
    let (([a, b], first), ([c, d], second)) = (vectors::by_end([a, b]), vectors::by_end([c, d]));
    ([a, b, c, d], vectors::lowest_of([first, second]))
}

/// Returns the five-tuples of four packets whose headers have been found, if all are plainest.
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

/// Fallback for other processors: no group of four is handled together.
///
/// # Safety
/// None needed.
#[cfg(not(all(target_arch = "x86_64", target_feature = "avx2")))]
unsafe fn parse_four<F: Family>(_: Bases<'_>, _: &mut [Record; FOUR]) -> Option<[F::Tuple; FOUR]> {
    None
}

/// Fallback for other processors, like [`parse_four`].
///
/// # Safety
/// None needed.
#[cfg(not(all(target_arch = "x86_64", target_feature = "avx2")))]
unsafe fn tuples_of_four<F: Family>(_: Bases<'_>, _: &[Record; FOUR]) -> Option<[F::Tuple; FOUR]> {
    None
}

//! Four frames looked at together: of nearly all only the same few bytes have to be compared, and one vector has those of two.
//!
//! A frame is *plainest* if it is Ethernet without tags, a whole IPv4 packet without options that is no fragment, and TCP or UDP, in a buffer
//! where it was received. What is found and the key of its flow are as from the ordinary way; four among which one is not so are left to that.

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

/// So many fours of a batch may be found to be something else before the rest goes the ordinary way at once.
const PATIENCE: u32 = 4;

/// Who looks at the packets of a batch, most of which come four at a time.
pub(crate) trait VisitFours {
    /// Four of them, from the `first` on, that are plainest, with their five-tuples.
    fn four(&mut self, first: usize, records: &[Record; FOUR], tuples: [Tuple; FOUR]);
    /// Another one.
    fn one(&mut self, i: usize, packet: Seen<'_>);
}

/// Finds the headers of all packets, writes them into the records and shows the packets.
///
/// # Safety
/// The records own ordinary buffers of this slab, to which nobody writes meanwhile.
#[inline(always)]
pub(super) unsafe fn parse_in_fours(slab: &Slab, records: &mut [Record], mut visit: impl VisitFours) {
    let (mut done, mut patience) = (0, PATIENCE);
    while done < records.len() {
        let left = &mut records[done..];
        let mut many = left.len();
        if patience > 0 {
            many = many.min(FOUR);
            if let Some(four) = left.first_chunk_mut() {
                // SAFETY: as this function asks.
                if let Some(tuples) = unsafe { parse_four(slab.bases(), four) } {
                    visit.four(done, four, tuples);
                    done += FOUR;
                    continue;
                }
                patience -= 1;
            }
        }
        for (i, record) in left[..many].iter_mut().enumerate() {
            // SAFETY: as this function asks.
            visit.one(done + i, unsafe { parse_one(slab, record) });
        }
        done += many;
    }
}

/// Shows all packets, whose headers have been found.
///
/// # Safety
/// As for [`parse_in_fours`].
#[inline(always)]
pub(super) unsafe fn see_in_fours(slab: &Slab, records: &[Record], mut visit: impl VisitFours) {
    let (bases, mut done) = (slab.bases(), 0);
    while done < records.len() {
        let left = &records[done..];
        if let Some(four) = left.first_chunk() {
            // SAFETY: as this function asks.
            if let Some(tuples) = unsafe { tuples_of_four(bases, four) } {
                visit.four(done, four, tuples);
                done += FOUR;
                continue;
            }
        }
        let many = left.len().min(FOUR);
        for (i, record) in left[..many].iter().enumerate() {
            // SAFETY: as this function asks.
            visit.one(done + i, unsafe { see_one(bases, record) });
        }
        done += many;
    }
}

/// Finds the headers of four frames if all are plainest, and writes them into their records; the five-tuples are those of the packets then.
///
/// # Safety
/// The records own ordinary buffers, to which nobody writes meanwhile.
#[cfg(all(target_arch = "x86_64", target_feature = "avx2"))]
#[inline(always)]
unsafe fn parse_four(bases: Bases<'_>, records: &mut [Record; FOUR]) -> Option<[Tuple; FOUR]> {
    let (pairs, _) = records.as_chunks_mut::<2>();
    let [first, second] = pairs else { return None };
    // SAFETY: the program is built for processors with AVX2, and buffers are as this function's contract has them.
    unsafe {
        let (one, other) = (vectors::Pair::load(bases, first), vectors::Pair::load(bases, second));
        if !vectors::hold([one.as_expected(), other.as_expected()], [one.too_much(), other.too_much()]) {
            return None;
        }
        one.note(first);
        other.note(second);
        let ([a, b], [c, d]) = (one.tuples(), other.tuples());
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
unsafe fn tuples_of_four(bases: Bases<'_>, records: &[Record; FOUR]) -> Option<[Tuple; FOUR]> {
    let (pairs, _) = records.as_chunks::<2>();
    let [first, second] = pairs else { return None };
    // SAFETY: as in `parse_four`.
    unsafe {
        let (one, other) = (vectors::Found::load(first), vectors::Found::load(second));
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
unsafe fn parse_four(_: Bases<'_>, _: &mut [Record; FOUR]) -> Option<[Tuple; FOUR]> {
    None
}

/// As [`parse_four`].
///
/// # Safety
/// None needed.
#[cfg(not(all(target_arch = "x86_64", target_feature = "avx2")))]
unsafe fn tuples_of_four(_: Bases<'_>, _: &[Record; FOUR]) -> Option<[Tuple; FOUR]> {
    None
}

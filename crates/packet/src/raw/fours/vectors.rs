//! Compares two frames side by side, each in 16 bytes of an AVX2 vector.

use std::arch::x86_64::*;
use std::marker::PhantomData;

use super::{Family, Tuple, TupleV6, V4, V6};
use crate::parse::{PLAIN_TOTAL, protocol};
use crate::pool::HEADROOM;
use crate::raw::slab::Bases;
use crate::record::Record;

/// Broadcasts the same 16 bytes to both halves.
#[inline(always)]
fn both(bytes: [u8; 16]) -> __m256i {
    // SAFETY: AVX2 is available (see `parse_four`); 16 bytes are read from an array of that length.
    unsafe { _mm256_broadcastsi128_si256(_mm_loadu_si128(bytes.as_ptr().cast())) }
}

/// Returns whether all bits are set in the first two vectors and none in the others.
#[inline(always)]
pub(super) fn hold([a, b]: [__m256i; 2], [c, d]: [__m256i; 2]) -> bool {
    // SAFETY: AVX2 is available (see `parse_four`).
    unsafe {
        let (set, unset) = (_mm256_and_si256(a, b), _mm256_or_si256(c, d));
        _mm256_testc_si256(_mm256_andnot_si256(unset, set), _mm256_set1_epi8(-1)) != 0
    }
}

/// Returns 16 bytes with the given values at the given places and zeroes elsewhere.
const fn at<const N: usize>(places: [(usize, u8); N]) -> [u8; 16] {
    over([0; 16], places)
}

/// Returns a shuffle mask that moves the named source bytes to the given places and yields zeroes elsewhere.
const fn from<const N: usize>(places: [(usize, u8); N]) -> [u8; 16] {
    over([0x80; 16], places)
}

const fn over<const N: usize>(mut bytes: [u8; 16], places: [(usize, u8); N]) -> [u8; 16] {
    let mut i = 0;
    while i < N {
        bytes[places[i].0] = places[i].1;
        i += 1;
    }
    bytes
}

/// Offset of the compared bytes in the frame: the Ethernet type, then the IP header.
const LEAD: usize = 12;
const TYPE: usize = 0;
const VERSION: usize = 14 - LEAD;

/// Where the compared fields of a family are.
pub(super) trait Layout: Family {
    /// Mask of the bytes that are compared, and their expected values, both without the protocol.
    const COMPARED: [u8; 16];
    const EXPECTED: [u8; 16];
    const PROTOCOL: usize;
    /// Offset of the length field, the number of frame bytes that it does not count, and its minimum that leaves room for ports.
    const LENGTH: usize;
    const BEFORE: usize;
    const LEAST: usize;
    /// Parser results.
    const UDP: u32;
    const TCP: u32;

    /// Returns the five-tuples of two frames, given the offset of the protocol in each half of the vector `of`.
    ///
    /// # Safety
    /// As for [`Pair::load`].
    unsafe fn tuples(bases: Bases<'_>, records: &[Record; 2], of: __m256i, protocol: usize) -> [Self::Tuple; 2];
}

impl Layout for V4 {
    const COMPARED: [u8; 16] = {
        const FRAGMENT: usize = 20 - LEAD;
        at([(TYPE, 0xff), (TYPE + 1, 0xff), (VERSION, 0xff), (FRAGMENT, 0x3f), (FRAGMENT + 1, 0xff)])
    };
    const EXPECTED: [u8; 16] = at([(TYPE, 8), (VERSION, 0x45)]);
    const PROTOCOL: usize = 23 - LEAD;
    const LENGTH: usize = 16 - LEAD;
    const BEFORE: usize = 14;
    const LEAST: usize = PLAIN_TOTAL;
    const UDP: u32 = Record::PLAINEST_UDP;
    const TCP: u32 = Record::PLAINEST_TCP;

    #[inline(always)]
    unsafe fn tuples(bases: Bases<'_>, records: &[Record; 2], of: __m256i, protocol: usize) -> [Tuple; 2] {
        // SAFETY: AVX2 is available (see `parse_four`); both types have 32 bytes, all values of which are valid.
        unsafe {
            let ends = two(bases, records, 26);
            // The ends without their last four bytes, which are replaced by the protocol.
            let protocol = _mm256_shuffle_epi8(of, both(from([(12, protocol as u8)])));
            std::mem::transmute(_mm256_blend_epi32::<0b1000_1000>(ends, protocol))
        }
    }
}

impl Layout for V6 {
    const COMPARED: [u8; 16] = at([(TYPE, 0xff), (TYPE + 1, 0xff), (VERSION, 0xf0)]);
    const EXPECTED: [u8; 16] = at([(TYPE, 0x86), (TYPE + 1, 0xdd), (VERSION, 0x60)]);
    const PROTOCOL: usize = 20 - LEAD;
    const LENGTH: usize = 18 - LEAD;
    const BEFORE: usize = 54;
    const LEAST: usize = 4;
    const UDP: u32 = Record::PLAINEST_V6_UDP;
    const TCP: u32 = Record::PLAINEST_V6_TCP;

    #[inline(always)]
    unsafe fn tuples(bases: Bases<'_>, records: &[Record; 2], of: __m256i, protocol: usize) -> [TupleV6; 2] {
        // SAFETY: AVX2 is available (see `parse_four`), and by this function's contract; all values of four words are valid.
        unsafe {
            let protocols = _mm256_shuffle_epi8(of, both(from([(4, protocol as u8)])));
            let [a, _, b, _] = std::mem::transmute::<__m256i, [u64; 4]>(protocols);
            let tuple = |record: &Record, protocol: u64| {
                let ends = bases.ordinary(&record.buffer).add(HEADROOM + 22);
                let [source, more, destination, rest] = ends.cast::<[u64; 4]>().read_unaligned();
                let ports = ends.add(32).cast::<u32>().read_unaligned();
                [source, more, destination, rest, protocol | u64::from(ports)]
            };
            [tuple(&records[0], a), tuple(&records[1], b)]
        }
    }
}

/// Returns the bytes that a family expects with this protocol.
const fn expected<F: Layout>(protocol: u8) -> [u8; 16] {
    over(F::EXPECTED, [(F::PROTOCOL, protocol)])
}

// Fields of a record: its length, the start of the frame, and from byte 12 on the parser results.
const LEN: usize = std::mem::offset_of!(Record, len);
const START: usize = std::mem::offset_of!(Record, start);
const FOUND: usize = std::mem::offset_of!(Record, l3);
const _: () = assert!(LEN == 4 && START == 8 && FOUND == 12 && size_of::<Record>() == 16);
/// Compared bytes of a record: the start of the frame and its link type, Ethernet.
const RECORD_COMPARED: [u8; 16] = at([(START, 0xff), (START + 1, 0xff), (FOUND + 3, 7)]);
const RECORD_EXPECTED: [u8; 16] = at([(START, HEADROOM as u8), (START + 1, (HEADROOM >> 8) as u8)]);

pub(super) struct Pair<F> {
    lead: __m256i,
    records: __m256i,
    family: PhantomData<F>,
}

impl<F: Layout> Pair<F> {
    /// Loads the compared bytes of two frames, and their records.
    ///
    /// # Safety
    /// AVX2 must be available, and the records must own ordinary buffers, to which nothing may write meanwhile.
    #[inline(always)]
    pub(super) unsafe fn load(bases: Bases<'_>, records: &[Record; 2]) -> Pair<F> {
        // SAFETY: by this function's contract; two records have 32 bytes.
        unsafe {
            let lead = two(bases, records, LEAD);
            Pair { lead, records: _mm256_loadu_si256(records.as_ptr().cast()), family: PhantomData }
        }
    }

    /// Returns a vector with all bits set if the compared bytes are as expected.
    #[inline(always)]
    pub(super) fn as_expected(&self) -> __m256i {
        // SAFETY: AVX2 is available (see `parse_four`).
        unsafe {
            let lead = _mm256_and_si256(self.lead, both(const { over(F::COMPARED, [(F::PROTOCOL, 0xff)]) }));
            let udp = _mm256_cmpeq_epi8(lead, both(const { expected::<F>(protocol::UDP) }));
            let lead = _mm256_or_si256(udp, _mm256_cmpeq_epi8(lead, both(const { expected::<F>(protocol::TCP) })));
            let record = _mm256_and_si256(self.records, both(RECORD_COMPARED));
            _mm256_and_si256(lead, _mm256_cmpeq_epi8(record, both(RECORD_EXPECTED)))
        }
    }

    /// Returns a vector with no bit set if the packets have room for ports and lie within their frames, which are shorter
    /// than 2^16 bytes in such buffers.
    #[inline(always)]
    pub(super) fn too_much(&self) -> __m256i {
        // SAFETY: AVX2 is available (see `parse_four`).
        unsafe {
            let turned = const { from([(LEN, F::LENGTH as u8 + 1), (LEN + 1, F::LENGTH as u8)]) };
            let length = _mm256_shuffle_epi8(self.lead, both(turned));
            let end = _mm256_adds_epu16(length, both(const { at([(LEN, F::BEFORE as u8)]) }));
            let beyond = _mm256_subs_epu16(end, self.records);
            _mm256_or_si256(beyond, _mm256_subs_epu16(both(const { at([(LEN, F::LEAST as u8)]) }), length))
        }
    }

    /// Writes the parser results into the records.
    #[inline(always)]
    pub(super) fn note(&self, records: &mut [Record; 2]) {
        // SAFETY: AVX2 is available (see `parse_four`); two records have 32 bytes. Only the bytes of the parser results
        // change, all values of which are valid.
        unsafe {
            let protocol = _mm256_shuffle_epi8(self.lead, both(const { from([(FOUND + 2, F::PROTOCOL as u8)]) }));
            let found = _mm256_or_si256(
                protocol,
                both(const { over(found(F::UDP), [(START, 0), (START + 1, 0), (FOUND + 2, 0)]) }),
            );
            let noted = _mm256_blend_epi32::<0b1000_1000>(self.records, found);
            _mm256_storeu_si256(records.as_mut_ptr().cast(), noted);
        }
    }

    /// Returns the five-tuples.
    ///
    /// # Safety
    /// As for [`load`](Self::load).
    #[inline(always)]
    pub(super) unsafe fn tuples(&self, bases: Bases<'_>, records: &[Record; 2]) -> [F::Tuple; 2] {
        // SAFETY: by this function's contract.
        unsafe { F::tuples(bases, records, self.lead, F::PROTOCOL) }
    }
}

/// Loads 16 bytes of two frames, from offset `at` on.
///
/// # Safety
/// As for [`Pair::load`]; `at` must be at most 48.
#[inline(always)]
unsafe fn two(bases: Bases<'_>, records: &[Record; 2], at: usize) -> __m256i {
    // SAFETY: by this function's contract; a buffer has more than 64 bytes after the headroom.
    unsafe {
        let [a, b] = records.each_ref().map(|record| bases.ordinary(&record.buffer).add(HEADROOM + at));
        _mm256_loadu2_m128i(b.cast(), a.cast())
    }
}

/// Returns five-tuples with the smaller end first. The lower half of each result lane has all bits set if the ends were
/// exchanged, else none.
#[inline(always)]
pub(super) fn by_end(tuples: [Tuple; 2]) -> ([Tuple; 2], __m256i) {
    // The ends as 48-bit integers, with the first byte of the address highest: source in the lower half, destination in the
    // upper one.
    const ENDS: [u8; 16] = over(
        [0x80; 16],
        [(5, 0), (4, 1), (3, 2), (2, 3), (1, 8), (0, 9), (13, 4), (12, 5), (11, 6), (10, 7), (9, 10), (8, 11)],
    );
    const TURNED: [u8; 16] = [4, 5, 6, 7, 0, 1, 2, 3, 10, 11, 8, 9, 12, 13, 14, 15];
    // SAFETY: AVX2 is available (see `parse_four`); both types have 32 bytes, all values of which are valid.
    unsafe {
        let tuples: __m256i = std::mem::transmute(tuples);
        let ends = _mm256_shuffle_epi8(tuples, both(ENDS));
        let greater = _mm256_cmpgt_epi64(ends, _mm256_shuffle_epi32::<0b01_00_11_10>(ends));
        let turn = _mm256_shuffle_epi32::<0b01_00_01_00>(greater);
        let keys = _mm256_blendv_epi8(tuples, _mm256_shuffle_epi8(tuples, both(TURNED)), turn);
        (std::mem::transmute::<__m256i, [Tuple; 2]>(keys), greater)
    }
}

/// Returns for each lane of two pairs whether all bits of its lower half are set.
#[inline(always)]
pub(super) fn lowest_of([one, other]: [__m256i; 2]) -> [bool; 4] {
    // SAFETY: AVX2 is available (see `parse_four`).
    let bits = unsafe {
        let halves = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_unpacklo_epi64(one, other));
        _mm256_movemask_pd(_mm256_castsi256_pd(halves)) as u32
    };
    // Spread the bits, one per byte.
    let bytes = bits.wrapping_mul(0x0020_4081) & 0x0101_0101;
    bytes.to_le_bytes().map(|byte| byte != 0)
}

/// Earlier parser results of two frames.
pub(super) struct Found<F>(__m256i, PhantomData<F>);

/// Compared bytes of a record: the start of the frame and all parser results.
const FOUND_COMPARED: [u8; 16] =
    at([(START, 0xff), (START + 1, 0xff), (FOUND, 0xff), (FOUND + 1, 0xff), (FOUND + 2, 0xff), (FOUND + 3, 0xff)]);

const fn found(word: u32) -> [u8; 16] {
    let ([start, behind], [l3, l4, protocol, flags]) = ((HEADROOM as u16).to_le_bytes(), word.to_le_bytes());
    at([(START, start), (START + 1, behind), (FOUND, l3), (FOUND + 1, l4), (FOUND + 2, protocol), (FOUND + 3, flags)])
}

impl<F: Layout> Found<F> {
    /// Loads two records.
    ///
    /// # Safety
    /// AVX2 must be available.
    #[inline(always)]
    pub(super) unsafe fn load(records: &[Record; 2]) -> Found<F> {
        // SAFETY: AVX2 is available by this function's contract; two records have 32 bytes.
        Found(unsafe { _mm256_loadu_si256(records.as_ptr().cast()) }, PhantomData)
    }

    /// Returns a vector with all bits set if the parser results are as expected.
    #[inline(always)]
    pub(super) fn as_expected(&self) -> __m256i {
        // SAFETY: AVX2 is available (see `parse_four`).
        unsafe {
            let record = _mm256_and_si256(self.0, both(FOUND_COMPARED));
            let udp = _mm256_cmpeq_epi8(record, both(const { found(F::UDP) }));
            _mm256_or_si256(udp, _mm256_cmpeq_epi8(record, both(const { found(F::TCP) })))
        }
    }

    /// Returns a vector with no bit set if the frames have room for ports.
    #[inline(always)]
    pub(super) fn too_short(&self) -> __m256i {
        // SAFETY: AVX2 is available (see `parse_four`).
        unsafe { _mm256_subs_epu16(both(const { at([(LEN, (F::BEFORE + F::LEAST) as u8)]) }), self.0) }
    }

    /// Returns the five-tuples.
    ///
    /// # Safety
    /// As for [`Pair::load`].
    #[inline(always)]
    pub(super) unsafe fn tuples(&self, bases: Bases<'_>, records: &[Record; 2]) -> [F::Tuple; 2] {
        // SAFETY: by this function's contract.
        unsafe { F::tuples(bases, records, self.0, FOUND + 2) }
    }
}

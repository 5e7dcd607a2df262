//! Two frames side by side, each in 16 bytes of a vector.

use std::arch::x86_64::*;
use std::marker::PhantomData;

use super::{Family, Tuple, TupleV6, V4, V6};
use crate::parse::{PLAIN_TOTAL, protocol};
use crate::pool::HEADROOM;
use crate::raw::slab::Bases;
use crate::record::Record;

/// The same 16 bytes for both.
#[inline(always)]
fn both(bytes: [u8; 16]) -> __m256i {
    // SAFETY: AVX2 is there (module); 16 bytes are read from an array of so many.
    unsafe { _mm256_broadcastsi128_si256(_mm_loadu_si128(bytes.as_ptr().cast())) }
}

/// Whether all bits are set in the first two, and none in the others.
#[inline(always)]
pub(super) fn hold([a, b]: [__m256i; 2], [c, d]: [__m256i; 2]) -> bool {
    // SAFETY: AVX2 is there (module).
    unsafe {
        let (set, unset) = (_mm256_and_si256(a, b), _mm256_or_si256(c, d));
        _mm256_testc_si256(_mm256_andnot_si256(unset, set), _mm256_set1_epi8(-1)) != 0
    }
}

/// Bytes at some places, zeroes elsewhere.
const fn at<const N: usize>(places: [(usize, u8); N]) -> [u8; 16] {
    over([0; 16], places)
}

/// Places from which a shuffle takes the bytes named, to those places; zeroes elsewhere.
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

/// Where the vector begins that is compared: Ethernet type, then the header of IP.
const LEAD: usize = 12;
const TYPE: usize = 0;
const VERSION: usize = 14 - LEAD;

/// Where a family has what is looked at.
pub(super) trait Layout: Family {
    /// The bytes that are compared, and what they have to be, but for the protocol.
    const COMPARED: [u8; 16];
    const EXPECTED: [u8; 16];
    const PROTOCOL: usize;
    /// Where the length stands, bytes of a frame that it does not count, and what leaves room for ports.
    const LENGTH: usize;
    const BEFORE: usize;
    const LEAST: usize;
    /// What is found.
    const UDP: u32;
    const TCP: u32;

    /// The five-tuples of two frames, given where in each half of a vector the protocol is.
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
        // SAFETY: AVX2 is there (module); both forms are 32 bytes, of which all values are valid.
        unsafe {
            let ends = two(bases, records, 26);
            // The ends, but for their last four bytes, and there the protocol.
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
        // SAFETY: AVX2 is there (module), and as this function asks; of four words all values are valid.
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

/// What a family expects with this protocol.
const fn expected<F: Layout>(protocol: u8) -> [u8; 16] {
    over(F::EXPECTED, [(F::PROTOCOL, protocol)])
}

// A record's fields: its length, where the frame starts, and from the 12th byte on what is found.
const LEN: usize = std::mem::offset_of!(Record, len);
const START: usize = std::mem::offset_of!(Record, start);
const FOUND: usize = std::mem::offset_of!(Record, l3);
const _: () = assert!(LEN == 4 && START == 8 && FOUND == 12 && size_of::<Record>() == 16);
/// Of a record: where the frame starts and its link, Ethernet.
const RECORD_COMPARED: [u8; 16] = at([(START, 0xff), (START + 1, 0xff), (FOUND + 3, 7)]);
const RECORD_EXPECTED: [u8; 16] = at([(START, HEADROOM as u8), (START + 1, (HEADROOM >> 8) as u8)]);

pub(super) struct Pair<F> {
    lead: __m256i,
    records: __m256i,
    family: PhantomData<F>,
}

impl<F: Layout> Pair<F> {
    /// # Safety
    /// AVX2 is there, and the records own ordinary buffers, to which nobody writes meanwhile.
    #[inline(always)]
    pub(super) unsafe fn load(bases: Bases<'_>, records: &[Record; 2]) -> Pair<F> {
        // SAFETY: as this function asks; two records are 32 bytes.
        unsafe {
            let lead = two(bases, records, LEAD);
            Pair { lead, records: _mm256_loadu_si256(records.as_ptr().cast()), family: PhantomData }
        }
    }

    /// All bits are set if what is compared is as expected.
    #[inline(always)]
    pub(super) fn as_expected(&self) -> __m256i {
        // SAFETY: AVX2 is there (module).
        unsafe {
            let lead = _mm256_and_si256(self.lead, both(const { over(F::COMPARED, [(F::PROTOCOL, 0xff)]) }));
            let udp = _mm256_cmpeq_epi8(lead, both(const { expected::<F>(protocol::UDP) }));
            let lead = _mm256_or_si256(udp, _mm256_cmpeq_epi8(lead, both(const { expected::<F>(protocol::TCP) })));
            let record = _mm256_and_si256(self.records, both(RECORD_COMPARED));
            _mm256_and_si256(lead, _mm256_cmpeq_epi8(record, both(RECORD_EXPECTED)))
        }
    }

    /// No bit is set if the packet has room for ports and lies within its frame, which is shorter than 2^16 in such a buffer.
    #[inline(always)]
    pub(super) fn too_much(&self) -> __m256i {
        // SAFETY: AVX2 is there (module).
        unsafe {
            let turned = const { from([(LEN, F::LENGTH as u8 + 1), (LEN + 1, F::LENGTH as u8)]) };
            let length = _mm256_shuffle_epi8(self.lead, both(turned));
            let end = _mm256_adds_epu16(length, both(const { at([(LEN, F::BEFORE as u8)]) }));
            let beyond = _mm256_subs_epu16(end, self.records);
            _mm256_or_si256(beyond, _mm256_subs_epu16(both(const { at([(LEN, F::LEAST as u8)]) }), length))
        }
    }

    /// Writes what was found into the records.
    #[inline(always)]
    pub(super) fn note(&self, records: &mut [Record; 2]) {
        // SAFETY: AVX2 is there (module); two records are 32 bytes, of which only those of what is found change, and any values of them are valid.
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

    /// The five-tuples.
    ///
    /// # Safety
    /// As for [`load`](Self::load).
    #[inline(always)]
    pub(super) unsafe fn tuples(&self, bases: Bases<'_>, records: &[Record; 2]) -> [F::Tuple; 2] {
        // SAFETY: as this function asks.
        unsafe { F::tuples(bases, records, self.lead, F::PROTOCOL) }
    }
}

/// 16 bytes of two frames, from `at` on.
///
/// # Safety
/// As for [`Pair::load`]; `at` is at most 48.
#[inline(always)]
unsafe fn two(bases: Bases<'_>, records: &[Record; 2], at: usize) -> __m256i {
    // SAFETY: as this function asks; a buffer goes on for more than 64 bytes behind the headroom.
    unsafe {
        let [a, b] = records.each_ref().map(|record| bases.ordinary(&record.buffer).add(HEADROOM + at));
        _mm256_loadu2_m128i(b.cast(), a.cast())
    }
}

/// Five-tuples with the smaller end first; and for each, in the lower half, whether the ends have changed places: all bits or none.
#[inline(always)]
pub(super) fn by_end(tuples: [Tuple; 2]) -> ([Tuple; 2], __m256i) {
    // Ends as numbers of 48 bits, the first byte of the address highest: source in the lower half, destination in the upper one.
    const ENDS: [u8; 16] = over(
        [0x80; 16],
        [(5, 0), (4, 1), (3, 2), (2, 3), (1, 8), (0, 9), (13, 4), (12, 5), (11, 6), (10, 7), (9, 10), (8, 11)],
    );
    const TURNED: [u8; 16] = [4, 5, 6, 7, 0, 1, 2, 3, 10, 11, 8, 9, 12, 13, 14, 15];
    // SAFETY: AVX2 is there (module); both forms are 32 bytes, of which all values are valid.
    unsafe {
        let tuples: __m256i = std::mem::transmute(tuples);
        let ends = _mm256_shuffle_epi8(tuples, both(ENDS));
        let greater = _mm256_cmpgt_epi64(ends, _mm256_shuffle_epi32::<0b01_00_11_10>(ends));
        let turn = _mm256_shuffle_epi32::<0b01_00_01_00>(greater);
        let keys = _mm256_blendv_epi8(tuples, _mm256_shuffle_epi8(tuples, both(TURNED)), turn);
        (std::mem::transmute::<__m256i, [Tuple; 2]>(keys), greater)
    }
}

/// Whether all bits are set in the lower halves of two pairs.
#[inline(always)]
pub(super) fn lowest_of([one, other]: [__m256i; 2]) -> [bool; 4] {
    // SAFETY: AVX2 is there (module).
    let bits = unsafe {
        let halves = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_unpacklo_epi64(one, other));
        _mm256_movemask_pd(_mm256_castsi256_pd(halves)) as u32
    };
    // Each bit into a byte of its own.
    let bytes = bits.wrapping_mul(0x0020_4081) & 0x0101_0101;
    bytes.to_le_bytes().map(|byte| byte != 0)
}

/// What was found in two frames before.
pub(super) struct Found<F>(__m256i, PhantomData<F>);

/// Of a record: where the frame starts and all that was found.
const FOUND_COMPARED: [u8; 16] =
    at([(START, 0xff), (START + 1, 0xff), (FOUND, 0xff), (FOUND + 1, 0xff), (FOUND + 2, 0xff), (FOUND + 3, 0xff)]);

const fn found(word: u32) -> [u8; 16] {
    let ([start, behind], [l3, l4, protocol, flags]) = ((HEADROOM as u16).to_le_bytes(), word.to_le_bytes());
    at([(START, start), (START + 1, behind), (FOUND, l3), (FOUND + 1, l4), (FOUND + 2, protocol), (FOUND + 3, flags)])
}

impl<F: Layout> Found<F> {
    /// # Safety
    /// AVX2 is there.
    #[inline(always)]
    pub(super) unsafe fn load(records: &[Record; 2]) -> Found<F> {
        // SAFETY: two records are 32 bytes.
        Found(unsafe { _mm256_loadu_si256(records.as_ptr().cast()) }, PhantomData)
    }

    /// All bits are set if what was found is as expected.
    #[inline(always)]
    pub(super) fn as_expected(&self) -> __m256i {
        // SAFETY: AVX2 is there (module).
        unsafe {
            let record = _mm256_and_si256(self.0, both(FOUND_COMPARED));
            let udp = _mm256_cmpeq_epi8(record, both(const { found(F::UDP) }));
            _mm256_or_si256(udp, _mm256_cmpeq_epi8(record, both(const { found(F::TCP) })))
        }
    }

    /// No bit is set if the frame has room for ports.
    #[inline(always)]
    pub(super) fn too_short(&self) -> __m256i {
        // SAFETY: AVX2 is there (module).
        unsafe { _mm256_subs_epu16(both(const { at([(LEN, (F::BEFORE + F::LEAST) as u8)]) }), self.0) }
    }

    /// The five-tuples.
    ///
    /// # Safety
    /// As for [`Pair::load`].
    #[inline(always)]
    pub(super) unsafe fn tuples(&self, bases: Bases<'_>, records: &[Record; 2]) -> [F::Tuple; 2] {
        // SAFETY: as this function asks.
        unsafe { F::tuples(bases, records, self.0, FOUND + 2) }
    }
}

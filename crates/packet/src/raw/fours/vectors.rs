//! Two frames side by side, each in 16 bytes of a vector.

use std::arch::x86_64::*;

use super::Tuple;
use crate::parse::{PLAIN_TOTAL, protocol};
use crate::pool::HEADROOM;
use crate::raw::slab::Bases;
use crate::record::{Flags, Record};

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

/// Where the first vector begins: Ethernet type, then the IPv4 header.
const LEAD: usize = 12;
const TYPE: usize = 0;
const VERSION: usize = 14 - LEAD;
const TOTAL: usize = 16 - LEAD;
const FRAGMENT: usize = 20 - LEAD;
const PROTOCOL: usize = 23 - LEAD;
/// Where the second one begins: addresses, ports.
const ENDS: usize = 26;

/// The bytes that are compared, and what they have to be.
const COMPARED: [u8; 16] =
    at([(TYPE, 0xff), (TYPE + 1, 0xff), (VERSION, 0xff), (FRAGMENT, 0x3f), (FRAGMENT + 1, 0xff), (PROTOCOL, 0xff)]);
const UDP: [u8; 16] = at([(TYPE, 8), (VERSION, 0x45), (PROTOCOL, protocol::UDP)]);
const TCP: [u8; 16] = at([(TYPE, 8), (VERSION, 0x45), (PROTOCOL, protocol::TCP)]);

// A record's fields: its length, where the frame starts, and from the 12th byte on what is found.
const LEN: usize = std::mem::offset_of!(Record, len);
const START: usize = std::mem::offset_of!(Record, start);
const FOUND: usize = std::mem::offset_of!(Record, l3);
const _: () = assert!(LEN == 4 && START == 8 && FOUND == 12 && size_of::<Record>() == 16);
/// Of a record: where the frame starts and its link, Ethernet.
const RECORD_COMPARED: [u8; 16] = at([(START, 0xff), (START + 1, 0xff), (FOUND + 3, 7)]);
const RECORD_EXPECTED: [u8; 16] = at([(START, HEADROOM as u8), (START + 1, (HEADROOM >> 8) as u8)]);

pub(super) struct Pair {
    lead: __m256i,
    ends: __m256i,
    records: __m256i,
}

impl Pair {
    /// # Safety
    /// AVX2 is there, and the records own ordinary buffers, to which nobody writes meanwhile.
    #[inline(always)]
    pub(super) unsafe fn load(bases: Bases<'_>, records: &[Record; 2]) -> Pair {
        // SAFETY: as this function asks; two records are 32 bytes.
        unsafe {
            let (lead, ends) = (two(bases, records, LEAD), two(bases, records, ENDS));
            Pair { lead, ends, records: _mm256_loadu_si256(records.as_ptr().cast()) }
        }
    }

    /// All bits are set if what is compared is as expected.
    #[inline(always)]
    pub(super) fn as_expected(&self) -> __m256i {
        // SAFETY: AVX2 is there (module).
        unsafe {
            let lead = _mm256_and_si256(self.lead, both(COMPARED));
            let lead = _mm256_or_si256(_mm256_cmpeq_epi8(lead, both(UDP)), _mm256_cmpeq_epi8(lead, both(TCP)));
            let record = _mm256_and_si256(self.records, both(RECORD_COMPARED));
            _mm256_and_si256(lead, _mm256_cmpeq_epi8(record, both(RECORD_EXPECTED)))
        }
    }

    /// No bit is set if the packet has room for ports and lies within its frame, which is shorter than 2^16 in such a buffer.
    #[inline(always)]
    pub(super) fn too_much(&self) -> __m256i {
        // SAFETY: AVX2 is there (module).
        unsafe {
            let total = _mm256_shuffle_epi8(self.lead, both(from([(LEN, TOTAL as u8 + 1), (LEN + 1, TOTAL as u8)])));
            let end = _mm256_adds_epu16(total, both(at([(LEN, 14)])));
            let beyond = _mm256_subs_epu16(end, self.records);
            _mm256_or_si256(beyond, _mm256_subs_epu16(both(at([(LEN, PLAIN_TOTAL as u8)])), total))
        }
    }

    /// Writes what was found into the records.
    #[inline(always)]
    pub(super) fn note(&self, records: &mut [Record; 2]) {
        // SAFETY: AVX2 is there (module); two records are 32 bytes, of which only those of what is found change, and any values of them are valid.
        unsafe {
            let protocol = _mm256_shuffle_epi8(self.lead, both(from([(FOUND + 2, PROTOCOL as u8)])));
            let found = _mm256_or_si256(protocol, both(at([(FOUND, 14), (FOUND + 1, 5), (FOUND + 3, Flags::IP)])));
            let noted = _mm256_blend_epi32::<0b1000_1000>(self.records, found);
            _mm256_storeu_si256(records.as_mut_ptr().cast(), noted);
        }
    }

    /// The five-tuples.
    #[inline(always)]
    pub(super) fn tuples(&self) -> [Tuple; 2] {
        tuples(self.ends, self.lead, PROTOCOL)
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

/// Five-tuples: the ends, but for their last four bytes, and there the protocol, which is byte `at` of `of`.
#[inline(always)]
fn tuples(ends: __m256i, of: __m256i, at: usize) -> [Tuple; 2] {
    // SAFETY: AVX2 is there (module); both forms are 32 bytes, of which all values are valid.
    unsafe {
        let protocol = _mm256_shuffle_epi8(of, both(from([(12, at as u8)])));
        std::mem::transmute(_mm256_blend_epi32::<0b1000_1000>(ends, protocol))
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
pub(super) struct Found(__m256i);

/// Of a record: where the frame starts and all that was found.
const FOUND_COMPARED: [u8; 16] =
    at([(START, 0xff), (START + 1, 0xff), (FOUND, 0xff), (FOUND + 1, 0xff), (FOUND + 2, 0xff), (FOUND + 3, 0xff)]);

const fn found(word: u32) -> [u8; 16] {
    let ([start, behind], [l3, l4, protocol, flags]) = ((HEADROOM as u16).to_le_bytes(), word.to_le_bytes());
    at([(START, start), (START + 1, behind), (FOUND, l3), (FOUND + 1, l4), (FOUND + 2, protocol), (FOUND + 3, flags)])
}

impl Found {
    /// # Safety
    /// AVX2 is there.
    #[inline(always)]
    pub(super) unsafe fn load(records: &[Record; 2]) -> Found {
        // SAFETY: two records are 32 bytes.
        Found(unsafe { _mm256_loadu_si256(records.as_ptr().cast()) })
    }

    /// All bits are set if what was found is as expected.
    #[inline(always)]
    pub(super) fn as_expected(&self) -> __m256i {
        // SAFETY: AVX2 is there (module).
        unsafe {
            let record = _mm256_and_si256(self.0, both(FOUND_COMPARED));
            let udp = _mm256_cmpeq_epi8(record, both(found(Record::PLAINEST_UDP)));
            _mm256_or_si256(udp, _mm256_cmpeq_epi8(record, both(found(Record::PLAINEST_TCP))))
        }
    }

    /// No bit is set if the frame has room for ports.
    #[inline(always)]
    pub(super) fn too_short(&self) -> __m256i {
        // SAFETY: AVX2 is there (module).
        unsafe { _mm256_subs_epu16(both(at([(LEN, 14 + PLAIN_TOTAL as u8)])), self.0) }
    }

    /// The five-tuples.
    ///
    /// # Safety
    /// As for [`Pair::load`].
    #[inline(always)]
    pub(super) unsafe fn tuples(&self, bases: Bases<'_>, records: &[Record; 2]) -> [Tuple; 2] {
        // SAFETY: as this function asks.
        tuples(unsafe { two(bases, records, ENDS) }, self.0, FOUND + 2)
    }
}

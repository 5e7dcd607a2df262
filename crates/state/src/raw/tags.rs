//! Comparing eight 16-bit tags at once.

/// A bit pair `11` at `2·lane` for each of the eight native-endian 16-bit lanes that equals `tag`.
#[inline(always)]
pub(crate) fn equal_lanes(group: &[u8; 16], tag: u16) -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{__m128i, _mm_cmpeq_epi16, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi16};
        // SAFETY: SSE2 is part of every x86-64; the load is unaligned and inside the array.
        unsafe {
            let tags = _mm_loadu_si128(group.as_ptr().cast::<__m128i>());
            _mm_movemask_epi8(_mm_cmpeq_epi16(tags, _mm_set1_epi16(tag as i16))) as u32
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    portable(group, tag)
}

#[cfg(any(test, not(target_arch = "x86_64")))]
fn portable(group: &[u8; 16], tag: u16) -> u32 {
    let lane = |i: usize| u16::from_ne_bytes([group[2 * i], group[2 * i + 1]]);
    (0..8).fold(0, |lanes, i| if lane(i) == tag { lanes | 3 << (2 * i) } else { lanes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vector_form_equals_the_portable_one() {
        let group: [u8; 16] = [1, 0, 2, 0, 1, 0, 255, 255, 0, 1, 1, 1, 0, 0, 1, 0];
        for tag in [0, 1, 2, 256, 257, 65535, 7] {
            assert_eq!(equal_lanes(&group, tag), portable(&group, tag), "tag {tag}");
        }
    }
}

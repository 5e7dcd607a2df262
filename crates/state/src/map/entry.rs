//! The words of an entry: `| generation and live bit, 4 bytes | key | value |`. Key and value each begin at a word, unless only without gaps
//! the entry fits into half a cache line together with the object's header (up to 20 bytes of key and value). In an entry of several lines,
//! a value of at most a line comes before the key. A worker that changes no more of the value than fits beside the header then writes to
//! that line alone, and the lines with the key, which all workers read, stay in every worker's cache.

use zerocopy::IntoBytes;

use super::Handle;
use crate::plain::{self, Plain};

/// Maximum number of words of an object of half a line.
const HALF: usize = 3;
/// Words of a cache line, the first of which may hold the header.
const LINE: usize = 8;

/// The byte offsets of key and value, and the number of words of an entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) key: usize,
    pub(super) value: usize,
    pub(super) words: usize,
}

impl Layout {
    /// The layout for this many bytes of key and value.
    pub(super) const fn of(key: usize, value: usize) -> Layout {
        let head = size_of::<u32>();
        let (dense, spaced) = ((head + key + value).div_ceil(8), 1 + key.div_ceil(8) + value.div_ceil(8));
        if dense <= HALF && spaced > HALF {
            return Layout { key: head, value: head + key, words: dense };
        }
        if 1 + spaced > LINE && value <= LINE * 8 {
            return Layout { key: 8 + value.next_multiple_of(8), value: 8, words: spaced };
        }
        Layout { key: 8, value: 8 + key.next_multiple_of(8), words: spaced }
    }
}

/// Generation << 1 | live.
#[inline(always)]
pub(super) fn head(words: &[u64]) -> u32 {
    load(words, 0)
}

/// How often the entry has been freed; wraps at 31 bits.
#[inline(always)]
pub(super) fn generation(words: &[u64]) -> u32 {
    head(words) >> 1
}

#[inline(always)]
pub(super) fn is_live(words: &[u64]) -> bool {
    head(words) & 1 == 1
}

/// Whether the entry still holds what the handle was made for.
#[inline(always)]
pub(super) fn is_at(words: &[u64], handle: Handle) -> bool {
    head(words) == handle.generation << 1 | 1
}

/// Makes a free entry live, with key and value at these byte offsets; returns its generation. Clears all bytes of an earlier key or value.
#[inline(always)]
pub(super) fn begin<K: Plain, V: Plain>(words: &mut [u64], key: (usize, &K), value: (usize, &V)) -> u32 {
    let head = head(words) | 1;
    words.fill(0);
    store(words, 0, &head);
    store(words, key.0, key.1);
    store(words, value.0, value.1);
    head >> 1
}

/// Ends an entry; its next use has the next generation.
#[inline(always)]
pub(super) fn end(words: &mut [u64]) {
    let head = (head(words) | 1).wrapping_add(1);
    store(words, 0, &head);
}

/// Reads the value at a byte offset.
#[inline(always)]
pub(super) fn load<T: Plain>(words: &[u64], at: usize) -> T {
    if at % 8 == 4 && size_of::<T>() > 4 && size_of::<T>() <= HALF * 8 {
        return load_between(&words[at / 8..]);
    }
    match T::read_from_prefix(&words.as_bytes()[at..]) {
        Ok((value, _)) => value,
        Err(_) => unreachable!("{} words have no {} bytes from {at} on", words.len(), size_of::<T>()),
    }
}

/// Reads a value that begins in the middle of the first word. It is assembled from whole words, which are in registers if they were just copied;
/// an unaligned load from where they were stored would have to wait for the stores to complete.
#[inline(always)]
fn load_between<T: Plain>(words: &[u64]) -> T {
    let mut moved = [0; HALF];
    for (k, to) in moved.iter_mut().take(size_of::<T>().div_ceil(8)).enumerate() {
        let next = words.get(k + 1).map_or(0, |word| word.to_le());
        *to = u64::from_le(words[k].to_le() >> 32 | next << 32);
    }
    plain::load(&moved)
}

/// Writes the value at a byte offset.
#[inline(always)]
pub(super) fn store<T: Plain>(words: &mut [u64], at: usize, value: &T) {
    words.as_mut_bytes()[at..at + size_of::<T>()].copy_from_slice(value.as_bytes());
}

/// Changes the value at a byte offset.
#[inline(always)]
pub(super) fn change<T: Plain, R>(words: &mut [u64], at: usize, change: impl FnOnce(&mut T) -> R) -> R {
    if at.is_multiple_of(8) {
        return plain::change(&mut words[at / 8..], change);
    }
    let mut value = load(words, at);
    let result = change(&mut value);
    store(words, at, &value);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_changed_lies_on_the_line_of_the_header() {
        let beside_the_header = (LINE - 1) * 8;
        for (key, value) in [(8, 8), (48, 8), (48, 40), (40, 48), (200, 48), (100, 20), (48, 64), (16, 72)] {
            let Layout { key: key_at, value: value_at, words } = Layout::of(key, value);
            assert!(value_at.min(key_at) >= 8 && words * 8 >= (key_at + key).max(value_at + value));
            assert!(key_at + key <= value_at || value_at + value <= key_at, "{key} and {value} bytes overlap");
            if value <= 48 {
                assert!(value_at + value <= beside_the_header, "{key} and {value} bytes");
            }
        }
        assert_eq!(Layout::of(48, 64).value, 8, "its first words are what is changed most");
        assert!(Layout::of(16, 72).key == 8, "a value of several lines is read in any case");
    }

    #[test]
    fn what_begins_in_the_middle_of_a_word_is_what_lies_there() {
        let words: [u64; 4] = std::array::from_fn(|k| u64::from_ne_bytes(std::array::from_fn(|b| (k * 8 + b) as u8)));
        fn check<const N: usize>(words: &[u64]) {
            for at in (0..=words.len() * 8 - N).filter(|at| at % 4 == 0) {
                let expected: [u8; N] = std::array::from_fn(|b| (at + b) as u8);
                assert_eq!(load::<[u8; N]>(words, at), expected, "{N} bytes from {at} on");
            }
        }
        check::<4>(&words);
        check::<8>(&words);
        check::<12>(&words);
        check::<16>(&words);
        check::<20>(&words);
        check::<28>(&words);
    }
}

//! Plain data: the values that shared state can hold.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Values that are fully described by their bytes: no padding, no pointers, every bit pattern legal. A type is `Plain` if it derives zerocopy's
/// `FromBytes`, `IntoBytes`, `Immutable` and `KnownLayout` (and `Clone`, `Copy`).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no plain data, as what Braid keeps of packet sets and in state objects has to be",
    label = "not plain data",
    note = "no pointers (`String`, `Vec`, `Box`), no padding, every bit pattern legal: an array of bytes, an integer, or a `#[repr(C)]` struct that \
            derives `Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout`, all of them in `braid_nf::prelude` (the crate needs `zerocopy` among its \
            dependencies)"
)]
pub trait Plain: Copy + FromBytes + IntoBytes + Immutable + KnownLayout + Send + Sync + 'static {}

// Otherwise the compiler reports the first missing trait of these instead of `Plain`.
#[diagnostic::do_not_recommend]
impl<T: Copy + FromBytes + IntoBytes + Immutable + KnownLayout + Send + Sync + 'static> Plain for T {}

/// Number of 8-byte words that hold a `T`.
pub(crate) const fn words<T>() -> usize {
    size_of::<T>().div_ceil(8)
}

/// Reads the `T` at the beginning of some words.
#[inline(always)]
pub(crate) fn load<T: Plain>(words: &[u64]) -> T {
    match T::read_from_prefix(words.as_bytes()) {
        Ok((value, _)) => value,
        Err(_) => unreachable!("{} words hold no {} bytes", words.len(), size_of::<T>()),
    }
}

/// Calls `look` with the `T` at the beginning of some words, in place.
#[inline(always)]
pub(crate) fn view<T: Plain, R>(words: &[u64], look: impl FnOnce(&T) -> R) -> R {
    const { assert!(align_of::<T>() <= 8) };
    match T::ref_from_prefix(words.as_bytes()) {
        Ok((value, _)) => look(value),
        Err(_) => unreachable!("{} words hold no {} bytes", words.len(), size_of::<T>()),
    }
}

/// Changes the `T` at the beginning of some words in place.
#[inline(always)]
pub(crate) fn change<T: Plain, R>(words: &mut [u64], change: impl FnOnce(&mut T) -> R) -> R {
    const { assert!(align_of::<T>() <= 8) };
    let len = words.len();
    match T::mut_from_prefix(words.as_mut_bytes()) {
        Ok((value, _)) => change(value),
        Err(_) => unreachable!("{len} words hold no {} bytes", size_of::<T>()),
    }
}

/// Writes a `T` to the beginning of some words.
#[inline(always)]
pub(crate) fn store<T: Plain>(words: &mut [u64], value: &T) {
    words.as_mut_bytes()[..size_of::<T>()].copy_from_slice(value.as_bytes());
}

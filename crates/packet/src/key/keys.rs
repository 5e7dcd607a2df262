//! Results of key extraction: the keys of a batch, and of a single packet.

use super::{KeyClass, KeyShape, SetKey};
use crate::batch::BATCH_MAX;

/// Keys of a batch as separate arrays. Entries beyond the batch's length or of another class are stale.
#[derive(Debug)]
pub struct Keys {
    /// Which of the two arrays holds the packet's key.
    pub class: [KeyClass; BATCH_MAX],
    /// Whether a symmetric key exchanged the packet's ends: the packet goes from the greater end to the smaller one.
    pub swapped: [bool; BATCH_MAX],
    /// Seeded hash of the key; 0 for orphans.
    pub hash: [u64; BATCH_MAX],
    /// Keys of at most 16 bytes.
    pub narrow: [[u64; 2]; BATCH_MAX],
    /// Longer keys.
    pub wide: [[u64; 5]; BATCH_MAX],
    /// Shape of all keys.
    pub shape: KeyShape,
    /// Class of the keys of all packets of the batch; `None` if the classes differ, a packet has no key, or this is unknown.
    pub of_all: KeyClass,
}

impl Keys {
    /// Maximum length of a key in bytes.
    pub const WIDE_BYTES: usize = 40;
    pub(super) const NARROW_BYTES: usize = 16;

    /// Creates keys for a batch, all of them orphans.
    pub fn boxed() -> Box<Keys> {
        Box::new(Keys {
            class: [KeyClass::None; BATCH_MAX],
            swapped: [false; BATCH_MAX],
            hash: [0; BATCH_MAX],
            narrow: [[0; 2]; BATCH_MAX],
            wide: [[0; 5]; BATCH_MAX],
            shape: KeyShape::default(),
            of_all: KeyClass::None,
        })
    }

    /// Returns whether packet `i`'s key equals a [`SetKey`] in memory, whose words are returned by `word`. Words unused by
    /// narrow keys are zero in every key and are not compared.
    #[inline(always)]
    pub fn is(&self, i: usize, word: impl Fn(usize) -> u64) -> bool {
        let last = |class: KeyClass| -> u64 { zerocopy::transmute!([self.shape.0, class as u32]) };
        let differ = |words: &[u64], class| {
            let behind = word(SetKey::WORDS - 1) ^ last(class);
            { words.iter().enumerate() }.fold(behind, |differ, (k, own)| differ | (own ^ word(k)))
        };
        match self.class[i] {
            KeyClass::Narrow => differ(&self.narrow[i], KeyClass::Narrow) == 0,
            KeyClass::Wide => differ(&self.wide[i], KeyClass::Wide) == 0,
            KeyClass::None => false,
        }
    }

    /// Returns the key of packet `i`, to store or print; [`SetKey::NONE`] for an orphan.
    #[inline(always)]
    pub fn key(&self, i: usize) -> SetKey {
        match self.class[i] {
            KeyClass::Narrow => SetKey::narrow(self.shape, self.narrow[i]),
            KeyClass::Wide => SetKey::wide(self.shape, self.wide[i]),
            KeyClass::None => SetKey::NONE,
        }
    }
}

/// Key of a single packet.
#[derive(Clone, Copy, Debug)]
pub struct Extracted {
    /// The key.
    pub key: SetKey,
    /// Its hash.
    pub hash: u64,
    /// Whether a symmetric key exchanged the packet's ends.
    pub swapped: bool,
}

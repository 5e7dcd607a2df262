//! Where and how a capture is damaged.

use std::path::{Path, PathBuf};

/// A place behind which a capture cannot be read. Everything before it was delivered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: damaged at byte {offset}: {flaw}", path = path.display())]
pub struct Damage {
    /// The file.
    pub path: PathBuf,
    /// Offset in the (decompressed) file at which the damaged record or block begins.
    pub offset: u64,
    /// What is wrong there.
    pub flaw: Flaw,
}

impl Damage {
    pub(crate) fn new(path: &Path, offset: u64, flaw: Flaw) -> Damage {
        Damage { path: path.to_owned(), offset, flaw }
    }

    pub(crate) fn reader_gone() -> Damage {
        Damage::new(Path::new("(source)"), 0, Flaw::ReaderGone)
    }
}

/// What is wrong with a record or block.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Flaw {
    /// The file ends inside a record; what there is of it was delivered if its header is whole.
    #[error("the file ends {missing} bytes before the record does")]
    CutShort {
        /// Bytes that are missing.
        missing: u64,
    },
    /// A record or block claims to be longer than any real one.
    #[error("a length of {len} bytes is not believable")]
    TooLong {
        /// The length it claims.
        len: u64,
    },
    /// A block is shorter than its own fields.
    #[error("a block of type {kind:#x} cannot be {len} bytes long")]
    TooShort {
        /// Block type.
        kind: u32,
        /// The length it claims.
        len: u32,
    },
    /// The two lengths of a block, at its beginning and at its end, are not one.
    #[error("a block of {first} bytes ends with a length of {repeated}")]
    Lengths {
        /// The length with which it begins.
        first: u32,
        /// The one where it ends.
        repeated: u32,
    },
    /// A packet is longer than the block that holds it.
    #[error("a packet of {len} bytes does not fit into its block, which has room for {room}")]
    Overfull {
        /// Bytes that were captured, as the block says.
        len: usize,
        /// Bytes that the block has for them.
        room: usize,
    },
    /// A packet refers to an interface that no block described.
    #[error("interface {interface} was not described, only {described} were")]
    NoInterface {
        /// The number it refers to.
        interface: u32,
        /// Interfaces described in this section.
        described: usize,
    },
    /// A section begins without a valid byte-order magic.
    #[error("{magic:02x?} is no byte order")]
    ByteOrder {
        /// What stands there.
        magic: [u8; 4],
    },
    /// Reading or decompressing failed.
    #[error("{0}")]
    Read(String),
    /// Another pass over the file could not begin.
    #[error("cannot be read again: {0}")]
    Reopen(String),
    /// The thread that reads ended before the stream did.
    #[error("the reading thread ended early")]
    ReaderGone,
}

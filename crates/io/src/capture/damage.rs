//! Describes where and how a capture is damaged.

use std::path::{Path, PathBuf};

/// A position beyond which a capture cannot be read. Everything before it has been delivered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: damaged at byte {offset}: {flaw}", path = path.display())]
pub struct Damage {
    /// The file.
    pub path: PathBuf,
    /// Offset in the (decompressed) file of the damaged record or block.
    pub offset: u64,
    /// What is wrong.
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
    /// The file ends inside a record. If the record's header is complete, the available part of the packet was delivered.
    #[error("the file ends {missing} bytes before the record does")]
    CutShort {
        /// Number of missing bytes.
        missing: u64,
    },
    /// A record or block claims an implausible length.
    #[error("a length of {len} bytes is not believable")]
    TooLong {
        /// The claimed length.
        len: u64,
    },
    /// A block is shorter than its own fields.
    #[error("a block of type {kind:#x} cannot be {len} bytes long")]
    TooShort {
        /// Block type.
        kind: u32,
        /// The claimed length.
        len: u32,
    },
    /// The two lengths of a block, at its beginning and at its end, differ.
    #[error("a block of {first} bytes ends with a length of {repeated}")]
    Lengths {
        /// The length at its beginning.
        first: u32,
        /// The length at its end.
        repeated: u32,
    },
    /// A packet is longer than the block that contains it.
    #[error("a packet of {len} bytes does not fit into its block, which has room for {room}")]
    Overfull {
        /// Captured length according to the block.
        len: usize,
        /// Room for the packet in the block.
        room: usize,
    },
    /// A packet refers to an interface that no block has described.
    #[error("interface {interface} was not described; the section describes {described}")]
    NoInterface {
        /// The interface number.
        interface: u32,
        /// Number of interfaces described in this section.
        described: usize,
    },
    /// A section begins without a valid byte-order magic.
    #[error("{magic:02x?} is no byte order")]
    ByteOrder {
        /// The bytes in its place.
        magic: [u8; 4],
    },
    /// A section is of a version that nobody has defined.
    #[error("the section is of version {major}.{minor} of pcapng, of which only 1 is known")]
    Version {
        /// The major version.
        major: u16,
        /// The minor version.
        minor: u16,
    },
    /// Reading or decompressing failed.
    #[error("{0}")]
    Read(String),
    /// The file could not be reopened for another pass.
    #[error("cannot be read again: {0}")]
    Reopen(String),
    /// The reading thread ended before the stream did.
    #[error("the reading thread ended early")]
    ReaderGone,
}

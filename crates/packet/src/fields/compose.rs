//! Computes the layout of the extension record from what each stage of a chain reads and writes.
//!
//! A field is alive from its first writer to its last user, both stages included. (The last user may be a writer after the
//! last reader, which must not hit bytes that now belong to another field.) Placement is first fit: fields in order of their
//! first write, wider ones first, each at the lowest aligned offset that does not overlap a field alive at the same time.

use std::ops::RangeInclusive;

use super::{Layout, SEQUENCE, TIMESTAMP_NS, WIRE_LEN};

/// A field as a stage declares it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FieldDecl {
    /// Name; fields with the same name are the same field.
    pub name: String,
    /// Width in bytes: 1, 2, 4 or 8.
    pub bytes: u8,
}

impl FieldDecl {
    /// Creates a field.
    pub fn new(name: &str, bytes: u8) -> FieldDecl {
        FieldDecl { name: name.to_owned(), bytes }
    }
}

/// What one stage of a chain does with metadata. Stages are listed in the order in which a packet passes them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StageUse {
    /// `source`, the name of a network function, or `sink`.
    pub stage: String,
    /// Fields that the stage reads.
    pub reads: Vec<FieldDecl>,
    /// Fields that the stage writes.
    pub writes: Vec<FieldDecl>,
}

impl StageUse {
    /// Creates a stage that uses no metadata yet.
    pub fn new(stage: &str) -> StageUse {
        StageUse { stage: stage.to_owned(), ..StageUse::default() }
    }

    /// Adds a field that the stage reads.
    pub fn reads(mut self, name: &str, bytes: u8) -> StageUse {
        self.reads.push(FieldDecl::new(name, bytes));
        self
    }

    /// Adds a field that the stage writes.
    pub fn writes(mut self, name: &str, bytes: u8) -> StageUse {
        self.writes.push(FieldDecl::new(name, bytes));
        self
    }
}

/// Why the stages of a chain do not fit together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    /// A stage reads a field that no stage before it writes.
    #[error("`{stage}` reads field `{field}`, but no stage before it writes it")]
    NeverWritten {
        /// The reading stage.
        stage: String,
        /// Name of the field.
        field: String,
    },
    /// The width is not 1, 2, 4 or 8.
    #[error("`{stage}` declares field `{field}` with {bytes} bytes; a field has 1, 2, 4 or 8")]
    Width {
        /// The declaring stage.
        stage: String,
        /// Name of the field.
        field: String,
        /// Declared width in bytes.
        bytes: u8,
    },
    /// Two stages declare a field with different widths.
    #[error("`{stage}` declares field `{field}` with {bytes} bytes, `{earlier}` with {before}")]
    Disagreement {
        /// The stage that declares it second.
        stage: String,
        /// Name of the field.
        field: String,
        /// Width in the second declaration.
        bytes: u8,
        /// The stage that declares it first.
        earlier: String,
        /// Width in the first declaration.
        before: u8,
    },
    /// The record would be too long.
    #[error("the chain's fields need more than {0} bytes for each packet")]
    TooLong(usize),
    /// A stage asks for a field that no stage declared.
    #[error("no stage declares field `{0}`")]
    Undeclared(String),
    /// A stage asks for a field with a type of another width.
    #[error("field `{field}` has {bytes} bytes, its type {asked}")]
    OtherType {
        /// Name of the field.
        field: String,
        /// Width of the field in bytes.
        bytes: u8,
        /// Width of the type in bytes.
        asked: usize,
    },
}

/// One row of the field table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldRow {
    /// Name of the field.
    pub name: String,
    /// Width in bytes.
    pub bytes: u8,
    /// Offset in the extension record; `None` if no stage reads the field, so that it is not carried.
    pub offset: Option<u16>,
    /// Stages that write the field.
    pub written_by: Vec<String>,
    /// Stages that read the field.
    pub read_by: Vec<String>,
}

/// Cache lines of 64 bytes that a batch touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLines {
    /// One line of headers per packet.
    pub headers: usize,
    /// Lines of 16-byte records.
    pub records: usize,
    /// Lines of extension records.
    pub extension: usize,
}

impl CacheLines {
    /// Returns the sum of all lines.
    pub fn total(&self) -> usize {
        self.headers + self.records + self.extension
    }
}

/// Maximum length of an extension record in bytes: four cache lines.
const RECORD_MAX: usize = 256;

/// A field while the table is being built.
struct Draft {
    row: FieldRow,
    first_write: Option<usize>,
    last_use: usize,
}

impl Draft {
    fn alive(&self) -> Option<RangeInclusive<usize>> {
        let first = self.first_write.filter(|_| !self.row.read_by.is_empty())?;
        Some(first..=self.last_use)
    }

    fn meets(&self, other: &Draft) -> bool {
        match (self.alive(), other.alive()) {
            (Some(a), Some(b)) => a.start() <= b.end() && b.start() <= a.end(),
            _ => false,
        }
    }

    fn bytes(&self) -> Option<std::ops::Range<usize>> {
        self.row.offset.map(|at| usize::from(at)..usize::from(at) + usize::from(self.row.bytes))
    }
}

impl Layout {
    /// Builds the table of a chain. The source need not be among the stages: time stamp, length on the wire and sequence
    /// number are written before the first stage.
    pub fn compose(stages: &[StageUse]) -> Result<Layout, FieldError> {
        let source = StageUse::new("source").writes(TIMESTAMP_NS, 8).writes(WIRE_LEN, 4).writes(SEQUENCE, 8);
        let mut drafts: Vec<Draft> = Vec::new();
        for (position, stage) in std::iter::once(&source).chain(stages).enumerate() {
            for field in &stage.reads {
                let draft = declare(&mut drafts, stage, field)?;
                if draft.first_write.is_none() {
                    return Err(FieldError::NeverWritten { stage: stage.stage.clone(), field: field.name.clone() });
                }
                if !draft.row.read_by.contains(&stage.stage) {
                    draft.row.read_by.push(stage.stage.clone());
                }
                draft.last_use = position;
            }
            for field in &stage.writes {
                let draft = declare(&mut drafts, stage, field)?;
                if !draft.row.written_by.contains(&stage.stage) {
                    draft.row.written_by.push(stage.stage.clone());
                }
                draft.first_write.get_or_insert(position);
                draft.last_use = position;
            }
        }
        let record_bytes = place(&mut drafts)?;
        let mut rows: Vec<FieldRow> = drafts.into_iter().map(|draft| draft.row).collect();
        rows.sort_by_key(|row| (row.offset.is_none(), row.offset));
        let mut layout = Layout { record_bytes, rows, ..Layout::bare() };
        layout.timestamp = layout.field(TIMESTAMP_NS)?;
        layout.wire_len = layout.field(WIRE_LEN)?;
        layout.sequence = layout.field(SEQUENCE)?;
        Ok(layout)
    }
}

fn declare<'a>(drafts: &'a mut Vec<Draft>, stage: &StageUse, field: &FieldDecl) -> Result<&'a mut Draft, FieldError> {
    let (stage, name, bytes) = (stage.stage.clone(), field.name.clone(), field.bytes);
    if !matches!(bytes, 1 | 2 | 4 | 8) {
        return Err(FieldError::Width { stage, field: name, bytes });
    }
    let known = drafts.iter().position(|draft| draft.row.name == name);
    let number = known.unwrap_or_else(|| {
        let row = FieldRow { name: name.clone(), bytes, offset: None, written_by: Vec::new(), read_by: Vec::new() };
        drafts.push(Draft { row, first_write: None, last_use: 0 });
        drafts.len() - 1
    });
    let draft = &mut drafts[number];
    if draft.row.bytes != bytes {
        let earlier = draft.row.written_by.iter().chain(&draft.row.read_by).next().cloned().unwrap_or_default();
        return Err(FieldError::Disagreement { stage, field: name, bytes, earlier, before: draft.row.bytes });
    }
    Ok(draft)
}

/// Assigns an offset to every field that is alive; returns the record's length in bytes.
fn place(drafts: &mut [Draft]) -> Result<usize, FieldError> {
    let mut order: Vec<usize> = (0..drafts.len()).filter(|&i| drafts[i].alive().is_some()).collect();
    order.sort_by_key(|&i| (drafts[i].first_write, std::cmp::Reverse(drafts[i].row.bytes)));
    let (mut end, mut align) = (0, 1);
    for i in order {
        let width = usize::from(drafts[i].row.bytes);
        let taken: Vec<_> = drafts.iter().filter(|other| other.meets(&drafts[i])).filter_map(Draft::bytes).collect();
        let free = |at: &usize| taken.iter().all(|other| at + width <= other.start || other.end <= *at);
        let Some(at) = (0..RECORD_MAX).step_by(width).find(free) else { return Err(FieldError::TooLong(RECORD_MAX)) };
        drafts[i].row.offset = Some(at as u16);
        (end, align) = (end.max(at + width), align.max(width));
    }
    Ok(end.next_multiple_of(align))
}

//! Captures stored beside the project, and what is known about each: `MANIFEST.csv` in `BRAID_CAPTURES`, or in `shared/captures`
//! beside the root. They are read in place and are not part of the project.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::skip::{note, skip};

/// A capture and its row of the manifest.
#[derive(Clone, Debug)]
pub struct Capture {
    /// Path of the file.
    pub path: PathBuf,
    /// Its path relative to the folder of captures.
    pub name: String,
    row: HashMap<String, String>,
}

impl Capture {
    /// The number in a column; 0 if the column is empty.
    pub fn number(&self, column: &str) -> f64 {
        self.row[column].parse().unwrap_or(0.0)
    }

    /// The count in a column.
    pub fn count(&self, column: &str) -> u64 {
        self.number(column) as u64
    }

    /// The text in a column.
    pub fn text(&self, column: &str) -> &str {
        &self.row[column]
    }

    /// Whether it belongs to a sample of one in `size`. This depends on its name, so the sample is always the same.
    pub fn is_in_sample(&self, size: u64) -> bool {
        let hash = self.name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3) // FNV-1a
        });
        (hash >> 20).is_multiple_of(size)
    }
}

/// All captures of the manifest; none, with a message, if there are none. In continuous integration this is a failure only if
/// `BRAID_CAPTURES` says that they should be there.
pub fn captures(test: &str) -> Vec<Capture> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/captures");
    let told = std::env::var_os("BRAID_CAPTURES").map(PathBuf::from);
    let missing = if told.is_some() { skip } else { note };
    let directory = told.unwrap_or(beside);
    let manifest = match std::fs::read_to_string(directory.join("MANIFEST.csv")) {
        Ok(manifest) => manifest,
        Err(error) => {
            missing(test, &format_args!("no shared captures: BRAID_CAPTURES names none ({error})"));
            return Vec::new();
        }
    };
    let capture = |row: HashMap<String, String>| {
        let name = row["file"].clone();
        Capture { path: directory.join(&name), name, row }
    };
    let found: Vec<Capture> = rows(&manifest).map(capture).filter(|capture| capture.path.is_file()).collect();
    assert!(found.len() > 10, "{} captures of the manifest are there", found.len());
    found
}

/// The path of a capture that the project itself recorded.
pub fn recorded(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/traffic").join(name)
}

fn rows(text: &str) -> impl Iterator<Item = HashMap<String, String>> {
    let mut lines = text.lines().map(fields);
    let names = lines.next().expect("a header");
    lines.map(move |fields| names.iter().cloned().zip(fields).collect())
}

/// The fields of a line; a quoted field may contain commas.
fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut quoted) = (vec![String::new()], false);
    for character in line.chars() {
        match character {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            _ => fields.last_mut().expect("one field").push(character),
        }
    }
    fields
}

//! The state of a run as a file: `braid snapshot` writes it, `braid run --restore` reads it.
//!
//! ```text
//!  "BRAIDSNP" | version, 4 bytes | body | CRC-32C of all before, 4 bytes
//! ```
//! Numbers are little-endian; texts and images are preceded by their length in 8 bytes. A reader accepts its own version and
//! earlier ones, and refuses later versions. Nothing in a file is trusted: the checksum, every length and every key are checked
//! before anything is built, and a file of more than [`FILE_MAX`] bytes is not read.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use braid_runtime::io::atomic_file::AtomicFile;
use braid_runtime::live::Unanswered;
use braid_runtime::live::exchange::settle;
use braid_runtime::live::saved::{Saved, SavedFunction, SavedSet, save_objects};
use braid_runtime::nf::packet::PortSet;
use braid_runtime::nf::packet::crc32c::crc32c;
use braid_runtime::nf::packet::key::{KeyShape, SetKey};
use braid_runtime::pacing::clock::wall_ns;
use braid_runtime::{Live, Order, Time, Worker};
use serde::{Deserialize, Serialize};
use zerocopy::{FromBytes, IntoBytes};

use super::protocol::Refused;
use crate::plan::Plan;
use crate::plan::file::Problem;

/// Maximum size of a file in bytes.
pub const FILE_MAX: u64 = 16 << 30;
/// The version that this program writes.
pub const VERSION: u32 = 2;
/// The first version that says in which order packets met the functions, and by which fields these keep their packet sets.
const HAS_ORDER: u32 = 2;
/// Only the owner may read the file.
const FILE_MODE: u32 = 0o600;
const MAGIC: &[u8; 8] = b"BRAIDSNP";
const COUNT_MAX: u64 = 1 << 32;

/// The state of a run, with the information needed to decide whether a plan may continue with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Version of the program that wrote it.
    pub program: String,
    /// When it was taken, in nanoseconds since 1970.
    pub taken_ns: u64,
    /// Whether its functions used the machine's clock.
    pub live_time: bool,
    /// The configuration of each function as TOML, in the order of the functions.
    pub configs: Vec<String>,
    /// The state.
    pub saved: Saved,
}

/// Why a file cannot be used as a snapshot.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The file cannot be read or written.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The file is not a snapshot, or it has a later version.
    #[error("{path}: {what}", path = path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
}

/// What a snapshot contains, and what it cost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// Packet sets in it, including those that workers share.
    pub sets: usize,
    /// State objects in it, including the tables of sets that workers share.
    pub objects: usize,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// How long the workers were stopped, in microseconds.
    pub held_us: u64,
}

impl Snapshot {
    /// Makes a snapshot of a state under the plan that produced it.
    pub fn new(plan: &Plan, saved: Saved) -> Snapshot {
        let config = |function: &SavedFunction| {
            let link = plan.chain.iter().find(|link| link.name == function.name);
            link.map_or(String::new(), |link| link.config.table().to_string())
        };
        Snapshot {
            program: env!("CARGO_PKG_VERSION").to_owned(),
            taken_ns: wall_ns(),
            live_time: plan.time == Time::Live,
            configs: saved.functions.iter().map(config).collect(),
            saved,
        }
    }

    /// Takes a snapshot of a run between two batches of all its workers; also returns how long they were stopped.
    pub fn take(live: &Live, plan: &Plan) -> Result<(Snapshot, Duration), Refused> {
        let unanswered = |error: Unanswered| Refused::new(error.to_string(), "ask again");
        let running = live.running().ok_or_else(|| Refused::new("the run has not begun", "ask again"))?;
        settle(live).map_err(unanswered)?;
        let held = live.hold().map_err(unanswered)?;
        let begun = Instant::now();
        let (chain, share) = (Arc::clone(&running.chain), live.workers());
        let copy =
            move |worker: &mut Worker| (worker.copy_sets(), save_objects(&chain, worker.id(), share), worker.now_ns());
        let workers = held.tell_all(copy).map_err(unanswered)?;
        drop(held);
        let stood = begun.elapsed();
        if workers.len() < share {
            return Err(Refused::new(
                "workers have ended, and their packet sets with them",
                "use `--snapshot` with the run",
            ));
        }
        let latest = workers.iter().map(|(_, _, now_ns)| *now_ns).max().unwrap_or(0);
        let mut saved = Saved::of_functions(&running.chain, plan.ports, latest);
        for (sets, objects, _) in workers {
            saved.sets.extend(sets.into_saved());
            saved.objects.extend(objects);
        }
        Ok((Snapshot::new(plan, saved), stood))
    }

    /// Checks whether a plan may continue with the snapshot. Returns the state, with its clock advanced by the time that has passed since.
    pub fn for_plan(self, plan: &Plan) -> Result<Saved, Problem> {
        if self.live_time != (plan.time == Time::Live) {
            let (was, is) = if self.live_time { ("live", "capture") } else { ("capture", "live") };
            let what = format!("the state was saved with time = \"{was}\", and the plan has time = \"{is}\"");
            return Err(Problem::new(what, format!("write time = \"{was}\": timeouts count in that time")));
        }
        plan.check_heritage(&self.older()?)?;
        Ok(self.at(wall_ns()))
    }

    /// Leaves out the state of the functions that cannot go on with it under a plan; returns why of each. If none can, an error says why the
    /// first one cannot.
    pub fn leave_out(&mut self, plan: &Plan) -> Result<Vec<Problem>, Problem> {
        let mut left_out = Vec::new();
        for (at, older) in self.older()?.into_iter().enumerate() {
            let Err(problem) = plan.check_heritage(&[older]) else { continue };
            // No function has this name.
            let name = std::mem::take(&mut self.saved.functions[at].name);
            self.saved
                .objects
                .retain(|(object, ..)| !object.strip_prefix(&name).is_some_and(|own| own.starts_with('.')));
            left_out.push(problem);
        }
        let goes_on = |function: &SavedFunction| plan.chain.iter().any(|link| link.name == function.name);
        if !left_out.is_empty() && !self.saved.functions.iter().any(goes_on) {
            return Err(left_out.swap_remove(0));
        }
        Ok(left_out)
    }

    /// Name, kind and configuration of each function.
    fn older(&self) -> Result<Vec<(String, String, toml::Table)>, Problem> {
        let functions = self.saved.functions.iter().zip(&self.configs);
        let older = functions.map(|(function, config)| {
            let config = toml::from_str::<toml::Table>(config);
            let problem = |_| Problem::new("a configuration in the snapshot is no TOML", "it is damaged");
            Ok((function.name.clone(), function.kind.clone(), config.map_err(problem)?))
        });
        older.collect()
    }

    /// The state at the machine time `now_ns`: live time has continued meanwhile, so ages and times of day stay correct.
    fn at(self, now_ns: u64) -> Saved {
        let mut saved = self.saved;
        if self.live_time {
            saved.now_ns = saved.now_ns.saturating_add(now_ns.saturating_sub(self.taken_ns));
        }
        saved
    }

    /// Summarises what is in it.
    pub fn taken(&self, bytes: u64, stood: Duration) -> Taken {
        let sets = self.saved.sets.len() + self.saved.shared_sets(|_| true);
        let objects = self.saved.objects.len();
        Taken { sets, objects, bytes, held_us: stood.as_micros() as u64 }
    }

    /// Encodes the snapshot as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        let word = |out: &mut Vec<u8>, word: u64| out.extend_from_slice(&word.to_le_bytes());
        let bytes = |out: &mut Vec<u8>, bytes: &[u8]| {
            word(out, bytes.len() as u64);
            out.extend_from_slice(bytes);
        };
        bytes(&mut out, self.program.as_bytes());
        let Saved { now_ns, order, functions, sets, objects } = &self.saved;
        for number in [self.taken_ns, u64::from(self.live_time), *now_ns] {
            word(&mut out, number);
        }
        let (order, ports) = order.unwrap_or_default();
        let outside = match order {
            Order::Same => None,
            Order::Mirrored { outside } => Some(outside.iter(ports).collect::<Vec<_>>()),
        };
        word(&mut out, u64::from(ports));
        word(&mut out, u64::from(outside.is_some()));
        bytes(&mut out, outside.unwrap_or_default().as_bytes());
        word(&mut out, functions.len() as u64);
        for (function, config) in functions.iter().zip(&self.configs) {
            bytes(&mut out, function.name.as_bytes());
            bytes(&mut out, function.kind.as_bytes());
            word(&mut out, function.set_bytes as u64);
            out.extend_from_slice(function.shape.as_bytes());
            word(&mut out, u64::from(function.shared));
            bytes(&mut out, config.as_bytes());
        }
        word(&mut out, objects.len() as u64);
        for (name, kind, image) in objects {
            [name.as_bytes(), kind.as_bytes(), image].iter().for_each(|part| bytes(&mut out, part));
        }
        word(&mut out, sets.len() as u64);
        for set in sets {
            out.extend_from_slice(set.key.as_bytes());
            word(&mut out, u64::from(set.last_seen_ms));
            word(&mut out, set.states.len() as u64);
            for (function, state) in &set.states {
                word(&mut out, *function as u64);
                bytes(&mut out, state);
            }
        }
        let checksum = crc32c(&out);
        out.extend_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Decodes bytes; the error says what is wrong with them.
    pub fn decode(bytes: &[u8]) -> Result<Snapshot, String> {
        let Some((body, checksum)) = bytes.split_last_chunk::<4>() else { return Err("it is too short".to_owned()) };
        let mut reader = Reader(body);
        if reader.take(MAGIC.len()).ok() != Some(MAGIC) {
            return Err("it is not a snapshot of braid".to_owned());
        }
        let version = reader.take(4)?.iter().rev().fold(0, |version: u32, byte| version << 8 | u32::from(*byte));
        if version > VERSION {
            return Err(format!("it has version {version}; this program reads versions up to {VERSION}"));
        }
        if u32::from_le_bytes(*checksum) != crc32c(body) {
            return Err("its checksum is wrong: it is damaged or cut off".to_owned());
        }
        reader.snapshot(version)
    }

    /// Reads a file.
    pub fn read(path: &Path) -> Result<Snapshot, SnapshotError> {
        let io = |source| SnapshotError::Io { path: path.to_owned(), source };
        let content = |what| SnapshotError::Content { path: path.to_owned(), what };
        let file = File::open(path).map_err(io)?;
        let len = file.metadata().map_err(io)?.len();
        if len > FILE_MAX {
            return Err(content(format!("{len} bytes, {FILE_MAX} are the most")));
        }
        let mut bytes = Vec::with_capacity(len as usize);
        // A pipe or device reports no length and may never end.
        let mut read = |most| (&file).take(most).read_to_end(&mut bytes).map(|_| bytes.starts_with(MAGIC));
        if read(MAGIC.len() as u64).map_err(io)? {
            read(FILE_MAX).map_err(io)?;
        }
        Snapshot::decode(&bytes).map_err(content)
    }

    /// Writes a file that only its owner may read, either completely or not at all.
    pub fn write(&self, path: &Path) -> Result<u64, SnapshotError> {
        let bytes = self.encode();
        let write = || {
            let (whole, mut file) = begin(path)?;
            file.write_all(&bytes).and_then(|()| file.sync_all())?;
            whole.end()
        };
        write().map_err(|source| SnapshotError::Io { path: path.to_owned(), source })?;
        Ok(bytes.len() as u64)
    }

    /// Checks whether a file could be written at `path`, before there is state to lose.
    pub fn check_place(path: &Path) -> Result<(), SnapshotError> {
        begin(path).map(drop).map_err(|source| SnapshotError::Io { path: path.to_owned(), source })
    }
}

/// Whether what a file should begin with was lost, as in a power failure: there are zeros.
pub fn is_blank(path: &Path) -> bool {
    begin_of(path).is_some_and(|begin| begin == [0; MAGIC.len()])
}

/// Begins a file. It refuses to replace anything that is not a regular file, such as a device, and files of another kind, such as a plan.
fn begin(path: &Path) -> io::Result<(AtomicFile, File)> {
    match path.symlink_metadata() {
        Ok(found) if found.is_file() && found.len() > 0 && !begins_so(path) => {
            Err(io::Error::other("the file there is not a snapshot of braid, and is left alone"))
        }
        _ if path.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(found) if !found.is_file() && !found.is_symlink() => {
            Err(io::Error::other("something is there that is no file"))
        }
        _ => AtomicFile::begin(path, FILE_MODE),
    }
}

/// Whether a file begins with the magic of a snapshot.
fn begins_so(path: &Path) -> bool {
    begin_of(path).is_some_and(|begin| begin == *MAGIC)
}

fn begin_of(path: &Path) -> Option<[u8; MAGIC.len()]> {
    let mut begin = [0; MAGIC.len()];
    File::open(path).and_then(|mut file| file.read_exact(&mut begin)).ok().map(|()| begin)
}

/// The unread rest of a body.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or("it is cut off")?;
        self.0 = rest;
        Ok(taken)
    }

    fn word(&mut self) -> Result<u64, String> {
        Ok(self.take(8)?.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)))
    }

    /// Reads a number of elements, each of which takes at least one byte.
    fn count(&mut self) -> Result<usize, String> {
        let count = self.word()?;
        if count > COUNT_MAX || count > self.0.len() as u64 {
            return Err(format!("{count} elements do not fit into what is left of it"));
        }
        Ok(count as usize)
    }

    fn bytes(&mut self) -> Result<&'a [u8], String> {
        let len = self.count()?;
        self.take(len)
    }

    fn text(&mut self) -> Result<String, String> {
        String::from_utf8(self.bytes()?.to_vec()).map_err(|_| "a name in it is no text".to_owned())
    }

    /// The order of the functions and the number of ports; `None` if nothing is known of them.
    fn order(&mut self) -> Result<Option<(Order, u16)>, String> {
        let (ports, is_mirrored, outside) = (self.word()? as u16, self.word()? != 0, self.bytes()?);
        let outside = outside.chunks_exact(2).map(|port| u16::from_le_bytes([port[0], port[1]]));
        let order = if is_mirrored { Order::Mirrored { outside: PortSet::of(outside) } } else { Order::Same };
        Ok((ports > 0).then_some((order, ports)))
    }

    fn snapshot(mut self, version: u32) -> Result<Snapshot, String> {
        let program = self.text()?;
        let (taken_ns, live_time, now_ns) = (self.word()?, self.word()? != 0, self.word()?);
        let order = if version >= HAS_ORDER { self.order()? } else { None };
        let (mut functions, mut configs) = (Vec::new(), Vec::new());
        for _ in 0..self.count()? {
            let (name, kind, set_bytes) = (self.text()?, self.text()?, self.word()? as usize);
            let shape = if version >= HAS_ORDER { self.take(size_of::<KeyShape>())? } else { &[0; 4] };
            let shape = KeyShape::read_from_bytes(shape).map_err(|_| "the fields of a key are cut off")?;
            functions.push(SavedFunction { name, kind, set_bytes, shape, shared: self.word()? != 0 });
            configs.push(self.text()?);
        }
        let mut objects = Vec::new();
        for _ in 0..self.count()? {
            objects.push((self.text()?, self.text()?, self.bytes()?.to_vec()));
        }
        let mut sets = Vec::new();
        for _ in 0..self.count()? {
            sets.push(self.set(&functions)?);
        }
        if !self.0.is_empty() {
            return Err(format!("{} bytes stand behind its end", self.0.len()));
        }
        let saved = Saved { now_ns, order, functions, sets, objects };
        Ok(Snapshot { program, taken_ns, live_time, configs, saved })
    }

    fn set(&mut self, functions: &[SavedFunction]) -> Result<SavedSet, String> {
        let key = SetKey::read_from_bytes(self.take(size_of::<SetKey>())?).map_err(|_| "a key is cut off")?;
        if key.shape() == KeyShape::default() {
            return Err("a packet set has no key".to_owned());
        }
        let last_seen_ms = self.word()? as u32;
        let mut states = Vec::new();
        for _ in 0..self.count()? {
            let (function, state) = (self.word()? as usize, self.bytes()?.to_vec());
            if functions.get(function).is_none_or(|function| function.set_bytes != state.len()) {
                return Err("the state of a packet set does not fit its function".to_owned());
            }
            states.push((function, state));
        }
        Ok(SavedSet { key, last_seen_ms, states })
    }
}

#[cfg(test)]
mod tests;

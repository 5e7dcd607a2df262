//! Passes the state and the plan of a run to the program that continues it. Both are files; if a file cannot be written, its
//! content is passed in memory, because the workers have already ended and nobody could start again.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

use braid_control::live::{Snapshot, Successor};
use braid_control::runtime::io::{atomic_file, device, inherited_memory};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::watch::Asked;
use crate::failure::{Failure, Kind};
use crate::stderr::asideln;

/// Environment variable that names the file with the state, if it was left only for the next program, which must remove it.
const LEFT: &str = "BRAID_STATE_LEFT";

/// Environment variable that says that signals wait for the next program, which must admit them once it has handlers.
pub const SIGNALS_HELD: &str = "BRAID_SIGNALS_HELD";

/// The signals that end a run or mean something to it: without a handler each of them ends the program.
const SIGNALS: [i32; 3] = [SIGHUP, SIGINT, SIGTERM];

/// Has signals wait until the next program can handle them, if it knows that it must admit them; one that has come already does, too.
pub fn hold_signals(successor: &Successor, next: &mut Command, asked: &Asked) {
    // If they cannot be held, they end the next program until it has handlers, as they would any program.
    if !successor.knows_of(SIGNALS_HELD) || device::hold_signals(&SIGNALS).is_err() {
        next.env_remove(SIGNALS_HELD);
        return;
    }
    next.env(SIGNALS_HELD, "1");
    if asked.is_set() {
        // To this thread, the only one that is left then. It waits: raise(3), execve(2) on pending signals.
        let _ = signal_hook::low_level::raise(SIGTERM);
    }
}

/// Admits the signals that the program before has held, now that there are handlers for them.
pub fn admit_signals() {
    if std::env::var_os(SIGNALS_HELD).is_some() {
        // Valid signals can be unblocked.
        let _ = device::admit_signals(&SIGNALS);
    }
}

/// Leaves the state at `path` or in memory; returns its path and its size in bytes.
pub fn leave_state(snapshot: &Snapshot, path: &Path) -> Result<(PathBuf, u64), Failure> {
    match snapshot.write(path) {
        Ok(bytes) => Ok((path.to_owned(), bytes)),
        Err(error) => {
            let bytes = snapshot.encode();
            Ok((in_memory(&bytes, &error)?, bytes.len() as u64))
        }
    }
}

/// Leaves the plan beside the state, where only the owner may read it, or in memory, and closes the memory of the `former` plan; returns the path.
pub fn leave_plan(text: &str, beside: &Path, former: Option<&Path>) -> Result<PathBuf, Failure> {
    former.map(taken);
    let path = beside.with_extension("applied.toml");
    // It may hold secrets, as the file did from which it came.
    match atomic_file::write_privately(&path, text.as_bytes()) {
        Ok(()) => Ok(path),
        Err(error) => in_memory(text.as_bytes(), &Failure::file(&path, &error)),
    }
}

/// Sets or removes the variable that tells the next program whether the state is a file left only for it.
pub fn tell_of(state: Option<&Path>, next: &mut Command) {
    match state {
        Some(state) => next.env(LEFT, state),
        None => next.env_remove(LEFT),
    };
}

/// The path of the state if it was left only for this program; a state that the user named must be kept.
pub fn left_for_us(state: &Path) -> Option<PathBuf> {
    std::env::var_os(LEFT).filter(|left| Path::new(left) == state).map(PathBuf::from)
}

/// Removes a file that was left for this program, after the program has started with it or ended.
pub fn remove(left: &Path) {
    // Memory has no name, and a missing file does not matter.
    let _ = std::fs::remove_file(left);
}

/// Closes memory that nobody will read again; files stay.
pub fn taken(path: &Path) {
    inherited_memory::close(path);
}

/// Whether the path refers to memory that disappears with the process.
pub fn is_memory(path: &Path) -> bool {
    inherited_memory::is_left(path)
}

fn in_memory(content: &[u8], why: &dyn Error) -> Result<PathBuf, Failure> {
    let path = inherited_memory::leave(content)
        .map_err(|error| Failure::new(Kind::Io, format!("{why}; nor is there memory: {error}"), "the state is lost"))?;
    asideln!("note: {why}: handed over in memory");
    Ok(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_plan_that_is_left_is_its_owners_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let left = leave_plan("workers = 2\n", &folder.path().join("control.sock.state"), None).expect("written");
        assert_eq!(left, folder.path().join("control.sock.applied.toml"));
        assert_eq!(left.metadata().expect("a file").permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn what_finds_no_room_is_read_from_memory_and_gives_it_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let beside = folder.path().join("missing").join("control.sock.state");
        std::fs::write(folder.path().join("missing"), "a file, so no folder").expect("written");
        let left = leave_plan("workers = 2\n", &beside, None).expect("there is memory");
        assert!(is_memory(&left));
        assert_eq!(std::fs::read_to_string(&left).expect("readable"), "workers = 2\n");
        taken(&left);
        assert!(!is_memory(&left), "its descriptor is closed; the number may be another file's by now");
    }

    #[test]
    fn what_has_room_stays_a_file_when_it_is_taken() {
        let folder = tempfile::tempdir().expect("a folder");
        let left = leave_plan("workers = 2\n", &folder.path().join("control.sock.state"), None).expect("written");
        assert_eq!(left, folder.path().join("control.sock.applied.toml"));
        assert!(!is_memory(&left));
        taken(&left);
        assert_eq!(std::fs::read_to_string(&left).expect("readable"), "workers = 2\n");
    }
}

//! Memory that a program leaves for the program that its process executes next, where a file cannot be written.
//!
//! It is a file without a name (memfd_create(2)) whose descriptor stays open. The next program opens it by its path in `/proc` like any
//! other file, whatever its version. Only memory that was made here is ever closed here.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};

use rustix::fs::{MemfdFlags, memfd_create};

use crate::device::sys::{adopt_memory, give_up, listed};

const NAME: &str = "braid handover";

/// Leaves `content` in memory until the process ends or somebody [closes](close) it; returns its path.
pub fn leave(content: &[u8]) -> io::Result<PathBuf> {
    let mut file = File::from(memfd_create(NAME, MemfdFlags::CLOEXEC)?);
    file.write_all(content)?;
    Ok(PathBuf::from(format!("/proc/self/fd/{}", give_up(file)?)))
}

/// Whether the path refers to memory that was [left](leave), by this program or the previous one in this process.
pub fn is_left(path: &Path) -> bool {
    number(path).and_then(listed).is_some_and(|listed| listed == Path::new("/memfd:braid handover (deleted)"))
}

/// Closes memory that was [left](leave) and that nobody will read again; files and other descriptors stay.
pub fn close(path: &Path) {
    drop(number(path).and_then(|number| adopt_memory(number, NAME)));
}

fn number(path: &Path) -> Option<RawFd> {
    path.strip_prefix("/proc/self/fd").ok()?.to_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn what_is_left_is_read_by_its_path_until_it_is_closed() {
        let path = leave(b"workers = 2\n").expect("there is memory");
        assert!(is_left(&path));
        assert_eq!(std::fs::read(&path).expect("readable"), b"workers = 2\n");
        close(&path);
        // Its number may be another file's by now.
        assert!(std::fs::read(&path).map_or(true, |bytes| bytes != b"workers = 2\n"));
        nothing_else_is_closed();
    }

    /// Called by the other test, since its memory could get the number that was closed there.
    fn nothing_else_is_closed() {
        let own = File::open("/dev/null").expect("every Linux has it");
        for number in [1, own.as_raw_fd()] {
            let path = PathBuf::from(format!("/proc/self/fd/{number}"));
            assert!(!is_left(&path) && path.exists());
            close(&path);
            assert!(path.exists(), "{number}");
        }
        // Memory of that name that somebody owns.
        let own = File::from(memfd_create(NAME, MemfdFlags::CLOEXEC).expect("memory"));
        let path = PathBuf::from(format!("/proc/self/fd/{}", own.as_raw_fd()));
        close(&path);
        assert!(is_left(&path));
    }
}

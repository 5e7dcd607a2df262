//! Files that exist either completely or not at all: they are written under a name that ends in `.partial` and renamed when
//! complete. Only one process writes at a time; the next writer removes what an interrupted one left behind.

use std::fs::{File, OpenOptions, TryLockError, create_dir_all};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A file that does not have its final name yet. If it is dropped before [`end`](AtomicFile::end), it is
/// removed, and a previous file of that name remains.
#[derive(Debug)]
pub struct AtomicFile {
    path: PathBuf,
    beside: Option<PathBuf>,
    /// Locked while the file is being written.
    _lock: Option<File>,
}

impl AtomicFile {
    /// Begins a file with these permissions, and creates its folder. Symbolic links are not followed: a link at the path will be
    /// replaced. Fails if another process is writing the file.
    pub fn begin(path: &Path, mode: u32) -> io::Result<(AtomicFile, File)> {
        path.parent().map_or(Ok(()), create_dir_all)?;
        let mut beside = path.as_os_str().to_owned();
        beside.push(".partial");
        let beside = PathBuf::from(beside);
        let is_file = beside.symlink_metadata().is_ok_and(|left| left.is_file());
        // Who removes a file has its lock, so nobody removes that of a writer who has it.
        let left = if is_file { File::open(&beside).ok() } else { None };
        left.as_ref().map_or(Ok(()), |left| own(left, &beside))?;
        let _ = std::fs::remove_file(&beside);
        let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside);
        let file = file.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => taken(),
            _ => error,
        })?;
        own(&file, &beside)?;
        let lock = file.try_clone()?;
        Ok((AtomicFile { path: path.to_owned(), beside: Some(beside), _lock: Some(lock) }, file))
    }

    /// Begins a file that everybody may read, and creates its folder. A pipe or device is opened directly.
    pub fn open(path: &Path) -> io::Result<(AtomicFile, File)> {
        if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            return Ok((AtomicFile { path: path.to_owned(), beside: None, _lock: None }, File::create(path)?));
        }
        AtomicFile::begin(path, 0o666)
    }

    /// Gives the file its final name.
    pub fn end(mut self) -> io::Result<()> {
        let Some(beside) = &self.beside else { return Ok(()) };
        std::fs::rename(beside, &self.path)?;
        self.beside = None;
        Ok(())
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if let Some(beside) = &self.beside {
            // The file may have been deleted together with its folder.
            let _ = std::fs::remove_file(beside);
        }
    }
}

/// Locks a file that was opened at a path. Fails if somebody else has it, or has put another one there in the meantime. Not every file system
/// supports locks; without a lock the last writer wins.
fn own(file: &File, path: &Path) -> io::Result<()> {
    if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
        return Err(taken());
    }
    let (own, there) = (file.metadata()?, path.symlink_metadata());
    let is_there = there.is_ok_and(|there| (there.dev(), there.ino()) == (own.dev(), own.ino()));
    if is_there { Ok(()) } else { Err(taken()) }
}

fn taken() -> io::Error {
    io::Error::other("somebody else is writing it")
}

/// Writes a file as a whole.
pub fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let (whole, mut file) = AtomicFile::open(path)?;
    file.write_all(content)?;
    whole.end()
}

/// Writes a file as a whole that only its owner may read.
pub fn write_privately(path: &Path, content: &[u8]) -> io::Result<()> {
    let (whole, mut file) = AtomicFile::begin(path, 0o600)?;
    file.write_all(content)?;
    whole.end()
}

/// Checks whether a file could be written, before there is anything to lose.
pub fn check(path: &Path) -> io::Result<()> {
    AtomicFile::open(path).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).expect("a folder").flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_that_is_not_completed_leaves_what_was_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("plan.toml");
        write(&path, b"first").expect("written");
        std::fs::write(folder.path().join("plan.toml.partial"), b"of an interrupted writer").expect("written");
        let (whole, mut file) = AtomicFile::open(&path).expect("begun");
        file.write_all(b"seco").expect("written");
        assert_eq!(names(folder.path()), ["plan.toml", "plan.toml.partial"]);
        drop(whole);
        assert_eq!(
            (names(folder.path()), std::fs::read(&path).expect("it")),
            (vec!["plan.toml".into()], b"first".to_vec())
        );
        write(&path, b"second").expect("written");
        assert_eq!(
            (names(folder.path()), std::fs::read(&path).expect("it")),
            (vec!["plan.toml".into()], b"second".to_vec())
        );
    }

    #[test]
    fn two_who_write_one_file_do_not_take_each_others_half() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("missing").join("state");
        let (whole, mut first) = AtomicFile::begin(&path, 0o600).expect("begun, in a folder that was made");
        first.write_all(b"first").expect("written");
        let second = AtomicFile::begin(&path, 0o600).map(drop).expect_err("somebody is writing it");
        assert!(second.to_string().contains("somebody else"), "{second}");
        drop(first);
        whole.end().expect("it is complete");
        assert_eq!(std::fs::read(&path).expect("it"), b"first");
        write(&path, b"second").expect("nobody writes it any more");
    }

    #[test]
    fn who_was_overtaken_before_the_lock_does_not_take_the_others_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("state");
        let beside = folder.path().join("state.partial");
        // One has created the file and not locked it yet; the other takes it for left behind.
        let first = File::create(&beside).expect("created");
        let (whole, mut second) = AtomicFile::begin(&path, 0o600).expect("nobody has locked it");
        own(&first, &beside).expect_err("another file is there by now");
        second.write_all(b"second").expect("written");
        whole.end().expect("it is complete");
        assert_eq!(std::fs::read(&path).expect("it"), b"second");
        // One is about to remove what is left behind.
        std::fs::write(&beside, b"left").expect("written");
        let left = File::open(&beside).expect("it");
        own(&left, &beside).expect("nobody else has it");
        AtomicFile::begin(&path, 0o600).map(drop).expect_err("somebody has it");
    }

    #[test]
    fn a_device_stays_one_and_a_link_is_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let (device, link, other) =
            (folder.path().join("null"), folder.path().join("link"), folder.path().join("other"));
        std::os::unix::fs::symlink("/dev/null", &device).expect("a link");
        write(&device, b"gone").expect("written");
        assert!(device.is_symlink());
        write(&other, b"somebody's").expect("written");
        std::os::unix::fs::symlink(&other, &link).expect("a link");
        write(&link, b"mine").expect("written");
        assert!(!link.is_symlink());
        assert_eq!(std::fs::read(&other).expect("it"), b"somebody's");
    }
}

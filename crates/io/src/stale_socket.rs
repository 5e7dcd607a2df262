//! Paths of Unix sockets: what may be removed to make room for a socket, and by whom in the end.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Why there is no room for a socket at a path.
#[derive(Debug, thiserror::Error)]
pub enum Occupied {
    /// The operating system reports an error. It may come from a socket of another kind or user; whether somebody answers there is unknown.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Somebody answers there.
    #[error("somebody answers there")]
    Taken,
    /// Something that is not a socket is there.
    #[error("something is there that is no socket")]
    NoSocket,
}

/// Removes a socket that a killed process has left behind: one on which `connect` is refused. Anything else stays.
pub fn make_room(path: &Path, connect: impl FnOnce(&Path) -> io::Result<()>) -> Result<(), Occupied> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error.into()),
        Ok(there) if !there.file_type().is_socket() => Err(Occupied::NoSocket),
        Ok(_) => match connect(path) {
            Ok(()) => Err(Occupied::Taken),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(fs::remove_file(path)?),
            Err(error) => Err(error.into()),
        },
    }
}

/// The path of a socket that this process has bound. Dropping it removes the path, unless something else is there by then.
#[derive(Debug)]
pub struct BoundPath {
    path: PathBuf,
    /// Device and inode.
    file: Option<(u64, u64)>,
}

impl BoundPath {
    /// The path, at which the socket has just been bound.
    pub fn of(path: &Path) -> BoundPath {
        BoundPath { path: path.to_owned(), file: file_at(path) }
    }
}

impl Drop for BoundPath {
    fn drop(&mut self) {
        if self.file.is_some() && file_at(&self.path) == self.file {
            // It does no harm if somebody has removed it meanwhile.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn file_at(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|there| (there.dev(), there.ino()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    fn connect(path: &Path) -> io::Result<()> {
        std::os::unix::net::UnixStream::connect(path).map(drop)
    }

    #[test]
    fn only_a_socket_on_which_nobody_answers_is_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("it");
        assert!(make_room(&path, connect).is_ok(), "nothing is there");
        fs::write(&path, "precious").expect("written");
        assert!(matches!(make_room(&path, connect), Err(Occupied::NoSocket)));
        assert_eq!(fs::read(&path).expect("still there"), b"precious");
        fs::remove_file(&path).expect("removed");
        let listener = UnixListener::bind(&path).expect("bound");
        assert!(matches!(make_room(&path, connect), Err(Occupied::Taken)));
        let other = |_: &Path| Err(io::Error::from_raw_os_error(libc::EPROTOTYPE));
        assert!(matches!(make_room(&path, other), Err(Occupied::Io(_))), "a socket of another kind");
        drop(listener);
        assert!(path.exists());
        assert!(make_room(&path, connect).is_ok() && !path.exists(), "left behind");
    }

    #[test]
    fn a_path_that_somebody_else_has_taken_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("it");
        let first = (UnixListener::bind(&path).expect("bound"), BoundPath::of(&path));
        // Beside the first, so that its inode is another one.
        let second = UnixListener::bind(folder.path().join("other")).expect("bound");
        fs::rename(folder.path().join("other"), &path).expect("renamed");
        drop(first);
        assert!(path.exists());
        let own = BoundPath::of(&path);
        drop((second, own));
        assert!(!path.exists());
    }
}

//! The client side of the control socket.
//!
//! Some answers take long, for example a snapshot of a million sets, or state objects that are copied while
//! packets pass through. Silence alone is therefore not a failure. After [`SILENCE`] the client asks over
//! another connection whether the run is alive, which any run answers regardless of its workers. A run that
//! does not answer that within [`PATIENCE`] must have been suspended, and the client gives up.

use std::io::{self, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::protocol::{Answer, Refused, Request, read_line};

/// Maximum size of an answer in bytes; a listing of a million sets must fit.
const ANSWER_MAX: usize = 1 << 30;

/// After this time without data, the client checks whether the run is alive.
pub const SILENCE: Duration = Duration::from_secs(5);
/// Time limit for that check: twice as long as the run waits for its own workers.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens on the socket, or the connection broke.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The process exists, but it neither answers nor reports that it is alive.
    #[error("{path}: the run there says nothing, not even within {PATIENCE:?} that it is there", path = .0.display())]
    Silent(PathBuf),
    /// The run refused the request.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The answer could not be parsed.
    #[error("{path}: the answer cannot be read: {reason}", path = path.display())]
    Answer {
        /// The socket.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
}

/// A connection to a run.
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    stream: BufReader<Patient>,
}

impl Client {
    /// Connects to the control socket at `path`.
    pub fn connect(path: &Path) -> Result<Client, ClientError> {
        let patient = Patient::connect(path).map_err(|source| failed(path, source))?;
        Ok(Client { path: path.to_owned(), stream: BufReader::new(patient) })
    }

    /// A handle to the connection itself. Shutting it down ends a pending wait with an error.
    pub fn line(&self) -> Result<UnixStream, ClientError> {
        self.stream.get_ref().stream.try_clone().map_err(|source| failed(&self.path, source))
    }

    /// Waits until the run closes the connection, as it does when it ends or executes another program. Returns whether it has within `at_most`.
    pub fn is_closed_within(&mut self, at_most: Duration) -> bool {
        let (begun, stream) = (Instant::now(), &mut self.stream.get_mut().stream);
        while let Some(left) = at_most.checked_sub(begun.elapsed()).filter(|left| !left.is_zero()) {
            let read = stream.set_read_timeout(Some(left)).and_then(|()| stream.read(&mut [0; 64]));
            match read {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) if is_late(&error) || error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return true,
            }
        }
        false
    }

    /// Sends a request and waits for the answer.
    pub fn ask<T: DeserializeOwned>(&mut self, request: &Request) -> Result<T, ClientError> {
        self.ask_more(request, |_: Value| ())
    }

    /// Like [`ask`](Client::ask), but passes every part that precedes the answer to `part`.
    pub fn ask_more<P: DeserializeOwned, T: DeserializeOwned>(
        &mut self,
        request: &Request,
        mut part: impl FnMut(P),
    ) -> Result<T, ClientError> {
        self.say(request)?;
        loop {
            match self.hear()? {
                Answer::More(value) => {
                    part(serde_json::from_value(value).map_err(|error| self.unreadable(&error))?);
                }
                Answer::Ok(value) => return serde_json::from_value(value).map_err(|error| self.unreadable(&error)),
                Answer::Error(refused) => return Err(refused.into()),
            }
        }
    }

    fn say(&mut self, request: &Request) -> Result<(), ClientError> {
        let mut line = serde_json::to_vec(request).map_err(|error| self.unreadable(&error))?;
        line.push(b'\n');
        self.stream.get_mut().stream.write_all(&line).map_err(|source| failed(&self.path, source))
    }

    fn hear(&mut self) -> Result<Answer, ClientError> {
        let line = read_line(&mut self.stream, ANSWER_MAX);
        let line = line.and_then(|line| line.ok_or(io::ErrorKind::UnexpectedEof.into()));
        let line = line.map_err(|source| failed(&self.path, source))?;
        serde_json::from_str(&line).map_err(|error| self.unreadable(&error))
    }

    fn unreadable(&self, error: &serde_json::Error) -> ClientError {
        ClientError::Answer { path: self.path.clone(), reason: error.to_string() }
    }
}

fn failed(path: &Path, source: io::Error) -> ClientError {
    let path = path.to_owned();
    if is_late(&source) { ClientError::Silent(path) } else { ClientError::Io { path, source } }
}

/// Whether an error means that a socket timeout has expired; Linux reports the first kind.
fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// A connection whose reads wait as long as the run is alive.
#[derive(Debug)]
struct Patient {
    stream: UnixStream,
    path: PathBuf,
}

impl Patient {
    fn connect(path: &Path) -> io::Result<Patient> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(SILENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Patient { stream, path: path.to_owned() })
    }

    /// Whether the run answers an invalid request, as any run does at once. An error other than a timeout counts as alive: while a
    /// run ends, nobody answers there, but the answer to the earlier request still arrives.
    fn is_there(&self) -> bool {
        let ask = || {
            let mut another = UnixStream::connect(&self.path)?;
            another.set_read_timeout(Some(PATIENCE))?;
            another.write_all(b"\n")?;
            another.read(&mut [0; 64])
        };
        ask().map_or_else(|error| !is_late(&error), |_| true)
    }
}

impl Read for Patient {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.stream.read(into) {
                Err(error) if is_late(&error) && self.is_there() => {}
                read => return read,
            }
        }
    }
}

//! The other end of the control socket.

use std::io::{self, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::protocol::{Answer, Refused, Request, read_line};

/// Most bytes of an answer: a listing of a million sets.
const ANSWER_MAX: usize = 1 << 30;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens, or the connection broke.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The run refuses.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The answer cannot be read.
    #[error("{path}: the answer cannot be read: {reason}", path = path.display())]
    Answer {
        /// The socket.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

/// A connection to a run.
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    stream: BufReader<UnixStream>,
}

impl Client {
    /// Connects.
    pub fn connect(path: &Path) -> Result<Client, ClientError> {
        let stream = UnixStream::connect(path);
        let stream = stream.map_err(|source| ClientError::Io { path: path.to_owned(), source })?;
        Ok(Client { path: path.to_owned(), stream: BufReader::new(stream) })
    }

    /// The line itself: whoever shuts it down ends the waiting, which then fails.
    pub fn line(&self) -> Result<UnixStream, ClientError> {
        self.stream.get_ref().try_clone().map_err(|source| ClientError::Io { path: self.path.clone(), source })
    }

    /// Asks and waits for the answer.
    pub fn ask<T: DeserializeOwned>(&mut self, request: &Request) -> Result<T, ClientError> {
        self.ask_more(request, |_: Value| ())
    }

    /// The same with every part that comes before the answer given to `part`.
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
        self.stream.get_mut().write_all(&line).map_err(|source| ClientError::Io { path: self.path.clone(), source })
    }

    fn hear(&mut self) -> Result<Answer, ClientError> {
        let line = read_line(&mut self.stream, ANSWER_MAX);
        let io = |source| ClientError::Io { path: self.path.clone(), source };
        let line = line.map_err(io)?.ok_or_else(|| io(io::ErrorKind::UnexpectedEof.into()))?;
        serde_json::from_str(&line).map_err(|error| self.unreadable(&error))
    }

    fn unreadable(&self, error: &serde_json::Error) -> ClientError {
        ClientError::Answer { path: self.path.clone(), reason: error.to_string() }
    }
}

//! The control socket: a Unix socket that only its owner may open, with one JSON object per line.
//!
//! One thread accepts connections, and another one serves each of them, up to [`CONNECTIONS_MAX`] at once. A line that is too long,
//! not UTF-8 or not a request is answered with an error. A connection that is silent for [`SILENCE`] is closed; one that is silent
//! for [`SPARED`] is closed when a new connection finds no room.

use std::io::{self, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use braid_runtime::io::stale_socket::{BoundPath, Occupied, make_room};
use rustix::fs::Mode;
use serde_json::Value;

use super::listener::{Listening, Serve};
use super::protocol::{Answer, REQUEST_MAX, Refused, Request, read_line};
use super::seat::Seat;
use super::service::Service;

/// Maximum number of simultaneous connections.
pub const CONNECTIONS_MAX: usize = 32;
/// A connection that is silent for this long is closed.
pub const SILENCE: Duration = Duration::from_secs(300);
/// A connection that has been silent for at most this long is not closed to make room: a client that polls
/// every second keeps its connection.
pub const SPARED: Duration = Duration::from_secs(5);

/// Why a control socket cannot be offered.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// The operating system reports an error.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// Another run answers there.
    #[error("{path}: another run answers there", path = .0.display())]
    Taken(PathBuf),
    /// Something that is not a socket is there.
    #[error("{path}: something is there that is no socket", path = .0.display())]
    NoSocket(PathBuf),
}

/// An offered control socket. Dropping it removes it.
#[derive(Debug)]
pub struct ControlSocket {
    // Dropped in this order: a client that connects is either answered or finds no file.
    _listening: Listening,
    _path: BoundPath,
}

impl ControlSocket {
    /// Offers a socket at `path`, with file permissions 0600. A socket left behind by a killed run is replaced.
    pub fn offer(path: &Path, service: &Arc<Service>) -> Result<ControlSocket, SocketError> {
        let io = |source| SocketError::Io { path: path.to_owned(), source };
        make_room(path, |path| UnixStream::connect(path).map(drop)).map_err(|occupied| match occupied {
            Occupied::Io(source) => io(source),
            Occupied::Taken => SocketError::Taken(path.to_owned()),
            Occupied::NoSocket => SocketError::NoSocket(path.to_owned()),
        })?;
        // The socket is created with its final permissions, so at no moment can anybody else open it.
        let before = rustix::process::umask(Mode::RWXG | Mode::RWXO | Mode::XUSR);
        let listener = UnixListener::bind(path);
        rustix::process::umask(before);
        let listener = listener.map_err(io)?;
        let bound = BoundPath::of(path);
        let listening = Listening::begin("control", listener, service, Lines).map_err(io)?;
        Ok(ControlSocket { _listening: listening, _path: bound })
    }
}

/// Serves requests and answers as lines.
struct Lines;

impl Serve<UnixStream> for Lines {
    const MOST: usize = CONNECTIONS_MAX;
    const SPARED: Duration = SPARED;

    fn serve(&self, seat: &Seat<UnixStream>, service: &Service) -> io::Result<()> {
        serve(seat, service)
    }

    fn refuse(&self, stream: &UnixStream) {
        let what = format!("{CONNECTIONS_MAX} connections are open already, and none has been silent for long");
        let _ = say(stream, &Answer::Error(Refused::new(what, "close one, or ask again")));
    }
}

fn serve(seat: &Seat<UnixStream>, service: &Service) -> io::Result<()> {
    let stream = &seat.stream;
    stream.set_read_timeout(Some(SILENCE))?;
    stream.set_write_timeout(Some(SILENCE))?;
    let mut from = BufReader::new(stream);
    let tell = |answer: &Answer| seat.tell(|| say(stream, answer));
    loop {
        let line = match seat.hear(|| read_line(&mut from, REQUEST_MAX)) {
            Ok(Some(line)) => line,
            Ok(None) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                tell(&Answer::Error(Refused::new(error.to_string(), "send less, as UTF-8")))?;
                continue;
            }
            Err(error) => return Err(error),
        };
        let mut more = |part: Option<Value>| match part {
            Some(part) => tell(&Answer::More(part)),
            // An empty write sends nothing. It fails if the peer has closed the connection, but not if the
            // peer has only shut down its sending side.
            None => (&mut &*stream).write(&[]).map(drop),
        };
        let answer = Request::parse(&line).and_then(|request| service.answer(request, &mut more));
        tell(&answer.map_or_else(Answer::Error, Answer::Ok))?;
    }
}

fn say(mut to: impl Write, answer: &Answer) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    to.write_all(&line)
}

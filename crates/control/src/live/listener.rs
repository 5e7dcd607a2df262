//! Accepts connections until dropped, with one thread for accepting and one for each connection.
//!
//! At the maximum number of connections, the one whose peer has been silent for longest makes room for a new one (`seat.rs`).
//! Dropping the listener waits for the accepting thread, so nobody connects afterwards; open connections end on their own.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::seat::{Seat, Seating, Seats, Shut};
use super::service::Service;

/// How often the accepting thread checks whether it must end.
const ROUND: Duration = Duration::from_millis(20);

/// A non-blocking source of connections.
pub(super) trait Listen: Send + 'static {
    /// The type of a connection.
    type Stream: Shut;

    /// Accepts the next connection, if there is one.
    fn next(&self) -> io::Result<Self::Stream>;

    /// Makes `next` return at once, while accepted connections block.
    fn prepare(&self) -> io::Result<()>;
}

impl Listen for TcpListener {
    type Stream = TcpStream;

    fn next(&self) -> io::Result<TcpStream> {
        let (stream, _) = self.accept()?;
        stream.set_nonblocking(false).map(|()| stream)
    }

    fn prepare(&self) -> io::Result<()> {
        self.set_nonblocking(true)
    }
}

impl Listen for UnixListener {
    type Stream = UnixStream;

    fn next(&self) -> io::Result<UnixStream> {
        let (stream, _) = self.accept()?;
        stream.set_nonblocking(false).map(|()| stream)
    }

    fn prepare(&self) -> io::Result<()> {
        self.set_nonblocking(true)
    }
}

/// How connections are served.
pub(super) trait Serve<S>: Send + Sync + 'static {
    /// Maximum number of simultaneous connections.
    const MOST: usize;
    /// A connection that has been silent for at most this long is not closed to make room for another.
    const SPARED: Duration;

    /// Serves one connection until it ends. A broken connection needs no report: its peer knows.
    fn serve(&self, seat: &Seat<S>, service: &Service) -> io::Result<()>;

    /// Tells the peer that there are too many connections.
    fn refuse(&self, _: &S) {}
}

/// A running listener. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Listening {
    ends: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl Listening {
    /// Starts the listener; `name` becomes the name of its threads.
    pub(super) fn begin<L: Listen>(
        name: &'static str,
        listener: L,
        service: &Arc<Service>,
        how: impl Serve<L::Stream>,
    ) -> io::Result<Listening> {
        listener.prepare()?;
        let ends = Arc::new(AtomicBool::new(false));
        let (told, service) = (Arc::clone(&ends), Arc::clone(service));
        let accepting = std::thread::Builder::new().name(name.into());
        let accepting = accepting.spawn(move || accept(name, &listener, &service, &Arc::new(how), &told))?;
        Ok(Listening { ends, accepting: Some(accepting) })
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        // Relaxed: the flag carries no data.
        self.ends.store(true, Ordering::Relaxed);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

/// A connection that is being served. It gives up its seat at the end, even after a panic.
struct Seated<S: Shut> {
    seats: Seats<S>,
    seat: Arc<Seat<S>>,
}

impl<S: Shut> Drop for Seated<S> {
    fn drop(&mut self) {
        self.seats.leave(&self.seat);
    }
}

fn accept<L: Listen, H: Serve<L::Stream>>(
    name: &str,
    listener: &L,
    service: &Arc<Service>,
    how: &Arc<H>,
    ends: &AtomicBool,
) {
    let seats = Seats::new(H::MOST, H::SPARED);
    while !ends.load(Ordering::Relaxed) {
        service.rest();
        let Ok(stream) = listener.next() else {
            std::thread::sleep(ROUND);
            continue;
        };
        let (seat, taken) = seats.take(stream);
        service.count(taken);
        if taken == Seating::Refused {
            how.refuse(&seat.stream);
            continue;
        }
        let (service, how, here, mine) = (Arc::clone(service), Arc::clone(how), seats.clone(), Arc::clone(&seat));
        let served = std::thread::Builder::new().name(name.into()).spawn(move || {
            let seated = Seated { seats: here, seat: mine };
            let _ = how.serve(&seated.seat, &service);
        });
        if served.is_err() {
            seats.leave(&seat);
        }
    }
}

//! Limits the number of simultaneous clients of a run; the client that has been silent for longest makes room for a new one.
//!
//! A client is silent from the moment it is expected to send a request until it has sent all of it, and while it has not accepted
//! all of an answer. A client that waits for an answer is not silent.

use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A connection that one thread may shut down while another one serves it.
pub(super) trait Shut: Send + Sync + 'static {
    /// Shuts it down in one direction or both; does nothing if that has already happened.
    fn shut(&self, how: Shutdown);
}

impl Shut for UnixStream {
    fn shut(&self, how: Shutdown) {
        let _ = self.shutdown(how);
    }
}

impl Shut for TcpStream {
    fn shut(&self, how: Shutdown) {
        let _ = self.shutdown(how);
    }
}

/// A connection, with the time since which its peer has been silent.
#[derive(Debug)]
pub(super) struct Seat<S> {
    /// The connection.
    pub(super) stream: S,
    /// `None` while an answer is being prepared; otherwise the start of the silence and the direction to shut down to end it.
    silent: Mutex<Option<(Instant, Shutdown)>>,
}

impl<S> Seat<S> {
    /// Receives a request with `receive`. If the seat is taken away meanwhile, data that has already
    /// arrived is still read, followed by the end of the stream.
    pub(super) fn hear<T>(&self, receive: impl FnOnce() -> T) -> T {
        self.wait(Shutdown::Read, receive)
    }

    /// Sends an answer with `send`, which fails if the seat is taken away meanwhile.
    pub(super) fn tell<T>(&self, send: impl FnOnce() -> T) -> T {
        self.wait(Shutdown::Both, send)
    }

    fn wait<T>(&self, how: Shutdown, until: impl FnOnce() -> T) -> T {
        // A new client is silent since it connected, however late its thread starts.
        lock(&self.silent).get_or_insert_with(|| (Instant::now(), how));
        let done = until();
        *lock(&self.silent) = None;
        done
    }
}

/// The outcome for a new client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seating {
    /// A seat was free.
    Free,
    /// A silent client was disconnected to make room.
    MadeFree,
    /// No seat was free, and no client was silent for long enough.
    Refused,
}

/// All occupied seats.
#[derive(Debug)]
pub(super) struct Seats<S> {
    taken: Arc<Mutex<Vec<Arc<Seat<S>>>>>,
    most: usize,
    spared: Duration,
}

impl<S> Clone for Seats<S> {
    fn clone(&self) -> Self {
        Seats { taken: Arc::clone(&self.taken), ..*self }
    }
}

impl<S: Shut> Seats<S> {
    /// Makes `most` seats; a client that has been silent for at most `spared` keeps its seat.
    pub(super) fn new(most: usize, spared: Duration) -> Seats<S> {
        Seats { taken: Arc::default(), most, spared }
    }

    /// Seats a new client. A refused client occupies no seat.
    pub(super) fn take(&self, stream: S) -> (Arc<Seat<S>>, Seating) {
        let seat = Arc::new(Seat { stream, silent: Mutex::new(Some((Instant::now(), Shutdown::Read))) });
        let mut all = lock(&self.taken);
        let taken = match all.len() < self.most {
            true => Seating::Free,
            false if self.make_room(&mut all) => Seating::MadeFree,
            false => return (seat, Seating::Refused),
        };
        all.push(Arc::clone(&seat));
        (seat, taken)
    }

    /// Frees a seat.
    pub(super) fn leave(&self, seat: &Arc<Seat<S>>) {
        lock(&self.taken).retain(|one| !Arc::ptr_eq(one, seat));
    }

    fn make_room(&self, all: &mut Vec<Arc<Seat<S>>>) -> bool {
        let silent = all.iter().enumerate().filter_map(|(at, seat)| lock(&seat.silent).map(|silent| (silent, at)));
        let longest = silent.min_by_key(|((since, _), _)| *since);
        let Some(((_, how), at)) = longest.filter(|((since, _), _)| since.elapsed() > self.spared) else {
            return false;
        };
        all.swap_remove(at).stream.shut(how);
        true
    }
}

/// Ignores poisoning: every value under these locks is replaced in one step, so it is consistent after a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Clients in order of arrival: each one's own end of the connection, and its seat.
    struct Guests {
        seats: Seats<UnixStream>,
        come: Vec<(UnixStream, Arc<Seat<UnixStream>>)>,
    }

    impl Guests {
        fn new(most: usize, spared: Duration) -> Guests {
            Guests { seats: Seats::new(most, spared), come: Vec::new() }
        }

        #[track_caller]
        fn one_comes(&mut self, expected: Seating) {
            let (here, there) = UnixStream::pair().expect("a pair");
            let (seat, taken) = self.seats.take(here);
            assert_eq!(taken, expected);
            self.come.push((there, seat));
        }

        /// Positions of clients that have been disconnected.
        fn out(&mut self) -> Vec<usize> {
            let out = |(there, _): &mut (UnixStream, _)| there.write(b"x").is_err();
            self.come.iter_mut().map(out).enumerate().filter_map(|(at, out)| out.then_some(at)).collect()
        }
    }

    #[test]
    fn who_has_been_silent_for_longest_makes_room_and_who_is_served_does_not() {
        let mut guests = Guests::new(3, Duration::ZERO);
        for _ in 0..3 {
            guests.one_comes(Seating::Free);
        }
        // The first client's request takes long; the third client has been silent for less time than the second one.
        let third = Arc::clone(&guests.come[2].1);
        guests.come[0].1.hear(|| ());
        *lock(&third.silent) = Some((Instant::now(), Shutdown::Both));
        guests.one_comes(Seating::MadeFree);
        assert_eq!(guests.out(), [1]);
        guests.one_comes(Seating::MadeFree);
        assert_eq!(guests.out(), [1, 2]);
    }

    #[test]
    fn who_has_just_come_is_spared() {
        let mut guests = Guests::new(1, Duration::from_secs(60));
        guests.one_comes(Seating::Free);
        guests.one_comes(Seating::Refused);
        guests.seats.leave(&guests.come[0].1);
        guests.one_comes(Seating::Free);
        assert!(guests.out().is_empty());
    }
}

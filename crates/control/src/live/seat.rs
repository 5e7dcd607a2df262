//! The places of those who ask about a run: so many at once, and whoever has been silent for longest makes room.
//!
//! Silent is who has not yet said all of what is wanted, or has not taken all of an answer, since it began. Who waits for an answer is not.

use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A connection that may be ended while another thread serves it.
pub(super) trait Shut: Send + Sync + 'static {
    /// Ends it in one direction or both; one that has ended already stays so.
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

/// A connection, and since when its other end has been silent.
#[derive(Debug)]
pub(super) struct Seat<S> {
    /// The connection.
    pub(super) stream: S,
    /// None while it is waited for; with it what ends the silence.
    silent: Mutex<Option<(Instant, Shutdown)>>,
}

impl<S> Seat<S> {
    /// Receives a request by `receive`. If the seat is taken away meanwhile, what had arrived is still read, and then the end.
    pub(super) fn hear<T>(&self, receive: impl FnOnce() -> T) -> T {
        self.wait(Shutdown::Read, receive)
    }

    /// Sends an answer by `send`, which fails if the seat is taken away meanwhile.
    pub(super) fn tell<T>(&self, send: impl FnOnce() -> T) -> T {
        self.wait(Shutdown::Both, send)
    }

    fn wait<T>(&self, how: Shutdown, until: impl FnOnce() -> T) -> T {
        // Who has only come is silent since then, however late its thread begins.
        lock(&self.silent).get_or_insert_with(|| (Instant::now(), how));
        let done = until();
        *lock(&self.silent) = None;
        done
    }
}

/// What became of somebody who came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seating {
    /// A seat was free.
    Free,
    /// Somebody silent has made room.
    MadeFree,
    /// All are served.
    Refused,
}

/// The seats that are taken.
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
    /// `most` of them; who has been silent for no longer than `spared` keeps its own.
    pub(super) fn new(most: usize, spared: Duration) -> Seats<S> {
        Seats { taken: Arc::default(), most, spared }
    }

    /// Somebody comes. Who is refused has a seat nowhere.
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

    /// Somebody goes.
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

/// What a panic leaves behind is whole: each of these is replaced at once.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Those who have come, in order: their own ends and their seats.
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

        /// Which of them are heard no more.
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
        // What the first one asks for takes long; the third one has said something since the second one did.
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

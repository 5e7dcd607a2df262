//! Wakes a thread that waits for packets: another one has handed it packets or an order, which no device announces.
//!
//! A ring is remembered until the next wait, which then ends at once, as with [`std::thread::park`]. So nobody has to look again between
//! deciding to wait and waiting. To ring costs a system call only if the other thread is asleep, and no write to a shared line if it has
//! been rung since its last wait.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU8, Ordering, fence};
use std::time::Duration;

use crate::device::sys;
use crate::source::Waited;

/// The owner looks for work; nobody has rung since its last wait.
const AWAKE: u8 = 0;
/// The owner waits on the descriptor.
const ASLEEP: u8 = 1;
/// Somebody has rung since the owner's last wait.
const RUNG: u8 = 2;

/// A bell of one thread, its owner, that any other thread may ring.
#[derive(Debug)]
pub struct Bell {
    state: AtomicU8,
    /// An event counter; readable while the owner is to wake.
    events: OwnedFd,
}

impl Bell {
    /// Makes a bell; needs a descriptor.
    pub fn new() -> io::Result<Bell> {
        Ok(Bell { state: AtomicU8::new(AWAKE), events: sys::events()? })
    }

    /// Ends the owner's wait, or else its next one. Call it after the work for the owner is in place.
    pub fn ring(&self) {
        // SeqCst: the work is in place before the state is read. Pairs with the fence in `wake_up`: either the owner sees the work after that
        // fence, or this load sees what the owner stored before it, which is not `RUNG`.
        fence(Ordering::SeqCst);
        // The swap reads the latest value, so an owner that has fallen asleep is not missed.
        if self.state.load(Ordering::Relaxed) != RUNG && self.state.swap(RUNG, Ordering::Relaxed) == ASLEEP {
            sys::wake(&self.events);
        }
    }

    /// As the owner: waits until somebody rings, or `at_most` has passed.
    pub fn wait(&self, at_most: Duration) -> Waited {
        self.wait_on(&mut Vec::new(), at_most)
    }

    /// As the owner: waits until somebody rings, one of the descriptors is readable, or `at_most` has passed. If a descriptor is in error, which
    /// would end every wait at once, the error is cleared and the answer is [`Waited::Cannot`].
    pub(crate) fn wait_on(&self, readable: &mut Vec<RawFd>, at_most: Duration) -> Waited {
        if self.state.compare_exchange(AWAKE, ASLEEP, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            self.wake_up();
            return Waited::Woken;
        }
        readable.push(self.events.as_raw_fd());
        let polled = sys::poll(readable, at_most);
        // A ring that was announced late leaves the counter readable although the state no longer says so, so the poll decides.
        if polled.as_ref().is_ok_and(|polled| polled.last_is_readable) {
            sys::drain(&self.events);
        }
        self.wake_up();
        match polled {
            Ok(polled) if polled.has_failed => Waited::Cannot,
            Ok(polled) if polled.ready > 0 => Waited::Woken,
            _ => Waited::TimedOut,
        }
    }

    fn wake_up(&self) {
        self.state.swap(AWAKE, Ordering::Relaxed);
        // SeqCst: pairs with the fence in `ring`. The owner looks for work after this.
        fence(Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;
    use std::thread;

    use super::*;

    /// Long enough that a test which waits for it would stand out.
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_wait_ends_when_somebody_rings_and_without_that_after_its_time() {
        let bell = Arc::new(Bell::new().unwrap());
        assert_eq!(bell.wait(Duration::from_millis(1)), Waited::TimedOut);
        let rings = thread::spawn({
            let bell = Arc::clone(&bell);
            move || {
                while bell.state.load(Ordering::Relaxed) != ASLEEP {
                    thread::yield_now();
                }
                bell.ring();
            }
        });
        assert_eq!(bell.wait(LONG), Waited::Woken);
        rings.join().unwrap();
        assert_eq!(bell.wait(Duration::from_millis(1)), Waited::TimedOut, "one ring ends one wait");
    }

    #[test]
    fn a_ring_before_the_wait_ends_it_at_once() {
        let bell = Bell::new().unwrap();
        bell.ring();
        bell.ring();
        assert_eq!(bell.wait(LONG), Waited::Woken);
        assert_eq!(bell.wait(Duration::from_millis(1)), Waited::TimedOut);
    }

    #[test]
    fn no_ring_is_lost_however_it_meets_the_wait() {
        const TIMES: u64 = 20_000;
        let shared = Arc::new([(); 2].map(|()| (AtomicU64::new(0), Bell::new().unwrap())));
        // Each side waits for the other's number to reach its own; a lost ring would stop both.
        let side = |own: usize| {
            let shared = Arc::clone(&shared);
            move || {
                let ((mine, _), (others, bell)) = (&shared[own], &shared[1 - own]);
                for number in 1..=TIMES {
                    mine.store(number, Ordering::Relaxed);
                    bell.ring();
                    while others.load(Ordering::Relaxed) < number {
                        assert_ne!(shared[own].1.wait(LONG), Waited::TimedOut, "a ring was lost");
                    }
                }
            }
        };
        let (one, other) = (thread::spawn(side(0)), thread::spawn(side(1)));
        one.join().unwrap();
        other.join().unwrap();
    }

    #[test]
    fn a_descriptor_in_error_does_not_end_every_wait() {
        let bell = Bell::new().unwrap();
        let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
        drop(other);
        assert_eq!(bell.wait_on(&mut vec![one.as_raw_fd()], LONG), Waited::Cannot);
    }
}

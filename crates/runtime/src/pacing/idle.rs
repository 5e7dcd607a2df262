//! How a thread waits when nothing arrives, and how long it continues once it is told to end.

use std::time::{Duration, Instant};

use braid_io::Waited;

/// Time limit for handling packets that arrived before the end; a live port under a flood always has more.
const DRAIN_MAX: Duration = Duration::from_millis(100);
/// Rounds without packets after which a thread yields the processor, after which it naps, and after which it waits for its devices.
const SPINS: u32 = 64;
const YIELDS: u32 = 1024;
const NAPS: u32 = YIELDS + 32;
/// Duration of a nap, after which an idle thread looks again.
pub(crate) const NAP: Duration = Duration::from_micros(50);
/// Longest wait for devices: a request to end is noticed this much later. Everything else ends the wait, or is known to be due.
const WAIT_MAX: Duration = Duration::from_millis(10);

/// Back-off of an idle thread: it spins, then yields, then sleeps 50 µs at a time for some milliseconds, and finally waits until something
/// arrives, if its queue can do that; otherwise the naps go on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Patience(u32);

impl Patience {
    /// Waits once more because nothing has arrived; `wait` waits for the queue. Returns whether it was asked to.
    pub(crate) fn wait(&mut self, wait: impl FnOnce(Duration) -> Waited) -> bool {
        self.0 = self.0.saturating_add(1);
        match self.0 {
            0..SPINS => std::hint::spin_loop(),
            SPINS..YIELDS => std::thread::yield_now(),
            YIELDS..NAPS => std::thread::sleep(NAP),
            _ => {
                match wait(WAIT_MAX) {
                    Waited::TimedOut => {}
                    // If that was for nothing, as where no buffer is free for what has arrived, naps follow instead of a loop.
                    Waited::Woken => self.0 = YIELDS,
                    Waited::Cannot => std::thread::sleep(NAP),
                }
                return true;
            }
        }
        false
    }
}

/// The end of a run, once it has been requested.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ending {
    drained_by: Option<Instant>,
}

impl Ending {
    /// Returns whether a run that is to end is over now. On the first call it asks `close` whether packets that have arrived remain.
    pub(crate) fn is_over(&mut self, close: impl FnOnce() -> bool) -> bool {
        match self.drained_by {
            Some(latest) => Instant::now() >= latest,
            None if close() => {
                self.drained_by = Some(Instant::now() + DRAIN_MAX);
                false
            }
            None => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many rounds pass until the queue is asked to wait.
    fn rounds(patience: &mut Patience, waited: Waited) -> u32 {
        (1..).find(|_| patience.wait(|_| waited)).expect("it is asked at last")
    }

    #[test]
    fn a_queue_that_nothing_comes_from_waits_and_one_that_is_woken_for_nothing_naps() {
        // Spinning and yielding lie behind it: on a busy machine a thousand yields take a minute.
        let mut patience = Patience(YIELDS);
        assert_eq!(rounds(&mut patience, Waited::TimedOut), NAPS - YIELDS);
        assert_eq!(rounds(&mut patience, Waited::TimedOut), 1);
        assert_eq!(rounds(&mut patience, Waited::Woken), 1);
        assert_eq!(rounds(&mut patience, Waited::Cannot), NAPS - YIELDS);
        assert_eq!(rounds(&mut patience, Waited::Cannot), 1, "it is asked again, since a device may come back");
    }

    #[test]
    fn an_end_is_immediate_unless_packets_wait_and_then_it_has_a_bound() {
        assert!(Ending::default().is_over(|| false));
        let mut ending = Ending::default();
        assert!(!ending.is_over(|| true));
        std::thread::sleep(DRAIN_MAX);
        assert!(ending.is_over(|| unreachable!("asked once")));
    }
}

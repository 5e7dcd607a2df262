//! How a thread waits when nothing arrives, and how long it continues once it is told to end.

use std::time::{Duration, Instant};

/// Time limit for handling packets that arrived before the end; a live port under a flood always has more.
const DRAIN_MAX: Duration = Duration::from_millis(100);

/// Back-off of an idle thread: it spins, then yields, and finally sleeps 50 µs at a time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Patience(u32);

impl Patience {
    /// Waits once more because nothing has arrived.
    pub(crate) fn wait(&mut self) {
        self.0 = self.0.saturating_add(1);
        match self.0 {
            0..64 => std::hint::spin_loop(),
            64..1024 => std::thread::yield_now(),
            _ => std::thread::sleep(Duration::from_micros(50)),
        }
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

    #[test]
    fn an_end_is_immediate_unless_packets_wait_and_then_it_has_a_bound() {
        assert!(Ending::default().is_over(|| false));
        let mut ending = Ending::default();
        assert!(!ending.is_over(|| true));
        std::thread::sleep(DRAIN_MAX);
        assert!(ending.is_over(|| unreachable!("asked once")));
    }
}

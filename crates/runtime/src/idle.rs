//! How a thread waits when nothing comes, and how long it goes on when it is told to end.

use std::time::{Duration, Instant};

/// Longest time in which packets that arrived before the end are still handled. A live port in a flood has always more.
const DRAIN_MAX: Duration = Duration::from_millis(100);

/// Waits longer the longer nothing has come: first at hand, in the end asleep.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Patience(u32);

impl Patience {
    /// Once more nothing has come.
    pub(crate) fn wait(&mut self) {
        self.0 = self.0.saturating_add(1);
        match self.0 {
            0..64 => std::hint::spin_loop(),
            64..1024 => std::thread::yield_now(),
            _ => std::thread::sleep(Duration::from_micros(50)),
        }
    }
}

/// The end of a run, once it has been asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ending {
    drained_by: Option<Instant>,
}

impl Ending {
    /// The run is to end: whether it ends now. The first time `close` is asked whether packets that have arrived are still to come.
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

//! Clocks: the processor's cycle counter, which is cheap enough to read once per batch, and a thread's processor time.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Reads the time-stamp counter, in cycles; in nanoseconds on processors without one. It takes about 20 cycles to read and
/// never goes back on one processor. Compare it with a clock to learn the length of a cycle.
#[inline(always)]
pub fn cycles() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has `rdtsc`, which has no effect except its result.
    unsafe {
        std::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        static BEGUN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        BEGUN.get_or_init(std::time::Instant::now).elapsed().as_nanos() as u64
    }
}

/// Returns the processor time of the calling thread, the clock least disturbed by other work on the machine.
pub fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

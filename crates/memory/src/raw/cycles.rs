//! Clocks: the processor's cycle counter, which a profiler can afford to read once per batch, and a thread's processor time.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Cycles of the time-stamp counter (about 20 cycles to read, never going back on one processor); nanoseconds where there is
/// none. Compare with a clock to learn how long one is.
#[inline(always)]
pub fn cycles() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has `rdtsc`; it has no effect but its result.
    unsafe {
        std::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        static BEGUN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        BEGUN.get_or_init(std::time::Instant::now).elapsed().as_nanos() as u64
    }
}

/// Processor time of the calling thread: other work on the machine disturbs it least.
pub fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

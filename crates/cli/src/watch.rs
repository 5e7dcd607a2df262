//! Watching a run from outside: a progress bar on a terminal, and the signals that end it.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use braid_control::runtime::io::{Progress, Unit};
use indicatif::{ProgressBar, ProgressStyle};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};

use crate::failure::{Failure, Kind};

/// Ends the run in order on Ctrl-C, on a request to terminate, and when its terminal is gone; a second one ends the program at once.
pub fn stop_on_signal(stop: &Arc<AtomicBool>) -> Result<(), Failure> {
    // Who is started by nohup does not hear of it.
    if !is_ignored(SIGHUP) {
        stop_on(SIGHUP, stop)?;
    }
    stop_but_for_hangup(stop)
}

/// The same for a service, to which SIGHUP means something else.
pub fn stop_but_for_hangup(stop: &Arc<AtomicBool>) -> Result<(), Failure> {
    [SIGINT, SIGTERM].into_iter().try_for_each(|signal| stop_on(signal, stop))
}

/// A file that grows beyond what it may (`ulimit -f`) is an error of whoever writes it, and no end of the program.
pub fn bear_limits_of_files() {
    // If it cannot be watched, it ends the program as ever.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
}

fn stop_on(signal: i32, stop: &Arc<AtomicBool>) -> Result<(), Failure> {
    let watch = || {
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(stop))?;
        signal_hook::flag::register(signal, Arc::clone(stop))
    };
    let failed = |error: io::Error| Failure::new(Kind::Failed, format!("signals cannot be watched: {error}"), "");
    watch().map(drop).map_err(failed)
}

/// Whether the program was started with a signal ignored: proc_pid_status(5), `SigIgn`.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 != 0)
}

/// Runs `work` with a progress bar beside it, if somebody is looking.
pub fn with_progress<T>(progress: Arc<Progress>, work: impl FnOnce() -> T) -> T {
    if !std::io::stderr().is_terminal() {
        return work();
    }
    let done = Arc::new(AtomicBool::new(false));
    let (told, bar) = (Arc::clone(&done), bar(&progress));
    let drawing = std::thread::spawn(move || {
        while !told.load(Ordering::Relaxed) {
            if let Some(total) = progress.total() {
                bar.set_length(total);
            }
            bar.set_position(progress.done());
            std::thread::park_timeout(Duration::from_millis(100));
        }
        bar.finish_and_clear();
    });
    let result = work();
    done.store(true, Ordering::Relaxed);
    drawing.thread().unpark();
    // A bar that could not be drawn is no reason to lose the result.
    let _ = drawing.join();
    result
}

fn bar(progress: &Progress) -> ProgressBar {
    let numbers = match progress.unit() {
        Unit::Bytes => "{bytes}/{total_bytes} {bytes_per_sec}",
        Unit::Packets => "{human_pos}/{human_len} packets {per_sec}",
    };
    let style = ProgressStyle::with_template(&format!("{{bar:40}} {numbers} {{eta}}"));
    let bar = ProgressBar::new(progress.total().unwrap_or(0));
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

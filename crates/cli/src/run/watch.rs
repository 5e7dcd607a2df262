//! Accompanies a run from outside: a progress bar on a terminal, and the signals that end the run.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use braid_control::runtime::io::{Progress, Unit};
use indicatif::{ProgressBar, ProgressStyle};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};

use crate::failure::{Failure, Kind};

/// The signals that ask any program to end.
const ENDS: [i32; 2] = [SIGINT, SIGTERM];

/// Whether a signal has asked the run to end. The flag that stops it is also set by an upgrade, by interfaces that vanish, or by a thread that
/// panics; a signal that comes then is the first one all the same.
#[derive(Clone, Debug, Default)]
pub struct Asked(Arc<AtomicBool>);

impl Asked {
    /// Whether such a signal has come.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Ends the run gracefully on Ctrl-C, on a request to terminate, and when its terminal has gone; a second signal ends the program at once.
pub fn stop_on_signal(stop: &Arc<AtomicBool>) -> Result<Asked, Failure> {
    // A program started by nohup ignores this signal.
    let hangup = (!is_ignored(SIGHUP)).then_some(SIGHUP);
    stop_on(hangup.into_iter().chain(ENDS), stop)
}

/// Like [`stop_on_signal`], for a service, where SIGHUP has another meaning.
pub fn stop_but_for_hangup(stop: &Arc<AtomicBool>) -> Result<Asked, Failure> {
    stop_on(ENDS.into_iter(), stop)
}

/// Makes exceeding a file size limit (`ulimit -f`) an error of the write, instead of ending the program.
pub fn bear_limits_of_files() {
    // If the handler cannot be registered, the signal ends the program as usual.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
}

/// The failure to register a handler for a signal, or to start the thread that acts on it.
pub fn unwatched(error: io::Error) -> Failure {
    let help = "a sandbox, or a limit on threads (ulimit -u), may be the reason";
    Failure::new(Kind::Failed, format!("cannot wait for signals: {error}"), help)
}

fn stop_on(mut signals: impl Iterator<Item = i32>, stop: &Arc<AtomicBool>) -> Result<Asked, Failure> {
    let asked = Asked::default();
    let watch = |signal| {
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&asked.0))?;
        signal_hook::flag::register(signal, Arc::clone(&asked.0))?;
        signal_hook::flag::register(signal, Arc::clone(stop)).map(drop)
    };
    signals.try_for_each(watch).map_err(unwatched)?;
    Ok(asked)
}

/// Whether the program was started with a signal ignored: proc_pid_status(5), `SigIgn`.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 != 0)
}

/// Runs `work` and shows a progress bar if standard error is a terminal.
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
    // A failure to draw the bar must not lose the result.
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

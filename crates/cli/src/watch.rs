//! Watching a run from outside: a progress bar on a terminal, and Ctrl-C.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use braid_control::runtime::io::{Progress, Unit};
use indicatif::{ProgressBar, ProgressStyle};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::failure::{Failure, Kind};

/// Ends the run in order on Ctrl-C or a request to terminate; a second one ends the program at once.
pub fn stop_on_signal(stop: &Arc<AtomicBool>) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::new(Kind::Failed, format!("signals cannot be watched: {error}"), "");
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(stop)).map_err(failed)?;
        signal_hook::flag::register(signal, Arc::clone(stop)).map_err(failed)?;
    }
    Ok(())
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

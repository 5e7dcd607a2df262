//! What is said on standard error, beside what a command prints. Whoever read it may have gone (a closed pipe, a log that ended): then
//! nobody is left to tell, and the run goes on. `eprintln!` would end it with a panic, so clippy refuses that in this crate.

use std::fmt;
use std::io::Write;

/// Says it; [`aside!`] and [`asideln!`] are the way to write it.
pub(crate) fn say(what: fmt::Arguments<'_>, end: &str) {
    let mut out = std::io::stderr().lock();
    let _ = out.write_fmt(what).and_then(|()| out.write_all(end.as_bytes()));
}

/// As `eprint!`, for a standard error that may be closed.
macro_rules! aside {
    ($($part:tt)*) => { $crate::aside::say(format_args!($($part)*), "") };
}

/// As `eprintln!`, for a standard error that may be closed.
macro_rules! asideln {
    ($($part:tt)*) => { $crate::aside::say(format_args!($($part)*), "\n") };
}

pub(crate) use {aside, asideln};

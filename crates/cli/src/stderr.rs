//! Messages on standard error, in addition to the output of a command. If their reader has gone (a closed
//! pipe, a log that has ended), nobody is left to tell, and the run continues. `eprintln!` would panic and
//! end the run, so clippy rejects it in this crate.

use std::fmt;
use std::io::Write;

/// Writes a message; use [`aside!`] and [`asideln!`] to call it.
pub(crate) fn say(what: fmt::Arguments<'_>, end: &str) {
    let mut out = std::io::stderr().lock();
    let _ = out.write_fmt(what).and_then(|()| out.write_all(end.as_bytes()));
}

/// Like `eprint!`, but tolerates a closed standard error.
macro_rules! aside {
    ($($part:tt)*) => { $crate::stderr::say(format_args!($($part)*), "") };
}

/// Like `eprintln!`, but tolerates a closed standard error.
macro_rules! asideln {
    ($($part:tt)*) => { $crate::stderr::say(format_args!($($part)*), "\n") };
}

pub(crate) use {aside, asideln};

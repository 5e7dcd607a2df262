//! Measuring chains in memory: what is asked for ([`asked`]), which traffic ([`traffic`]) in which order ([`orders`]), of flows
//! that come and go ([`renewal`]), what is read off the clocks and when
//! ([`meter`]), one row after another ([`rows`]), latency under load ([`latency`], with packets that come at a steady rate:
//! [`paced`]), a long run ([`soak`]), each behind the first passes over a replay (`warm`); beside them what the machine can do at all ([`bare`]), and how the
//! rows are written for others ([`output`]). Any of it ends early if somebody asks for that ([`stop`]).

pub mod asked;
pub mod bare;
pub mod latency;
pub mod meter;
pub mod orders;
pub mod output;
pub mod paced;
pub mod renewal;
pub mod rows;
pub mod soak;
pub mod stop;
pub mod traffic;
mod warm;

//! Measures chains in memory: validating the request ([`asked`]), making the traffic ([`traffic`]) in an order ([`orders`]) with
//! flows that come and go ([`renewal`]), reading the clocks ([`meter`]) after a warm-up (`warm`), row by row ([`rows`]). Further
//! measurements are latency under load ([`latency`], with packets that arrive at a steady rate: [`paced`]), a long run ([`soak`]),
//! and what the machine can do at all ([`bare`]). [`output`] writes the rows for other programs.

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
pub mod traffic;
mod warm;

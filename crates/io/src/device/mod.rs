//! Ports that are interfaces: how the user names them, how they are opened, and the source and sink over all of them.
//!
//! ```text
//!  af_packet, af_xdp, dpdk, tap, memif ──▶ RxPort ─┐                             ┌─▶ TxPort ──▶ …
//!  af_packet, af_xdp, dpdk, tap, memif ──▶ RxPort ─┴─▶ RxQueue ─▶ … ─▶ TxQueue ──┴─▶ TxPort ──▶ …
//! ```
//!
//! Every back end fills a batch with frames as they appear on the wire, including checksums (`offload`), and counts what it could
//! not deliver or send. Everything it opens is closed with it, even after `kill -9`: nothing stays behind in the kernel.

mod claim;
pub mod interface;
pub(crate) mod lending;
mod links;
pub(crate) mod live;
pub(crate) mod offload;
pub(crate) mod open;
pub mod ports;
pub mod probe;
mod redistribute;
mod refused;
pub mod sending;
pub mod spec;
pub(crate) mod sys;
pub mod user;

pub use interface::{Interface, NO_ETHERNET, Standing};
pub use live::{CardHash, EndOrder, TUPLE_MAX, TupleHash};
pub use open::INHERITED;
pub use ports::{DeviceCounters, LiveSource, Ports};
pub use refused::{UNFILTER, UNLOCK, grant};
pub use sending::LiveSink;
pub use spec::{BackEnd, DpdkKeys, MemifKeys, PortSpec, SpecError, XdpCopy, XdpMode};
pub use user::{User, UserError};

/// Blocks these signals in this thread and in those that it starts. They stay blocked across `exec`, so that the next program, which
/// has no handlers yet, is not ended by them. That program must [admit](admit_signals) them.
pub fn hold_signals(signals: &[i32]) -> std::io::Result<()> {
    sys::mask(signals, true)
}

/// Admits signals that [were held](hold_signals); those that have waited are delivered.
pub fn admit_signals(signals: &[i32]) -> std::io::Result<()> {
    sys::mask(signals, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the signal waits for this thread or its process: proc_pid_status(5).
    fn is_held(signal: i32) -> bool {
        let status = std::fs::read_to_string("/proc/thread-self/status").expect("it is there");
        let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).expect("a mask");
        u64::from_str_radix(mask.trim(), 16).expect("hexadecimal") >> (signal - 1) & 1 != 0
    }

    #[test]
    fn signals_are_held_and_admitted() {
        let (hangup, user) = (libc::SIGHUP, libc::SIGUSR2);
        hold_signals(&[hangup, user]).expect("valid");
        assert!(is_held(hangup) && is_held(user) && !is_held(libc::SIGUSR1));
        admit_signals(&[hangup]).expect("valid");
        assert!(!is_held(hangup) && is_held(user));
    }
}

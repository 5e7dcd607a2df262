//! Tells the service manager that a run has started and that it ends (sd_notify(3): datagrams to the socket that `NOTIFY_SOCKET`
//! names). Does nothing without a service manager.
//!
//! `systemctl start` waits for the first message, so it fails if a plan is rejected or a port cannot be opened. A run that another
//! program continues does not end: the process remains, and reports again when the other program has started.

use sd_notify::NotifyState;

use crate::stderr::asideln;

/// Reports that the run has started.
pub fn of_begin(chain: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(chain)]);
}

/// Reports that the run has ended and only reporting and saving remain.
pub fn of_end() {
    tell(&[NotifyState::Stopping]);
}

/// Sends a notification; the run continues if the manager does not listen.
fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        asideln!("note: NOTIFY_SOCKET cannot be told: {error}");
    }
}

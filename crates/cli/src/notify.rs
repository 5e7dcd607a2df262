//! What a service manager is told: that a run has begun, and that it ends (sd_notify(3): datagrams to the socket that `NOTIFY_SOCKET`
//! names). Without one, nothing.
//!
//! `systemctl start` waits for the first, so it fails if a plan is refused or a port cannot be opened. A run that is continued by
//! another program does not end: the process stays, and tells again when it has begun.

use sd_notify::NotifyState;

use crate::aside::asideln;

/// The run has begun.
pub fn of_begin(chain: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(chain)]);
}

/// The run has ended: what is left is to report and to save.
pub fn of_end() {
    tell(&[NotifyState::Stopping]);
}

/// A run goes on without a manager that does not listen.
fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        asideln!("note: NOTIFY_SOCKET cannot be told: {error}");
    }
}

//! The random walk of one host: up when a service that it contacts for the first time does not answer, down when it does.
//!
//! Outcomes are inferred from the host's own packets: a host that completes a handshake sends an ACK; one that resets
//! what it opened, or falls silent, has failed. So the walk needs no packets of the other direction and no other state.

use braid_nf::packet::IpAddress;
use braid_nf::prelude::*;
use braid_nf::state::hash::mixed;

/// The maximum number of contacts with a pending outcome; further ones are ignored meanwhile.
const AWAITED: usize = 4;

/// The steps and ends of the walk, in thousandths of the natural logarithm of a likelihood ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// The step up after a failure.
    pub up: i32,
    /// The step down after a success.
    pub down: i32,
    /// A host at or above this height is a scanner.
    pub scanner: i32,
    /// A host at or below this height is honest.
    pub honest: i32,
    /// Time after which a scanner's walk starts again, in milliseconds.
    pub scanner_ms: u32,
    /// Time after which an honest host's walk starts again, in milliseconds.
    pub honest_ms: u32,
    /// Time after which an incomplete contact has failed, in milliseconds.
    pub answer_ms: u32,
}

braid_nf::plain!(Thresholds);

#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Awaited {
    /// 0: none.
    service: u32,
    since_ms: u32,
}

/// What is known of a host.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Walk {
    /// A Bloom filter with two bits for each contacted service: only the first contact counts.
    known: [u64; 2],
    awaited: [Awaited; AWAITED],
    /// The height of the walk; once there is a verdict, the time at which that was reached, in milliseconds.
    height_or_ms: i32,
    contacts: u16,
    failures: u8,
    /// 0 while the walk goes on, else [`SCANNER`] or [`HONEST`].
    verdict: u8,
}

const SCANNER: u8 = 1;
const HONEST: u8 = 2;

/// A number for an address and port, never 0.
pub(super) fn service(address: IpAddress, port: u16) -> u32 {
    (mixed(&address.octets(), port.into()) as u32).max(1)
}

/// The two bits of a service in the filter of known ones.
fn bits_of(service: u32) -> u128 {
    1u128 << (service & 127) | 1 << (service >> 7 & 127)
}

impl Walk {
    /// Starts the walk again if its verdict has been there for its time.
    pub(super) fn reopen(&mut self, thresholds: &Thresholds, now_ms: u32) {
        let lasts_ms = if self.is_scanner() { thresholds.scanner_ms } else { thresholds.honest_ms };
        if self.verdict != 0 && (lasts_ms..u32::MAX / 2).contains(&now_ms.wrapping_sub(self.height_or_ms as u32)) {
            *self = Walk::default();
        }
    }

    /// Notes that the host opens a connection.
    pub(super) fn ask(&mut self, service: u32, now_ms: u32) {
        if self.knows(service) {
            return;
        }
        let Some(free) = self.awaited.iter_mut().find(|awaited| awaited.service == 0) else { return };
        *free = Awaited { service, since_ms: now_ms };
        self.learn(service);
    }

    /// Notes a segment that belongs to no connection and opens none: a first contact that fails at once.
    pub(super) fn probe(&mut self, thresholds: &Thresholds, service: u32, now_ms: u32) {
        if !self.knows(service) {
            self.learn(service);
            self.fail(thresholds, now_ms);
        }
    }

    fn known(&self) -> u128 {
        u128::from(self.known[0]) | u128::from(self.known[1]) << 64
    }

    fn knows(&self, service: u32) -> bool {
        let bits = bits_of(service);
        self.known() & bits == bits
    }

    fn learn(&mut self, service: u32) {
        let (known, bits) = (self.known(), bits_of(service));
        // A filter that is half full would take new services for known ones, so it is cleared.
        let known = if known.count_ones() >= 64 { bits } else { known | bits };
        self.known = [known as u64, (known >> 64) as u64];
        self.contacts = self.contacts.saturating_add(1);
    }

    /// Notes that the host continues a connection, or resets it.
    pub(super) fn hear(&mut self, thresholds: &Thresholds, (service, success): (u32, bool), now_ms: u32) {
        let Some(awaited) = self.awaited.iter_mut().find(|awaited| awaited.service == service) else { return };
        *awaited = Awaited::default();
        match success {
            true => self.step(thresholds, thresholds.down, now_ms),
            false => self.fail(thresholds, now_ms),
        }
    }

    /// Counts contacts that have been pending too long as failed.
    pub(super) fn give_up(&mut self, thresholds: &Thresholds, now_ms: u32) {
        for at in 0..AWAITED {
            let Awaited { service, since_ms } = self.awaited[at];
            let waited = now_ms.wrapping_sub(since_ms);
            if service != 0 && waited >= thresholds.answer_ms && waited < u32::MAX / 2 {
                self.awaited[at] = Awaited::default();
                self.fail(thresholds, now_ms);
            }
        }
    }

    /// Counts all pending contacts as failed, of a walk that ends: when it got its verdict is not asked any more.
    pub(super) fn give_up_all(&mut self, thresholds: &Thresholds) {
        for awaited in std::mem::take(&mut self.awaited) {
            if awaited.service != 0 {
                self.fail(thresholds, 0);
            }
        }
    }

    fn fail(&mut self, thresholds: &Thresholds, now_ms: u32) {
        self.failures = self.failures.saturating_add(1);
        self.step(thresholds, thresholds.up, now_ms);
    }

    /// Moves the walk, unless there is a verdict (section 5.1 of the paper: decided hosts are skipped).
    fn step(&mut self, thresholds: &Thresholds, step: i32, now_ms: u32) {
        if self.verdict != 0 {
            return;
        }
        let height = self.height_or_ms.saturating_add(step);
        (self.verdict, self.height_or_ms) = if height >= thresholds.scanner {
            (SCANNER, now_ms as i32)
        } else if height > thresholds.honest {
            (0, height)
        } else if thresholds.honest_ms > 0 {
            (HONEST, now_ms as i32)
        } else {
            // Without a time for the verdict the walk starts again at once.
            (0, 0)
        };
    }

    /// Whether the host is taken for a scanner.
    pub fn is_scanner(&self) -> bool {
        self.verdict == SCANNER
    }

    /// The number of first contacts that were counted.
    pub fn contacts(&self) -> u32 {
        self.contacts.into()
    }

    /// How many of them failed, up to 255.
    pub fn failures(&self) -> u32 {
        self.failures.into()
    }
}

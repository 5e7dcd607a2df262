//! The state of a packet set: one direction of a balanced connection.

use braid_nf::packet::headers::tcp_flags::{FIN, RST, SYN};
use braid_nf::prelude::*;

use super::config::Mode;
use crate::parts::is_opening;

/// One direction of a balanced connection. Its eight bytes share a cache line with the key and other functions' states;
/// the translation of its packets is kept with the backend.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Flow {
    /// When the backend was last known to be up, in milliseconds, modulo 2^32 (49 days).
    pub(super) checked_ms: u32,
    /// The number of the backend.
    pub(super) backend: u16,
    /// [`FROM_BACKEND`], or [`TO_BACKEND`] plus the [`Mode`] of its service, or [`TO_NAMED`]; or [`OWN`].
    pub(super) way: u8,
    /// The [`Phase`].
    pub(super) phase: u8,
}

const _: () = assert!(size_of::<Flow>() == 8);

pub(super) const FROM_BACKEND: u8 = 0;
pub(super) const TO_BACKEND: u8 = 1;
/// Translated to a backend too, but each packet may name another backend, so none takes the steady path.
pub(super) const TO_NAMED: u8 = TO_BACKEND + Mode::ALL.len() as u8;

/// From a backend, but of a connection of its own: it passes as it is.
pub(super) const OWN: u8 = TO_NAMED + 1;

/// The stage of a flow, which determines its timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Phase {
    Udp = 0,
    Tcp = 1,
    /// This direction has sent FIN or RST.
    Closing = 2,
    /// UDP: this direction has sent a single packet. Masked with [`Phase::SETTLED`] it is [`Phase::Udp`].
    Single = 4,
    /// This direction has sent nothing but SYN. Masked with [`Phase::SETTLED`] it is [`Phase::Tcp`].
    Opening = 5,
}

impl Phase {
    /// The length of tables that are indexed by phase: every phase is below it.
    pub(super) const COUNT: usize = 8;
    /// The phase bits that a segment preserves if it neither begins nor ends the connection.
    pub(super) const SETTLED: u8 = 3;

    /// The phase of a TCP flow after a segment with these flags.
    #[inline(always)]
    pub(super) fn after(phase: u8, flags: u8) -> u8 {
        match flags {
            flags if flags & (FIN | RST) != 0 => Phase::Closing as u8,
            flags if flags & SYN != 0 => Phase::Opening as u8,
            _ => phase & Phase::SETTLED,
        }
    }
}

const _: () = assert!(Phase::Single as u8 & Phase::SETTLED == Phase::Udp as u8);
const _: () = assert!(Phase::Opening as u8 & Phase::SETTLED == Phase::Tcp as u8);
const _: () = assert!(Phase::Closing as u8 & Phase::SETTLED == Phase::Closing as u8);

impl Flow {
    /// Whether this direction has gone past its first packet and has not ended.
    pub(super) fn is_assured(&self) -> bool {
        self.phase == Phase::Tcp as u8 || self.phase == Phase::Udp as u8
    }

    /// Whether a client that has closed its connection opens another one from the same port, for which a backend is
    /// chosen again.
    #[inline(always)]
    pub(super) fn is_begun_anew(&self, packet: &Packet<'_>) -> bool {
        self.phase == Phase::Closing as u8 && self.way != FROM_BACKEND && packet.tcp_flags().is_some_and(is_opening)
    }

    /// Updates the phase from a packet's TCP flags.
    #[inline(always)]
    pub(super) fn note_flags(&mut self, packet: &Packet<'_>) {
        if self.phase != Phase::Udp as u8 {
            self.phase = Phase::after(self.phase, packet.tcp_flags().unwrap_or(0));
        }
    }
}

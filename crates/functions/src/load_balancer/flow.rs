//! What a packet set remembers: one direction of a balanced connection.

use braid_nf::packet::headers::tcp_flags::{FIN, RST, SYN};
use braid_nf::prelude::*;

use super::config::Mode;
use crate::parts::is_opening;

/// One direction of a balanced connection: eight bytes, so that it shares a cache line with its key and the states of other
/// functions. What is written into its packets stands with the backend.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Flow {
    /// When the backend was last known to be up, in milliseconds; wraps after 49 days.
    pub(super) checked_ms: u32,
    /// Number of the backend.
    pub(super) backend: u16,
    /// [`FROM_BACKEND`], or [`TO_BACKEND`] and the [`Mode`] of its service, or [`TO_NAMED`].
    pub(super) way: u8,
    /// A [`Phase`].
    pub(super) phase: u8,
}

const _: () = assert!(size_of::<Flow>() == 8);

pub(super) const FROM_BACKEND: u8 = 0;
pub(super) const TO_BACKEND: u8 = 1;
/// Translated to a backend as well, but each packet is asked first whether it names another one: none of them is steady.
pub(super) const TO_NAMED: u8 = TO_BACKEND + Mode::ALL.len() as u8;

/// What a flow is, for its timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Phase {
    Udp = 0,
    Tcp = 1,
    /// This direction has sent FIN or RST.
    Closing = 2,
    /// UDP: this direction has sent a single packet. With [`Phase::SETTLED`] it is [`Phase::Udp`].
    Single = 4,
    /// This direction has sent nothing but SYN. With [`Phase::SETTLED`] it is [`Phase::Tcp`].
    Opening = 5,
}

impl Phase {
    /// A phase is below it.
    pub(super) const COUNT: usize = 8;
    /// The bits of a phase that stay when a segment comes that neither begins nor ends its connection.
    pub(super) const SETTLED: u8 = 3;

    /// The phase of TCP after a segment with these flags.
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
    /// Whether its direction goes on with its connection, and has not ended it.
    pub(super) fn is_assured(&self) -> bool {
        self.phase == Phase::Tcp as u8 || self.phase == Phase::Udp as u8
    }

    /// Whether a client that has closed its connection begins another one from the same port: that may go elsewhere.
    #[inline(always)]
    pub(super) fn is_begun_anew(&self, packet: &Packet<'_>) -> bool {
        self.phase == Phase::Closing as u8 && self.way != FROM_BACKEND && packet.tcp_flags().is_some_and(is_opening)
    }

    /// Follows a connection's beginning and end.
    #[inline(always)]
    pub(super) fn note_flags(&mut self, packet: &Packet<'_>) {
        if self.phase != Phase::Udp as u8 {
            self.phase = Phase::after(self.phase, packet.tcp_flags().unwrap_or(0));
        }
    }
}

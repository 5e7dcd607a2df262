//! The state of a connection, from the SYN to the server on, and the translation of its sequence numbers.
//!
//! The client takes the cookie for the server's initial sequence number, but the server chose another; the same holds for
//! time stamps. So the difference is subtracted from the numbers that the server sends, and added to those that the
//! client echoes. The client's own numbers stay as they are.

use braid_nf::packet::checksum::Change;
use braid_nf::packet::headers::tcp_flags::{ACK, FIN, RST, SYN};
use braid_nf::packet::headers::{Tcp, View};
use braid_nf::prelude::*;

use super::cookie::Offer;

/// The state of one connection.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Flow {
    /// The cookie, which is the server's initial sequence number as the client knows it.
    pub(super) cookie: u32,
    /// Until the server answers, the client's initial sequence number; then the server's sequence numbers minus those
    /// that the client knows. In a flow without a cookie, the server's initial sequence number once it is known.
    pub(super) number: u32,
    /// Until the server answers, the time stamp that the client was told; then the server's time stamps minus those that
    /// the client knows.
    pub(super) stamp: u32,
    /// The client's window, from the segment that returned the cookie.
    pub(super) window: u16,
    /// The client's maximum segment size, as encoded in the cookie.
    pub(super) size: u16,
    /// Window scales: the server's as told to the client, the client's own, the server's own.
    told_shift: u8,
    client_shift: u8,
    server_shift: u8,
    /// Flags: [`STAMPED`], [`SCALED`], [`SACKED`].
    options: u8,
    /// The [`Phase`].
    phase: u8,
    /// Whether the opener's packets run against the direction of the set's key.
    reversed: u8,
    /// Flags: FIN sent by the client (1) and by the server (2), [`NEVER_OPEN`]; in a flow without a cookie [`ANSWERED`],
    /// [`NUMBERED`], [`WENT_ON`], [`WAS_RESET`], [`UNPROTECTED`].
    finished: u8,
    /// Whether the flow counts as one with a single packet.
    pub(super) one_packet: u8,
}

const STAMPED: u8 = 1;
const SCALED: u8 = 2;
const SACKED: u8 = 4;
/// The connection was reset before the server had answered, so it cannot be resumed.
const NEVER_OPEN: u8 = 4;
/// The opener has continued the connection.
const WENT_ON: u8 = 8;
/// The other end has answered; and with a SYN of its own, so that its initial sequence number is known.
const ANSWERED: u8 = 16;
const NUMBERED: u8 = 32;
/// One end has sent a RST since the last segment that a connection may have.
const WAS_RESET: u8 = 64;
/// Nobody looks at the flow, since its destination is not protected.
const UNPROTECTED: u8 = 128;
/// Both ends have sent a FIN.
const FINISHED: u8 = 3;
/// How far a client's first acknowledgement may be beyond the server's initial sequence number.
const FIRST_FLIGHT: u32 = 1 << 20;

/// The stage of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Phase {
    /// It began without a cookie: nothing is translated.
    Direct = 0,
    /// The client has returned its cookie, and a SYN was sent to the server.
    Asked = 1,
    /// Client and server are connected.
    Open = 2,
    /// Both have sent a FIN.
    Closing = 3,
    /// One end has sent a RST.
    Reset = 4,
}

/// An end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Peer {
    /// Who opened it.
    Client = 0,
    /// Who was asked.
    Server = 1,
}

impl Flow {
    /// A flow that passes unchanged; `counts` says whether it counts as one with a single packet, as all to protected
    /// destinations do.
    pub(super) fn direct(cx: &Cx<'_>, counts: bool) -> Flow {
        let finished = if counts { 0 } else { UNPROTECTED };
        Flow { reversed: cx.reversed().into(), one_packet: counts.into(), finished, ..Flow::default() }
    }

    /// The flow of a client that has returned its cookie and accepted `offer`; `window` is its own, and `shift` the
    /// window scale that it was told.
    pub(super) fn asked(cx: &Cx<'_>, first: u32, cookie: u32, window: u16, offer: &Offer, shift: u8) -> Flow {
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        Flow {
            cookie,
            number: first,
            stamp: offer.stamps.map_or(0, |(_, told)| told),
            window,
            size: offer.size,
            told_shift: if offer.shift.is_some() { shift } else { 0 },
            client_shift: offer.shift.unwrap_or(0),
            options: bit(offer.stamps.is_some(), STAMPED)
                | bit(offer.shift.is_some(), SCALED)
                | bit(offer.sack, SACKED),
            phase: Phase::Asked as u8,
            reversed: cx.reversed().into(),
            ..Flow::default()
        }
    }

    /// Whether its destination is not protected.
    pub(super) fn is_unprotected(&self) -> bool {
        self.phase() == Phase::Direct && self.finished & UNPROTECTED != 0
    }

    /// Whether the opener of a flow without a cookie has continued it.
    #[inline(always)]
    pub(super) fn goes_on(&self) -> bool {
        self.finished & WENT_ON != 0
    }

    /// Whether a segment of a flow without a cookie changes nothing: the opener has continued it, and nobody ends it.
    #[inline(always)]
    pub(super) fn is_steady(&self, flags: u8) -> bool {
        self.finished & (WENT_ON | WAS_RESET) == WENT_ON && flags & (SYN | FIN | RST) == 0
    }

    /// The stage that decides how long a flow is remembered. One without a cookie that its opener has continued is a
    /// connection like any other, and has to be known for as long: what is unknown is dropped under attack.
    pub(super) fn stage(&self) -> Phase {
        match self.phase() {
            Phase::Direct if self.finished & (WENT_ON | UNPROTECTED) != WENT_ON => Phase::Direct,
            Phase::Direct if self.finished & WAS_RESET != 0 => Phase::Reset,
            Phase::Direct if self.finished & FINISHED == FINISHED => Phase::Closing,
            Phase::Direct => Phase::Open,
            phase => phase,
        }
    }

    /// Notes a segment of a flow without a cookie, and returns whether the opener has continued it. The opener must
    /// acknowledge what the other end has sent: a repeated SYN or an acknowledgement of other numbers proves nothing,
    /// because a sender with forged addresses can send both.
    #[cold]
    pub(super) fn note_direct(&mut self, tcp: &View<'_, Tcp>, from: Peer) -> bool {
        let flags = tcp.flags() & (SYN | ACK | RST);
        if tcp.flags() & FIN != 0 {
            self.finished |= 1 << from as u8;
        }
        match flags {
            flags if flags & RST != 0 => self.finished |= WAS_RESET,
            // Anybody may have sent the reset: the connection is alive.
            ACK => self.finished &= !WAS_RESET,
            _ => {}
        }
        match (from, flags) {
            (Peer::Server, flags) if flags == SYN | ACK => {
                self.number = tcp.sequence();
                self.finished |= ANSWERED | NUMBERED;
            }
            (Peer::Server, flags) if flags & RST == 0 => self.finished |= ANSWERED,
            (Peer::Client, ACK) if self.finished & ANSWERED != 0 => {
                let behind = tcp.acknowledgement().wrapping_sub(self.number);
                if self.finished & NUMBERED == 0 || (1..FIRST_FLIGHT).contains(&behind) {
                    self.finished |= WENT_ON;
                }
            }
            _ => {}
        }
        self.goes_on()
    }

    /// Whether both ends are connected, as far as is known.
    pub(super) fn is_assured(&self) -> bool {
        match self.phase() {
            Phase::Direct => self.goes_on(),
            phase => phase == Phase::Open,
        }
    }

    /// Whether the connection was reset before the server had answered.
    pub(super) fn was_refused(&self) -> bool {
        self.phase() == Phase::Reset && self.finished & NEVER_OPEN != 0
    }

    pub(super) fn phase(&self) -> Phase {
        match self.phase {
            0 => Phase::Direct,
            1 => Phase::Asked,
            2 => Phase::Open,
            3 => Phase::Closing,
            _ => Phase::Reset,
        }
    }

    /// Which end has sent the current packet.
    #[inline(always)]
    pub(super) fn sender(&self, cx: &Cx<'_>) -> Peer {
        if u8::from(cx.reversed()) == self.reversed { Peer::Client } else { Peer::Server }
    }

    /// Whether the set's key has the opener's address as its destination.
    pub(super) fn is_reversed(&self) -> bool {
        self.reversed != 0
    }

    /// The options that the SYN to the server offers on behalf of the client; `stamp` is the client's time stamp.
    pub(super) fn offer(&self, stamp: u32) -> Offer {
        Offer {
            size: self.size,
            shift: (self.options & SCALED != 0).then_some(self.client_shift),
            sack: self.options & SACKED != 0,
            stamps: (self.options & STAMPED != 0).then_some((stamp, 0)),
        }
    }

    /// Opens the connection: the server has answered with this initial sequence number and these options.
    pub(super) fn open(&mut self, first: u32, answer: &Offer) {
        self.number = first.wrapping_sub(self.cookie);
        self.stamp = answer.stamps.map_or(0, |(value, _)| value.wrapping_sub(self.stamp));
        match answer.shift {
            Some(shift) => (self.server_shift, self.client_shift) = (shift, 0),
            // Without the server's option, neither end scales its windows (RFC 7323 section 2.2).
            None => self.server_shift = 0,
        }
        self.phase = Phase::Open as u8;
    }

    /// Handles a refusal or an abort before the server has answered.
    pub(super) fn reset(&mut self) {
        self.finished = NEVER_OPEN;
        self.phase = Phase::Reset as u8;
    }

    /// Updates the phase with a segment of an open connection.
    pub(super) fn advance(&mut self, flags: u8, from: Peer) {
        if flags & FIN != 0 {
            self.finished |= 1 << from as u8;
        }
        self.phase = match self.phase() {
            _ if flags & RST != 0 => Phase::Reset,
            _ if self.finished & FINISHED == FINISHED => Phase::Closing,
            // The reset was forged or out of the window: the connection is alive.
            Phase::Reset if flags & (ACK | SYN) == ACK && self.finished & NEVER_OPEN == 0 => Phase::Open,
            phase => phase,
        } as u8;
    }

    /// Converts a window that one end sends to the scale that the other expects. The window of a SYN is never scaled.
    pub(super) fn window(&self, window: u16, from: Peer, flags: u8) -> u16 {
        let (sent, told) = match from {
            Peer::Client => (self.client_shift, 0),
            Peer::Server if flags & SYN != 0 => (0, self.told_shift),
            Peer::Server => (self.server_shift, self.told_shift),
        };
        (u32::from(window) << (sent & 15) >> (told & 15)).min(u16::MAX.into()) as u16
    }

    /// Converts a time stamp of the server to the client's view.
    pub(super) fn told_stamp(&self, value: u32) -> u32 {
        value.wrapping_sub(self.stamp)
    }

    /// Rewrites the header of a segment; a fragmented or damaged header is translated as far as it is present.
    pub(super) fn translate(&self, packet: &mut Packet<'_>, from: Peer) {
        let (Some(at), Some(len)) = (packet.l4_offset(), packet.tcp().map(|tcp| tcp.header_len())) else { return };
        let header = packet.change(at..at + len);
        let mut old = [0; 60];
        let Some(old) = old.get_mut(..header.len()) else { return };
        old.copy_from_slice(header);
        let flags = header[13];
        if from == Peer::Server {
            add(header, 4, self.number.wrapping_neg());
        } else if flags & ACK != 0 {
            add(header, 8, self.number);
        }
        let window = self.window(u16::from_be_bytes([header[14], header[15]]), from, flags);
        header[14..16].copy_from_slice(&window.to_be_bytes());
        self.translate_options(header, from);
        let change = Change::NONE.bytes(old, header);
        let checksum = change.apply(u16::from_be_bytes([header[16], header[17]]));
        header[16..18].copy_from_slice(&checksum.to_be_bytes());
    }

    fn translate_options(&self, header: &mut [u8], from: Peer) {
        let mut at = 20;
        while at < header.len() {
            let len = match (header[at], header.get(at + 1)) {
                (0, _) | (2.., None) => return,
                (1, _) => 1,
                (kind, Some(&len)) => {
                    let len = usize::from(len);
                    if len < 2 || at + len > header.len() {
                        return;
                    }
                    match (kind, len) {
                        (5, _) if from == Peer::Client => {
                            (at + 2..at + len - 3).step_by(4).for_each(|edge| add(header, edge, self.number));
                        }
                        (8, 10) if from == Peer::Client && header[13] & ACK != 0 => add(header, at + 6, self.stamp),
                        (8, 10) if from == Peer::Server => add(header, at + 2, self.stamp.wrapping_neg()),
                        _ => {}
                    }
                    len
                }
            };
            at += len;
        }
    }
}

/// Adds `more` to the 32-bit number at an offset, if the header is long enough.
fn add(header: &mut [u8], at: usize, more: u32) {
    if let Some(place) = header.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<4>()) {
        *place = u32::from_be_bytes(*place).wrapping_add(more).to_be_bytes();
    }
}

//! What is remembered of a connection: one that the server has been asked for, and one that is open, whose numbers are
//! translated.
//!
//! The client knows the cookie as the server's first number, the server chose another; the same with time stamps. So what the
//! server says is moved back by the difference, and what the client echoes is moved forth. The client's own numbers stay.

use braid_nf::packet::checksum::Change;
use braid_nf::packet::headers::tcp_flags::{ACK, FIN, RST, SYN};
use braid_nf::packet::headers::{Tcp, View};
use braid_nf::prelude::*;

use super::cookie::Offer;

/// A flow of the set.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Flow {
    /// The cookie.
    pub(super) cookie: u32,
    /// The client's first number while the server is asked; then how far the server's numbers are ahead of the cookie's. If it began without a
    /// cookie the server's first number, once that is known.
    pub(super) number: u32,
    /// The time stamp that the client was told while the server is asked; then how far the server's stamps are ahead.
    pub(super) stamp: u32,
    /// The client's window, as it confirmed.
    pub(super) window: u16,
    /// The segment size that the cookie told.
    pub(super) size: u16,
    /// Shifts of windows: what the client was told of the server's, the client's own, the server's own.
    told_shift: u8,
    client_shift: u8,
    server_shift: u8,
    /// [`STAMPED`], [`SCALED`], [`SACKED`].
    options: u8,
    /// A [`Phase`].
    phase: u8,
    /// Whether the opener's packets run against the direction in which the set's key is written.
    reversed: u8,
    /// Who has sent a FIN: 1 the client, 2 the server; [`NEVER_OPEN`]; if it began without a cookie [`ANSWERED`], [`NUMBERED`], [`WENT_ON`].
    finished: u8,
    /// Whether it is counted as a flow with a single packet.
    pub(super) one_packet: u8,
}

const STAMPED: u8 = 1;
const SCALED: u8 = 2;
const SACKED: u8 = 4;
/// It was reset before the server had answered: there is nothing to go on with.
const NEVER_OPEN: u8 = 4;
/// Its opener goes on with it.
const WENT_ON: u8 = 8;
/// The other end has answered; and with a SYN of its own, so that its first number is known.
const ANSWERED: u8 = 16;
const NUMBERED: u8 = 32;
/// The first acknowledgement that a client sends of a connection stands so far behind the server's first number at most.
const FIRST_FLIGHT: u32 = 1 << 20;

/// How far a flow has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Phase {
    /// It began without a cookie: nothing is translated.
    Direct = 0,
    /// The client has shown its cookie, the server is asked.
    Asked = 1,
    /// Both are connected.
    Open = 2,
    /// Both have sent a FIN.
    Closing = 3,
    /// One has sent a RST.
    Reset = 4,
}

impl Flow {
    /// A flow that passes as it is.
    pub(super) fn direct(cx: &Cx<'_>, counts: bool) -> Flow {
        Flow { reversed: cx.reversed().into(), one_packet: counts.into(), ..Flow::default() }
    }

    /// A client has shown its cookie and accepted `offer`; `window` is its own, and `shift` what it was told.
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

    /// Whether the opener of one that passes as it is goes on with it.
    #[inline(always)]
    pub(super) fn goes_on(&self) -> bool {
        self.finished & WENT_ON != 0
    }

    /// A segment of one that passes as it is and has not gone on; whether its opener goes on with it: it knows what the other end has answered. A
    /// SYN that comes again shows nothing, and neither does an acknowledgement of what was never said: whoever forges addresses can send both.
    #[cold]
    pub(super) fn note_direct(&mut self, tcp: &View<'_, Tcp>, from_client: bool) -> bool {
        let flags = tcp.flags() & (SYN | ACK | RST);
        match (from_client, flags) {
            (false, flags) if flags == SYN | ACK => {
                self.number = tcp.sequence();
                self.finished |= ANSWERED | NUMBERED;
            }
            (false, flags) if flags & RST == 0 => self.finished |= ANSWERED,
            (true, ACK) if self.finished & ANSWERED != 0 => {
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

    pub(super) fn phase(&self) -> Phase {
        match self.phase {
            0 => Phase::Direct,
            1 => Phase::Asked,
            2 => Phase::Open,
            3 => Phase::Closing,
            _ => Phase::Reset,
        }
    }

    /// Whether the packet at hand comes from who opened it.
    #[inline(always)]
    pub(super) fn is_from_client(&self, cx: &Cx<'_>) -> bool {
        u8::from(cx.reversed()) == self.reversed
    }

    /// Whether addresses of its key stand as its opener writes them.
    pub(super) fn is_reversed(&self) -> bool {
        self.reversed != 0
    }

    /// What the server is offered in the client's name; `stamp` is the client's.
    pub(super) fn offer(&self, stamp: u32) -> Offer {
        Offer {
            size: self.size,
            shift: (self.options & SCALED != 0).then_some(self.client_shift),
            sack: self.options & SACKED != 0,
            stamps: (self.options & STAMPED != 0).then_some((stamp, 0)),
        }
    }

    /// The server has answered with this first number and these options.
    pub(super) fn open(&mut self, first: u32, answer: &Offer) {
        self.number = first.wrapping_sub(self.cookie);
        self.stamp = answer.stamps.map_or(0, |(value, _)| value.wrapping_sub(self.stamp));
        match answer.shift {
            Some(shift) => (self.server_shift, self.client_shift) = (shift, 0),
            // Then the server shifts nobody's windows (RFC 7323 section 2.2).
            None => self.server_shift = 0,
        }
        self.phase = Phase::Open as u8;
    }

    /// A refusal or abort before the server has answered.
    pub(super) fn reset(&mut self) {
        self.finished = NEVER_OPEN;
        self.phase = Phase::Reset as u8;
    }

    /// Goes on with a segment of an open connection.
    pub(super) fn advance(&mut self, flags: u8, from_client: bool) {
        if flags & FIN != 0 {
            self.finished |= if from_client { 1 } else { 2 };
        }
        self.phase = match self.phase() {
            _ if flags & RST != 0 => Phase::Reset,
            _ if self.finished & 3 == 3 => Phase::Closing,
            // The reset was forged or out of the window: the ends go on.
            Phase::Reset if flags & (ACK | SYN) == ACK && self.finished & NEVER_OPEN == 0 => Phase::Open,
            phase => phase,
        } as u8;
    }

    /// A window that one end sends, in the units that the other one expects. That of a SYN is never shifted.
    pub(super) fn window(&self, window: u16, from_client: bool, flags: u8) -> u16 {
        let (from, to) = match from_client {
            true => (self.client_shift, 0),
            false if flags & SYN != 0 => (0, self.told_shift),
            false => (self.server_shift, self.told_shift),
        };
        (u32::from(window) << (from & 15) >> (to & 15)).min(u16::MAX.into()) as u16
    }

    /// A time stamp of the server's as the client knows it.
    pub(super) fn told_stamp(&self, value: u32) -> u32 {
        value.wrapping_sub(self.stamp)
    }

    /// Rewrites the header of a segment; what is fragmented or damaged is translated as far as it goes.
    pub(super) fn translate(&self, packet: &mut Packet<'_>, from_client: bool) {
        let (Some(at), Some(len)) = (packet.l4_offset(), packet.tcp().map(|tcp| tcp.header_len())) else { return };
        let header = packet.change(at..at + len);
        let mut old = [0; 60];
        let Some(old) = old.get_mut(..header.len()) else { return };
        old.copy_from_slice(header);
        let flags = header[13];
        if !from_client {
            add(header, 4, self.number.wrapping_neg());
        } else if flags & ACK != 0 {
            add(header, 8, self.number);
        }
        let window = self.window(u16::from_be_bytes([header[14], header[15]]), from_client, flags);
        header[14..16].copy_from_slice(&window.to_be_bytes());
        self.translate_options(header, from_client);
        let change = Change::NONE.bytes(old, header);
        let checksum = change.apply(u16::from_be_bytes([header[16], header[17]]));
        header[16..18].copy_from_slice(&checksum.to_be_bytes());
    }

    fn translate_options(&self, header: &mut [u8], from_client: bool) {
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
                        (5, _) if from_client => {
                            (at + 2..at + len - 3).step_by(4).for_each(|edge| add(header, edge, self.number));
                        }
                        (8, 10) if from_client && header[13] & ACK != 0 => add(header, at + 6, self.stamp),
                        (8, 10) if !from_client => add(header, at + 2, self.stamp.wrapping_neg()),
                        _ => {}
                    }
                    len
                }
            };
            at += len;
        }
    }
}

/// Adds to the number at an offset, if it is present.
fn add(header: &mut [u8], at: usize, more: u32) {
    if let Some(place) = header.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<4>()) {
        *place = u32::from_be_bytes(*place).wrapping_add(more).to_be_bytes();
    }
}

//! Lets the later fragments of a datagram follow its first one.
//!
//! Only the first fragment of a datagram has ports, so a function can decide only for that one. It remembers the decision here,
//! and the later fragments follow it. A later fragment that arrives before the first one is held, with its bytes, in a store of
//! fixed size, if the function asks for one. Without a store, or when it is full, the fragment is dropped
//! (`fragment_before_first`). A held fragment counts as dropped (`fragment_held`), and as a packet made by the function when it
//! is sent on. Nothing detects that a datagram is complete; when a table is full, the datagrams that began longest ago make
//! room.
//!
//! A later fragment that begins within the first one could overwrite what the decision was made by, wherever the transport header stands: it
//! is dropped (`pieces_overlap`; RFC 3128, RFC 5722), or never leaves if it was held.

mod extent;
mod held;

pub use held::{PIECE_MAX, TAGS_MAX, room_to_wait};

use std::sync::Arc;

use braid_nf::packet::{IpAddress, Tagging};
use braid_nf::state::{Decided, Share, StateBuilder, StateError, StateObject};
use braid_nf::{Conflict, Cx, EVERY_PORT, Handled, Packet, Part, Port, Reason, Verdict};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use self::extent::Extent;
use self::held::{Held, IN_VAIN, Piece};
use super::forwarding::hairpin::Way;
use super::forwarding::turn::turn_frame;
use super::tables::aged::{Aged, Stamp};
use super::{Side, Sides};
use crate::config::ConfigError;

/// A later fragment arrived before the first one, or the first one was dropped.
pub const BEFORE_FIRST: Reason = Reason("fragment_before_first");
/// A later fragment is held until the first one arrives; it is sent on as a packet that the function makes.
pub const HELD: Reason = Reason("fragment_held");
/// A later fragment begins within the first one, whose headers it could overwrite.
pub const OVERLAP: Reason = Reason("pieces_overlap");
/// There is no room to remember a first fragment.
pub const TABLE_FULL: Reason = Reason("fragment_table_full");

/// What the fragments of a datagram have in common: addresses, protocol and identification (RFC 791, RFC 8200 section 4.5),
/// the port and the VLAN on which they arrive, unless [these may differ](Meeting), and the port by which they are to leave, where
/// [that has been decided](Fragments::leaving).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Datagram {
    source: IpAddress,
    destination: IpAddress,
    identification: u32,
    tagging: Tagging,
    port: Port,
    /// [`EVERY_PORT`]: by any.
    exit: Port,
    protocol: u8,
    zero: [u8; 3],
}

impl Datagram {
    /// Returns the datagram that a fragment belongs to.
    pub fn of(packet: &Packet<'_>) -> Option<Datagram> {
        let (identification, protocol) = match packet.ipv4() {
            Some(ip) => (ip.identification().into(), ip.protocol()),
            // In IPv6 only the first fragment says which protocol follows its extension headers, so the identification must
            // suffice.
            None => (packet.ipv6()?.extensions().find_map(|extension| extension.fragment())?.2, 0),
        };
        let (source, destination) = (packet.src_ip(), packet.dst_ip());
        let tagging = Tagging::of(packet.bytes(), packet.link()).unwrap_or_default();
        let (port, exit, zero) = (packet.port(), EVERY_PORT, [0; 3]);
        Some(Datagram { source, destination, identification, tagging, port, exit, protocol, zero })
    }

    /// The same datagram with fragments that may leave by any port; `None` if it is that one.
    fn by_any(self) -> Option<Datagram> {
        (self.exit != EVERY_PORT).then_some(Datagram { exit: EVERY_PORT, ..self })
    }

    /// The port on which its fragments arrive.
    pub fn port(&self) -> Port {
        self.port
    }

    /// The identification that its sender gave it.
    pub fn identification(&self) -> u32 {
        self.identification
    }
}

/// Where the pieces of one datagram may arrive. Routers that share load over several links send first pieces by their ports, and later ones,
/// which have none, by their addresses: often by another link.
#[derive(Clone, Copy, Debug, Default)]
pub struct Meeting {
    /// The sides that are told apart; none: every port is.
    sides: Option<Sides>,
    /// Whether ports inside are told apart too.
    by_inside_port: bool,
    /// Whether VLANs are told apart.
    by_tags: bool,
}

impl Meeting {
    /// By any port of a side, or inside by one port; in any VLAN, or in one.
    pub fn by_side(sides: Sides, by_inside_port: bool, by_tags: bool) -> Meeting {
        // A port on both sides is the only one.
        Meeting { sides: Some(sides).filter(|sides| !sides.are_shared()), by_inside_port, by_tags }
    }

    fn of(&self, datagram: Datagram) -> Datagram {
        let Some(side) = self.sides.and_then(|sides| sides.of(datagram.port)) else { return datagram };
        let port = match side {
            Side::Inside if self.by_inside_port => datagram.port,
            side => EVERY_PORT - 1 - side as Port,
        };
        let tagging = if self.by_tags { datagram.tagging } else { Tagging::default() };
        Datagram { port, tagging, ..datagram }
    }
}

/// What happened to the first fragment: the addresses to write and the port to leave by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Fate {
    /// Written to the source address, unless unspecified.
    pub source: IpAddress,
    /// Written to the destination address, unless unspecified.
    pub destination: IpAddress,
    seen_ns: u64,
    /// The port by which it leaves.
    pub port: Port,
    /// The VLAN tags with which it leaves, if its function changes them: a number that the function interprets.
    pub behind: u16,
    /// Whether frames of its pieces are not turned, though they leave by the port by which they came.
    is_straight: u16,
    /// Where the first fragment ends: later ones begin there or behind.
    reaches: u16,
}

impl Fate {
    /// The fate of leaving by `port` with these addresses; `None` leaves an address as it is.
    pub fn new(port: Port, source: Option<IpAddress>, destination: Option<IpAddress>) -> Fate {
        let (source, destination) = (source.unwrap_or_default(), destination.unwrap_or_default());
        Fate { source, destination, port, ..Fate::default() }
    }

    /// The same fate with other VLAN tags, given as a number that the function interprets.
    pub fn behind(self, behind: u16) -> Fate {
        Fate { behind, ..self }
    }

    /// The same where what leaves by the port by which it came goes on all the same.
    pub fn straight(self) -> Fate {
        Fate { is_straight: 1, ..self }
    }

    /// Writes the addresses.
    pub fn apply(&self, packet: &mut Packet<'_>) {
        if self.source != IpAddress::UNSPECIFIED {
            packet.set_src_ip(self.source);
        }
        if self.destination != IpAddress::UNSPECIFIED {
            packet.set_dst_ip(self.destination);
        }
    }
}

/// What a later fragment has to know of the first one.
pub enum Lead {
    /// It has passed, with this fate.
    Passed(Fate),
    /// The later one is dropped: as the first one was, or because it begins within that.
    Ends(Reason),
    /// It has not been seen, or room has run out meanwhile.
    Unknown,
}

impl Stamp for Fate {
    fn seen_ns(&self) -> u64 {
        self.seen_ns
    }
}

/// A first fragment that was dropped.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct End {
    seen_ns: u64,
    /// The index of the reason in [`Fragments::reasons`].
    reason: u64,
}

impl Stamp for End {
    fn seen_ns(&self) -> u64 {
        self.seen_ns
    }
}

/// A table of datagrams that cannot be made.
fn in_table(error: StateError) -> ConfigError {
    ConfigError::state("fragments_max", &error)
}

/// First pieces and what became of them, and later ones that wait.
pub struct Fragments {
    table: Aged<Datagram, Fate>,
    /// First fragments that were dropped have a table of their own, so that many of them cannot crowd out those that were sent
    /// on.
    ended: Option<Aged<Datagram, End>>,
    /// The reasons for which a dropped first fragment is remembered.
    reasons: &'static [Reason],
    waiting: Option<Held>,
    meeting: Meeting,
    /// The sides, and of packets from which of them an earlier function has decided by which port they leave.
    decided: Option<(Sides, [bool; 2])>,
}

impl Fragments {
    /// Remembers up to `capacity` datagrams for `lifetime_ns` each, and has room for `held` later pieces that come before their first one:
    /// 1.6 KB each; none if `held` is 0. A plan file has these numbers under `fragments_max` and `held_max`.
    pub fn holding(
        builder: &mut StateBuilder,
        capacity: u32,
        lifetime_ns: u64,
        held: u32,
    ) -> Result<Fragments, ConfigError> {
        let table = Aged::new(builder, "fragments", capacity, lifetime_ns).map_err(in_table)?;
        let room = (held > 0).then(|| Held::new(builder, held, lifetime_ns));
        let waiting = room.transpose().map_err(|error| ConfigError::state("held_max", &error))?;
        Ok(Fragments { table, ended: None, reasons: &[], waiting, meeting: Meeting::default(), decided: None })
    }

    /// The same; a first piece that is [dropped](Self::drop) for one of these reasons, which a later piece alone does not show, is remembered too.
    pub fn ending(self, builder: &mut StateBuilder, reasons: &'static [Reason]) -> Result<Fragments, ConfigError> {
        let ended = Aged::new(builder, "ended_fragments", self.table.capacity(), self.table.lifetime_ns());
        let ended = ended.map_err(in_table)?;
        Ok(Fragments { ended: Some(ended), reasons, ..self })
    }

    /// The same; pieces of one datagram may arrive in several places.
    pub fn meeting(self, meeting: Meeting) -> Fragments {
        Fragments { meeting, ..self }
    }

    /// The same; where a function before this one has decided by which port packets leave, the pieces for each port are told apart. A
    /// bridge that floods makes a copy for each port, and what becomes of one says nothing of the others.
    pub fn leaving(self, sides: Sides, decided: [Decided; 2]) -> Fragments {
        Fragments { decided: Some((sides, decided.map(|decided| decided == Decided::Before))), ..self }
    }

    /// The datagram that a fragment belongs to, wherever it arrives.
    fn datagram(&self, cx: &Cx<'_>, packet: &Packet<'_>) -> Option<Datagram> {
        let datagram = Datagram::of(packet)?;
        let is_decided = self
            .decided
            .is_some_and(|(sides, decided)| sides.of(datagram.port).is_some_and(|side| decided[side as usize]));
        let exit = if is_decided { cx.leaves_by() } else { EVERY_PORT };
        Some(Datagram { exit, ..self.meeting.of(datagram) })
    }

    /// What a table has about a datagram. A bridge without VLANs or isolated ports floods one packet for all ports, and a later piece leaves
    /// by one of them once the station has answered.
    fn known<V: Stamp>(cx: &mut Cx<'_>, table: &Aged<Datagram, V>, datagram: Datagram) -> Result<Option<V>, Conflict> {
        match (table.get(cx, &datagram)?, datagram.by_any()) {
            (None, Some(flooded)) => table.get(cx, &flooded),
            (known, _) => Ok(known),
        }
    }

    /// Remembers the fate of a first fragment, which must be given as received. Returns false if there is no room and no old
    /// entry to replace.
    pub fn remember(&self, cx: &mut Cx<'_>, packet: &Packet<'_>, fate: Fate) -> Result<bool, Conflict> {
        let (Some(datagram), Some(extent)) = (self.datagram(cx, packet), Extent::of(packet)) else { return Ok(false) };
        // In IPv6 a short first fragment after a long one of the same datagram would uncover headers that were checked. In IPv4 they begin with
        // the datagram, where no later fragment does, and identifications soon repeat.
        let before = if packet.src_ip().is_v4() { None } else { self.table.get(cx, &datagram)? };
        let reaches = extent.end.max(before.map_or(0, |fate| fate.reaches));
        let seen_ns = cx.now();
        self.table.crowd_in(cx, &datagram, &Fate { seen_ns, reaches, ..fate })
    }

    /// Why a first fragment could not be [remembered](Self::remember): there is no room, or a capture has cut its fragment header off.
    #[cold]
    pub fn forgotten(packet: &Packet<'_>) -> Reason {
        if Datagram::of(packet).is_some() { TABLE_FULL } else { Reason::MALFORMED }
    }

    /// The fragments that are held, as lost if no packet comes any more.
    pub fn held_in_vain(&self) -> Vec<(Reason, u64)> {
        self.waiting.iter().map(|waiting| (IN_VAIN, waiting.len())).collect()
    }

    /// Drops a packet, which must be given as received. If it is a first fragment, the fragments held for it end too, and those
    /// that follow are dropped [for the same reason](Lead::Ends).
    #[cold]
    pub fn drop(&self, cx: &mut Cx<'_>, packet: &Packet<'_>, reason: Reason) -> Handled {
        let number = self.reasons.iter().position(|known| *known == reason);
        if packet.is_fragment()
            && !packet.is_later_fragment()
            && let (Some(ended), Some(number), Some(datagram)) = (&self.ended, number, self.datagram(cx, packet))
        {
            self.take_waiting(cx, packet, |cx, _| cx.lose(reason))?;
            self.table.remove(cx, &datagram)?;
            // If there is no room, later fragments are held in vain until others replace them.
            let _ = ended.crowd_in(cx, &datagram, &End { seen_ns: cx.now(), reason: number as u64 })?;
        }
        Ok(Verdict::Drop(reason))
    }

    /// Carries out a verdict; the later fragments of a first one that is dropped [end with it](Self::drop).
    #[inline(always)]
    pub fn conclude(&self, cx: &mut Cx<'_>, packet: &Packet<'_>, verdict: Verdict) -> Handled {
        match verdict {
            Verdict::Drop(reason) if packet.is_fragment() => self.drop(cx, packet, reason),
            verdict => Ok(verdict),
        }
    }

    /// Returns why a first fragment was dropped; `None` if that is not known.
    fn end_of(&self, cx: &mut Cx<'_>, datagram: Datagram) -> Result<Option<Reason>, Conflict> {
        let Some(ended) = &self.ended else { return Ok(None) };
        let end = Fragments::known(cx, ended, datagram)?;
        Ok(end.and_then(|end| self.reasons.get(end.reason as usize).copied()))
    }

    /// Returns what is known of the first fragment of a later one, which must be given as received.
    pub fn follow(&self, cx: &mut Cx<'_>, packet: &Packet<'_>) -> Result<Lead, Conflict> {
        let (Some(datagram), Some(extent)) = (self.datagram(cx, packet), Extent::of(packet)) else {
            return Ok(Lead::Unknown);
        };
        Ok(match Fragments::known(cx, &self.table, datagram)? {
            Some(fate) if extent.begin < fate.reaches => Lead::Ends(OVERLAP),
            Some(fate) => Lead::Passed(fate),
            None => self.end_of(cx, datagram)?.map_or(Lead::Unknown, Lead::Ends),
        })
    }

    /// Holds a later fragment, given as received, until its first one arrives. Returns the reason with which the packet itself
    /// is dropped.
    pub fn hold(&self, cx: &mut Cx<'_>, packet: &Packet<'_>) -> Result<Reason, Conflict> {
        let (Some(waiting), Some(datagram)) = (&self.waiting, self.datagram(cx, packet)) else {
            return Ok(BEFORE_FIRST);
        };
        let is_held = waiting.hold(cx, datagram, packet)?;
        Ok(if is_held { HELD } else { BEFORE_FIRST })
    }

    /// Sends on the fragments held for a first one, given as received, with its fate and `hops` decremented. Those that leave
    /// by the port on which they arrived, to another address, leave as [turned](super::forwarding::turn) frames.
    pub fn release(&self, cx: &mut Cx<'_>, packet: &Packet<'_>, fate: &Fate, hops: u8) -> Result<(), Conflict> {
        self.release_with(cx, packet, (fate, hops), |cx, frame, _| cx.emit_onward(fate.port, frame))
    }

    /// Like [`release`](Self::release), with other VLAN tags, by `way`. `retag` gets a frame and the offset of its IP header, may
    /// write the frame with new tags into a buffer, and returns the new length.
    pub fn release_tagged(
        &self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        (fate, hops, way): (&Fate, u8, Way),
        retag: impl Fn(&[u8], usize, &mut [u8]) -> Option<usize>,
    ) -> Result<(), Conflict> {
        self.release_with(cx, packet, (fate, hops), |cx, frame, ip| {
            let mut tagged = [0; PIECE_MAX + TAGS_MAX];
            match retag(frame, ip, &mut tagged) {
                Some(len) => way.send_piece(cx, fate.port, &tagged[..len]),
                None => way.send_piece(cx, fate.port, frame),
            }
        })
    }

    /// Like [`release`](Self::release), but sends through `send`, which gets a frame and the offset of its IP header.
    pub fn release_with(
        &self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        (fate, hops): (&Fate, u8),
        mut send: impl FnMut(&mut Cx<'_>, &[u8], usize),
    ) -> Result<(), Conflict> {
        self.take_waiting(cx, packet, |cx, piece| {
            if piece.rewrite(fate, hops) {
                let (frame, ip) = piece.frame();
                if fate.is_straight == 0 && fate.port == packet.port() && fate.destination != IpAddress::UNSPECIFIED {
                    turn_frame(frame, ip);
                }
                send(cx, frame, ip);
            } else {
                cx.lose(IN_VAIN);
            }
        })
    }

    /// Passes the fragments held for a first one, given as received, unchanged to `send`: a frame and the offset of its IP
    /// header. Those to which no more than `hops` hops are left go no further.
    pub fn release_by(
        &self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        hops: u8,
        mut send: impl FnMut(&mut Cx<'_>, &[u8], usize),
    ) -> Result<(), Conflict> {
        self.take_waiting(cx, packet, |cx, piece| {
            if piece.outlives(hops) {
                let (frame, ip) = piece.frame();
                send(cx, frame, ip);
            } else {
                cx.lose(IN_VAIN);
            }
        })
    }

    /// Takes out the fragments held for a first one that has been [remembered](Self::remember). Those that begin within it are left out.
    fn take_waiting(
        &self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        mut each: impl FnMut(&mut Cx<'_>, &mut Piece),
    ) -> Result<(), Conflict> {
        let (Some(waiting), Some(datagram)) = (&self.waiting, self.datagram(cx, packet)) else { return Ok(()) };
        let reaches = self.table.get(cx, &datagram)?.map_or(0, |fate| fate.reaches);
        let mut each = |cx: &mut Cx<'_>, piece: &mut Piece| match piece.begins() >= reaches {
            true => each(cx, piece),
            false => cx.lose(OVERLAP),
        };
        waiting.take(cx, datagram, &mut each)?;
        match datagram.by_any() {
            Some(flooded) => waiting.take(cx, flooded, each),
            None => Ok(()),
        }
    }

    /// Removes entries that are too old; must be called every [`SWEEP_EVERY`](super::tables::aged::SWEEP_EVERY).
    pub fn sweep(&self, cx: &mut Cx<'_>, share: Share) -> Result<(), Conflict> {
        self.table.sweep(cx, share)?;
        if let Some(ended) = &self.ended {
            ended.sweep(cx, share)?;
        }
        match &self.waiting {
            Some(waiting) => waiting.sweep(cx, share),
            None => Ok(()),
        }
    }
}

impl Part for Fragments {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.table.objects(into);
        if let Some(ended) = &self.ended {
            ended.objects(into);
        }
        if let Some(waiting) = &self.waiting {
            waiting.objects(into);
        }
    }
}

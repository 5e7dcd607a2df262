//! Fragments that follow their first piece.
//!
//! Only the first piece of a datagram has ports, so only for it can a function decide. It remembers the decision here, and
//! the later pieces follow it. A piece that comes before the first one waits, with its bytes, in a store of fixed size, if the
//! function asks for one; without, or when it is full, it is dropped (`fragment_before_first`). A piece that waits counts as dropped
//! (`fragment_held`), and as a packet that the function made when it goes on. That a datagram is complete is not noticed; where there is no
//! room, those that began longest ago give theirs.

use std::sync::Arc;

use braid_nf::packet::{IpAddress, Tagging, checksum};
use braid_nf::state::{Share, StateBuilder, StateError, StateObject};
use braid_nf::{Conflict, Cx, Handled, Packet, Part, Port, Reason, Verdict};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::aged::{Aged, Stamp};
use super::turn::turn_frame;

/// A later fragment came before the first one, or the first one was dropped.
pub const BEFORE_FIRST: Reason = Reason("fragment_before_first");
/// A later fragment waits for the first one; it goes on as a packet of the function's own.
pub const HELD: Reason = Reason("fragment_held");
/// No room to remember a first fragment.
pub const TABLE_FULL: Reason = Reason("fragment_table_full");

/// What joins the pieces of a datagram: addresses, protocol and identification (RFC 791, RFC 8200 section 4.5), and the port
/// and the VLAN by which they come.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Datagram {
    source: IpAddress,
    destination: IpAddress,
    identification: u32,
    tagging: Tagging,
    port: Port,
    protocol: u8,
    zero: u8,
}

impl Datagram {
    /// The datagram of a fragment.
    pub fn of(packet: &Packet<'_>) -> Option<Datagram> {
        let (identification, protocol) = match packet.ipv4() {
            Some(ip) => (ip.identification().into(), ip.protocol()),
            // Only the first piece knows what follows its extension headers: the identification must do.
            None => (packet.ipv6()?.extensions().find_map(|extension| extension.fragment())?.2, 0),
        };
        let (source, destination) = (packet.src_ip(), packet.dst_ip());
        let tagging = Tagging::of(packet.bytes(), packet.link()).unwrap_or_default();
        Some(Datagram { source, destination, identification, tagging, port: packet.port(), protocol, zero: 0 })
    }

    /// The port by which its pieces come.
    pub fn port(&self) -> Port {
        self.port
    }

    /// What its sender calls it.
    pub fn identification(&self) -> u32 {
        self.identification
    }
}

/// What became of the first piece: addresses to write (unspecified: leave them) and the port to leave by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Fate {
    /// Written to the source address, unless unspecified.
    pub source: IpAddress,
    /// Written to the destination address, unless unspecified.
    pub destination: IpAddress,
    seen_ns: u64,
    /// Where it leaves.
    pub port: Port,
    /// With which tags it leaves, if its function changes them.
    pub behind: u16,
    zero: [u8; 4],
}

impl Fate {
    /// Leaves by `port` with these addresses, none meaning its own.
    pub fn new(port: Port, source: Option<IpAddress>, destination: Option<IpAddress>) -> Fate {
        let (source, destination) = (source.unwrap_or_default(), destination.unwrap_or_default());
        Fate { source, destination, port, ..Fate::default() }
    }

    /// The same with other tags, by a number that its function understands.
    pub fn behind(self, behind: u16) -> Fate {
        Fate { behind, ..self }
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

impl Stamp for Fate {
    fn seen_ns(&self) -> u64 {
        self.seen_ns
    }
}

/// A first piece that went nowhere.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct End {
    seen_ns: u64,
    /// Which of the reasons.
    reason: u64,
}

impl Stamp for End {
    fn seen_ns(&self) -> u64 {
        self.seen_ns
    }
}

/// Most bytes of a piece that waits, with its link header.
pub const PIECE_MAX: usize = 1536;
/// Bytes of two tags.
pub const TAGS_MAX: usize = 8;
/// Most packets for which a function may have room to let them wait: 1.6 GiB of frames.
pub const WAITING_MAX: u32 = 1 << 20;
/// Most pieces of one datagram that wait: a whole datagram in pieces for Ethernet.
const PIECES_MAX: u32 = 45;

/// The key of a piece that waits.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct PieceKey {
    datagram: Datagram,
    /// Which of those of its datagram, in the order in which they came.
    number: u32,
}

/// A piece that waits.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Piece {
    seen_ns: u64,
    len: u32,
    /// Offset of the IP header.
    ip: u32,
    bytes: [u8; PIECE_MAX],
}

impl Stamp for Piece {
    fn seen_ns(&self) -> u64 {
        self.seen_ns
    }
}

impl Piece {
    /// Counts hops and writes addresses. False if the hops end here.
    fn rewrite(&mut self, fate: &Fate, hops: u8) -> bool {
        let Some(ip) = self.bytes.get_mut(self.ip as usize..self.len as usize) else { return false };
        let is_v4 = ip.first().is_some_and(|byte| byte >> 4 == 4);
        let (ttl, source, len) = if is_v4 { (8, 12, 4) } else { (7, 8, 16) };
        if ip.len() < source + 2 * len || ip[ttl] <= hops {
            return false;
        }
        ip[ttl] -= hops;
        for (at, address) in [(source, fate.source), (source + len, fate.destination)] {
            match address.v4() {
                _ if address == IpAddress::UNSPECIFIED => {}
                Some(v4) if is_v4 => ip[at..at + 4].copy_from_slice(&v4),
                None if !is_v4 => ip[at..at + 16].copy_from_slice(&address.octets()),
                _ => return false,
            }
        }
        let header = usize::from(ip[0] & 15) * 4;
        if is_v4 && ip.len() >= header {
            ip[10..12].fill(0);
            let sum = checksum::ipv4_header(&ip[..header]);
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        true
    }
}

/// Whether so many packets may wait: a table of frames is filled when it is made, and one of terabytes for minutes.
pub fn room_to_wait(name: &str, capacity: u32) -> Result<(), StateError> {
    let (name, capacity, most) = (name.to_owned(), u64::from(capacity), u64::from(WAITING_MAX));
    if (1..=most).contains(&capacity) { Ok(()) } else { Err(StateError::Capacity { name, capacity, most }) }
}

/// First pieces and what became of them, and later ones that wait.
pub struct Fragments {
    table: Aged<Datagram, Fate>,
    /// Those that went nowhere have a table of their own: whoever sends many of them crowds out none that did not.
    ended: Option<Aged<Datagram, End>>,
    /// Why they may have.
    reasons: &'static [Reason],
    waiting: Option<Aged<PieceKey, Piece>>,
}

impl Fragments {
    /// Remembers up to `capacity` datagrams for `lifetime_ns` each.
    pub fn new(builder: &mut StateBuilder, capacity: u32, lifetime_ns: u64) -> Result<Fragments, StateError> {
        let table = Aged::new(builder, "fragments", capacity, lifetime_ns)?;
        Ok(Fragments { table, ended: None, reasons: &[], waiting: None })
    }

    /// The same with room for `held` later pieces that come before their first one: 1.6 KB each; none if `held` is 0. An error
    /// comes with the usual key of the number that is wrong.
    pub fn holding(
        builder: &mut StateBuilder,
        capacity: u32,
        lifetime_ns: u64,
        held: u32,
    ) -> Result<Fragments, (&'static str, StateError)> {
        let fragments = Fragments::new(builder, capacity, lifetime_ns).map_err(|error| ("fragments_max", error))?;
        let room = || room_to_wait("held", held).and_then(|()| Aged::new(builder, "held", held, lifetime_ns));
        let waiting = (held > 0).then(room).transpose();
        Ok(Fragments { waiting: waiting.map_err(|error| ("held_max", error))?, ..fragments })
    }

    /// The same; a first piece that is [dropped](Self::drop) for one of these reasons, which a later piece alone does not show, is remembered too.
    pub fn ending(self, builder: &mut StateBuilder, reasons: &'static [Reason]) -> Result<Fragments, StateError> {
        let ended = Aged::new(builder, "ended_fragments", self.table.capacity(), self.table.lifetime_ns())?;
        Ok(Fragments { ended: Some(ended), reasons, ..self })
    }

    /// Remembers the fate of a first piece, given as it came. False if there is no room, nor anything old that could make some.
    pub fn remember(&self, cx: &mut Cx<'_>, packet: &Packet<'_>, fate: Fate) -> Result<bool, Conflict> {
        let Some(datagram) = Datagram::of(packet) else { return Ok(false) };
        let seen_ns = cx.now();
        self.table.crowd_in(cx, &datagram, &Fate { seen_ns, ..fate })
    }

    /// Drops a packet, given as it came. If it is a first piece, those that have waited for it end, and those that follow are dropped
    /// [for the same reason](Self::end_of).
    #[cold]
    pub fn drop(&self, cx: &mut Cx<'_>, packet: &Packet<'_>, reason: Reason) -> Handled {
        let number = self.reasons.iter().position(|known| *known == reason);
        if packet.is_fragment()
            && !packet.is_later_fragment()
            && let (Some(ended), Some(number), Some(datagram)) = (&self.ended, number, Datagram::of(packet))
        {
            self.take_waiting(cx, packet, |_, _| {})?;
            self.table.remove(cx, &datagram)?;
            // Without room later pieces wait for nothing, and make room in their turn.
            let _ = ended.crowd_in(cx, &datagram, &End { seen_ns: cx.now(), reason: number as u64 })?;
        }
        Ok(Verdict::Drop(reason))
    }

    /// Why the first piece of a later one, given as it came, went nowhere; none if that is not known of it.
    pub fn end_of(&self, cx: &mut Cx<'_>, packet: &Packet<'_>) -> Result<Option<Reason>, Conflict> {
        let (Some(ended), Some(datagram)) = (&self.ended, Datagram::of(packet)) else { return Ok(None) };
        let end = ended.get(cx, &datagram)?;
        Ok(end.and_then(|end| self.reasons.get(end.reason as usize).copied()))
    }

    /// The fate of a later piece, given as it came; none if its first piece has not been seen.
    pub fn follow(&self, cx: &mut Cx<'_>, packet: &Packet<'_>) -> Result<Option<Fate>, Conflict> {
        match Datagram::of(packet) {
            Some(datagram) => self.table.get(cx, &datagram),
            None => Ok(None),
        }
    }

    /// Has a later piece, given as it came, wait for its first one. The reason for which the packet itself ends.
    pub fn hold(&self, cx: &mut Cx<'_>, packet: &Packet<'_>) -> Result<Reason, Conflict> {
        let (Some(waiting), Some(datagram)) = (&self.waiting, Datagram::of(packet)) else { return Ok(BEFORE_FIRST) };
        let frame = packet.bytes();
        if frame.len() > PIECE_MAX {
            return Ok(BEFORE_FIRST);
        }
        let (seen_ns, ip) = (cx.now(), u32::from(packet.record().l3));
        let mut piece = Piece { seen_ns, len: frame.len() as u32, ip, bytes: [0; PIECE_MAX] };
        piece.bytes[..frame.len()].copy_from_slice(frame);
        for number in 0..PIECES_MAX {
            let key = PieceKey { datagram, number };
            if waiting.get(cx, &key)?.is_none() {
                return Ok(if self.crowd_in(cx, waiting, (&key, &piece))? { HELD } else { BEFORE_FIRST });
            }
        }
        Ok(BEFORE_FIRST)
    }

    /// Has a piece wait, if need be in the place of an older one. With that go all pieces of its datagram: they are numbered without gaps, and nothing
    /// can come of them any more. False if there is no room, or if the piece is of such a datagram itself.
    fn crowd_in(
        &self,
        cx: &mut Cx<'_>,
        waiting: &Aged<PieceKey, Piece>,
        (key, piece): (&PieceKey, &Piece),
    ) -> Result<bool, Conflict> {
        let mut gone = Vec::new();
        let has_room = waiting.crowd_in_telling(cx, key, piece, |_, gone_key| {
            gone.push(*gone_key);
            Ok(())
        })?;
        let mut stays = has_room;
        for PieceKey { datagram, number } in gone {
            stays &= datagram.as_bytes() != key.datagram.as_bytes();
            forget(cx, waiting, datagram, (0..number).rev())?;
            forget(cx, waiting, datagram, number + 1..PIECES_MAX)?;
        }
        Ok(stays)
    }

    /// Sends on the pieces that wait for a first one, given as it came: to its fate, `hops` hops further. Those that go back where they came
    /// from, to another address, do so in [turned](super::turn) frames.
    pub fn release(&self, cx: &mut Cx<'_>, packet: &Packet<'_>, fate: &Fate, hops: u8) -> Result<(), Conflict> {
        self.release_with(cx, packet, (fate, hops), |cx, frame, _| cx.emit_onward(fate.port, frame))
    }

    /// The same with other VLAN tags: `retag` may write a frame, of which the offset of the IP header is given, into a buffer, and says
    /// how long it then is.
    pub fn release_tagged(
        &self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        (fate, hops): (&Fate, u8),
        retag: impl Fn(&[u8], usize, &mut [u8]) -> Option<usize>,
    ) -> Result<(), Conflict> {
        self.release_with(cx, packet, (fate, hops), |cx, frame, ip| {
            let mut tagged = [0; PIECE_MAX + TAGS_MAX];
            match retag(frame, ip, &mut tagged) {
                Some(len) => cx.emit_onward(fate.port, &tagged[..len]),
                None => cx.emit_onward(fate.port, frame),
            }
        })
    }

    /// The same by way of `send`, which is given a frame and the offset of its IP header.
    pub fn release_with(
        &self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        (fate, hops): (&Fate, u8),
        mut send: impl FnMut(&mut Cx<'_>, &[u8], usize),
    ) -> Result<(), Conflict> {
        self.take_waiting(cx, packet, |cx, piece| {
            if piece.rewrite(fate, hops) {
                let (frame, ip) = (&mut piece.bytes[..piece.len as usize], piece.ip as usize);
                if fate.port == packet.port() && fate.destination != IpAddress::UNSPECIFIED {
                    turn_frame(frame, ip);
                }
                send(cx, frame, ip);
            }
        })
    }

    /// Gives the pieces that wait for a first one, given as it came, to `send`: a frame and the offset of its IP header.
    pub fn release_by(
        &self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        mut send: impl FnMut(&mut Cx<'_>, &[u8], usize),
    ) -> Result<(), Conflict> {
        self.take_waiting(cx, packet, |cx, piece| send(cx, &piece.bytes[..piece.len as usize], piece.ip as usize))
    }

    fn take_waiting(
        &self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        mut each: impl FnMut(&mut Cx<'_>, &mut Piece),
    ) -> Result<(), Conflict> {
        let (Some(waiting), Some(datagram)) = (&self.waiting, Datagram::of(packet)) else { return Ok(()) };
        for number in 0..PIECES_MAX {
            let key = PieceKey { datagram, number };
            let Some(mut piece) = waiting.get(cx, &key)? else { break };
            each(cx, &mut piece);
            waiting.remove(cx, &key)?;
        }
        Ok(())
    }

    /// Takes out what is too old; to be called every [`SWEEP_EVERY`](super::aged::SWEEP_EVERY).
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

/// Takes out waiting pieces of a datagram with these numbers, up to one that is not there.
fn forget(
    cx: &mut Cx<'_>,
    waiting: &Aged<PieceKey, Piece>,
    datagram: Datagram,
    numbers: impl Iterator<Item = u32>,
) -> Result<(), Conflict> {
    for number in numbers {
        if waiting.remove(cx, &PieceKey { datagram, number })?.is_none() {
            break;
        }
    }
    Ok(())
}

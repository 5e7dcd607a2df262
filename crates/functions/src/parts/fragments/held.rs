//! The store of later fragments that wait for their first one, with their bytes.

use std::sync::Arc;

use braid_nf::packet::IpAddress;
use braid_nf::packet::checksum::Change;
use braid_nf::state::{Share, StateBuilder, StateError, StateObject};
use braid_nf::{Conflict, Cx, Packet, Part, Reason};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::extent::Extent;
use super::{Datagram, Fate};
use crate::parts::tables::aged::{Aged, Stamp};

/// The most bytes of a held fragment, including its link header.
pub const PIECE_MAX: usize = 1536;
/// Bytes of two VLAN tags.
pub const TAGS_MAX: usize = 8;
/// The most packets that a function may have room to hold: 1.6 GiB of frames.
const WAITING_MAX: u32 = 1 << 20;
/// The most fragments of one datagram that are held: a whole datagram for links of 576 bytes (RFC 791), or one for Ethernet whose fragments
/// a tunnel has cut in two.
const PIECES_MAX: u32 = 128;

/// A fragment was held, and the first one of its datagram did not pass in time, or left it no hop.
pub(super) const IN_VAIN: Reason = Reason("fragment_held_in_vain");

/// The key of a held fragment.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct PieceKey {
    datagram: Datagram,
    /// Its number among the held fragments of its datagram, in order of arrival.
    number: u32,
}

/// A held fragment.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Piece {
    seen_ns: u64,
    len: u32,
    /// The offset of the IP header.
    ip: u16,
    /// Where it begins in its datagram.
    begins: u16,
    bytes: [u8; PIECE_MAX],
}

impl Stamp for Piece {
    fn seen_ns(&self) -> u64 {
        self.seen_ns
    }
}

impl Piece {
    /// Where it begins in its datagram, in bytes.
    pub(super) fn begins(&self) -> u16 {
        self.begins
    }

    /// Its frame, and the offset of the IP header.
    pub(super) fn frame(&mut self) -> (&mut [u8], usize) {
        (&mut self.bytes[..self.len as usize], self.ip as usize)
    }

    /// Whether more than `hops` hops are left to it.
    pub(super) fn outlives(&self, hops: u8) -> bool {
        let ip = self.bytes.get(self.ip as usize..self.len as usize).unwrap_or_default();
        ip.get(hops_at(ip).1).is_some_and(|left| *left > hops)
    }

    /// Decrements the hop count by `hops` and writes the addresses. Returns false if too few hops are left.
    pub(super) fn rewrite(&mut self, fate: &Fate, hops: u8) -> bool {
        if !self.outlives(hops) {
            return false;
        }
        let Some(ip) = self.bytes.get_mut(self.ip as usize..self.len as usize) else { return false };
        let (is_v4, ttl) = hops_at(ip);
        let (source, len) = if is_v4 { (12, 4) } else { (8, 16) };
        if ip.len() < source + 2 * len {
            return false;
        }
        let mut old = [0; 20];
        old.copy_from_slice(&ip[..20]);
        ip[ttl] -= hops;
        for (at, address) in [(source, fate.source), (source + len, fate.destination)] {
            match address.v4() {
                _ if address == IpAddress::UNSPECIFIED => {}
                Some(v4) if is_v4 => ip[at..at + 4].copy_from_slice(&v4),
                None if !is_v4 => ip[at..at + 16].copy_from_slice(&address.octets()),
                _ => return false,
            }
        }
        if is_v4 {
            // Updated, not made anew, so that damage stays visible (RFC 1624).
            let sum = Change::NONE.bytes(&old, &ip[..20]).apply(u16::from_be_bytes([old[10], old[11]]));
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        true
    }
}

/// Whether a packet is IPv4, and where its hop count is.
fn hops_at(ip: &[u8]) -> (bool, usize) {
    let is_v4 = ip.first().is_some_and(|byte| byte >> 4 == 4);
    (is_v4, if is_v4 { 8 } else { 7 })
}

/// Checks that this many packets may be held. A table of frames is filled when it is created, which would take minutes for
/// terabytes.
pub fn room_to_wait(name: &str, capacity: u32) -> Result<(), StateError> {
    let (name, capacity, most) = (name.to_owned(), u64::from(capacity), u64::from(WAITING_MAX));
    if (1..=most).contains(&capacity) { Ok(()) } else { Err(StateError::Capacity { name, capacity, most }) }
}

/// Held fragments, by datagram and number.
pub(super) struct Held(Aged<PieceKey, Piece>);

impl Held {
    /// Room for `capacity` fragments, each for `lifetime_ns`.
    pub(super) fn new(builder: &mut StateBuilder, capacity: u32, lifetime_ns: u64) -> Result<Held, StateError> {
        room_to_wait("held", capacity)?;
        Ok(Held(Aged::new(builder, "held", capacity, lifetime_ns)?))
    }

    /// Holds a later fragment, given as received. Returns false if it is too long, or if there is no room for it.
    pub(super) fn hold(&self, cx: &mut Cx<'_>, datagram: Datagram, packet: &Packet<'_>) -> Result<bool, Conflict> {
        let frame = packet.bytes();
        if frame.len() > PIECE_MAX {
            return Ok(false);
        }
        let (seen_ns, ip) = (cx.now(), packet.record().l3.into());
        let begins = Extent::of(packet).map_or(0, |extent| extent.begin);
        let mut piece = Piece { seen_ns, len: frame.len() as u32, ip, begins, bytes: [0; PIECE_MAX] };
        piece.bytes[..frame.len()].copy_from_slice(frame);
        match self.count(cx, datagram)? {
            PIECES_MAX => Ok(false),
            number => self.crowd_in(cx, (&PieceKey { datagram, number }, &piece)),
        }
    }

    /// The number of a datagram's held fragments: the first number that none has. Looks at few of them, as there are no gaps.
    fn count(&self, cx: &mut Cx<'_>, datagram: Datagram) -> Result<u32, Conflict> {
        let mut has = |number| self.0.get(cx, &PieceKey { datagram, number }).map(|piece| piece.is_some());
        let (mut count, mut end) = (0, 1);
        while end < PIECES_MAX && has(end - 1)? {
            (count, end) = (end, 2 * end);
        }
        while count < end {
            let middle = (count + end) / 2;
            (count, end) = if has(middle)? { (middle + 1, end) } else { (count, middle) };
        }
        Ok(count)
    }

    /// Holds a fragment, in place of an older one if necessary. All held fragments of a replaced one's datagram go too: they
    /// are numbered without gaps, and the datagram can no longer be completed. Returns false if there is no room, or if the new
    /// fragment belongs to such a datagram itself.
    fn crowd_in(&self, cx: &mut Cx<'_>, (key, piece): (&PieceKey, &Piece)) -> Result<bool, Conflict> {
        let mut gone = Vec::new();
        let has_room = self.0.crowd_in_telling(cx, key, piece, |cx, gone_key| {
            cx.lose(IN_VAIN);
            gone.push(*gone_key);
            Ok(())
        })?;
        let mut stays = has_room;
        for PieceKey { datagram, number } in gone {
            stays &= datagram.as_bytes() != key.datagram.as_bytes();
            self.forget(cx, datagram, (0..number).rev(), key)?;
            self.forget(cx, datagram, number + 1..PIECES_MAX, key)?;
        }
        Ok(stays)
    }

    /// Takes the fragments of a datagram out, in order of arrival.
    pub(super) fn take(
        &self,
        cx: &mut Cx<'_>,
        datagram: Datagram,
        mut each: impl FnMut(&mut Cx<'_>, &mut Piece),
    ) -> Result<(), Conflict> {
        for number in 0..PIECES_MAX {
            let key = PieceKey { datagram, number };
            let Some(mut piece) = self.0.get(cx, &key)? else { break };
            each(cx, &mut piece);
            self.0.remove(cx, &key)?;
        }
        Ok(())
    }

    /// Removes the held fragments of a datagram with these numbers, up to the first that does not exist. One of them may be the one that
    /// `came` just now, which does not wait after all.
    fn forget(
        &self,
        cx: &mut Cx<'_>,
        datagram: Datagram,
        numbers: impl Iterator<Item = u32>,
        came: &PieceKey,
    ) -> Result<(), Conflict> {
        for number in numbers {
            let key = PieceKey { datagram, number };
            if self.0.remove(cx, &key)?.is_none() {
                break;
            }
            if key.as_bytes() != came.as_bytes() {
                cx.lose(IN_VAIN);
            }
        }
        Ok(())
    }

    /// How many fragments are held, as exact as [`Map::len`](braid_nf::state::Map::len).
    pub(super) fn len(&self) -> u64 {
        self.0.used() as u64
    }

    /// Removes fragments that have waited too long.
    pub(super) fn sweep(&self, cx: &mut Cx<'_>, share: Share) -> Result<(), Conflict> {
        self.0.sweep_telling(cx, share, |cx, _| {
            cx.lose(IN_VAIN);
            Ok(())
        })
    }
}

impl Part for Held {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.0.objects(into);
    }
}

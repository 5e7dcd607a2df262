//! Reassembles datagrams for the router itself (RFC 791 section 3.2, RFC 1122 section 3.3.2, RFC 8200 section 4.5).
//!
//! The bytes of a datagram are stored in chunks, and each chunk records which units of eight bytes have arrived. So fragments
//! of any length need no more room than their bytes, in a table of fixed size that all datagrams share. A duplicate fragment is
//! ignored. A fragment that overlaps others in any other way ends its datagram, and the fragments still to come are dropped too
//! (RFC 5722). When there is no room, the datagrams that have waited longest end; if all have arrived just now, the new
//! fragment's own datagram ends. The sender of a datagram that makes room is told, if its first fragment has arrived (RFC 792).

use std::sync::Arc;
use std::time::Duration;

use braid_nf::packet::headers::{Header, Ipv4, Ipv6};
use braid_nf::prelude::*;
use braid_nf::state::{
    DistributedVector, DistributedVectorConfig, Inserted, MapConfig, Share, StateBuilder, StateError, StateObject,
};
use braid_nf::{Part, Port};

use super::gathered::{FULL, Gathered, LIFETIME_NS, NEXT, OVERLAPS, is_old};
use super::piece::{CHUNK, PartOf, Piece};
use crate::ConfigError;
use crate::parts::answers::answer::Cause;
use crate::parts::fragments::{self, Datagram};
use crate::parts::tables::aged::CROWDED;
use crate::parts::tables::sweep::{Over, Sweep, make_room, rows, take_out};
use crate::router::fragment;
use crate::router::interface::Interface;
use crate::router::links::{Link, Links};
use crate::router::neighbours::SWEEP_EVERY;

/// A fragment for the router; the others of its datagram have not all arrived.
pub(in crate::router) const WAITS: Reason = Reason("waits_for_pieces");
/// A duplicate fragment.
const AGAIN: Reason = Reason("piece_again");
/// The fragment contradicts another one of its datagram, or an earlier one did; the datagram cannot be completed.
const OVERLAP: Reason = Reason("pieces_overlap");
/// There is no room for the fragment, or there was none for an earlier one of its datagram.
const NO_ROOM: Reason = Reason("no_room_for_pieces");

/// A fragment has waited, and its datagram was never completed.
const IN_VAIN: Reason = Reason("piece_waited_in_vain");

/// The schedule of the sweep, and the most datagrams that one ends.
const SWEEP: Sweep = Sweep { every: SWEEP_EVERY, round: Duration::from_secs(1) };
const SWEPT: u32 = 256;
/// The most datagrams that end to make room for a chunk, and how many are examined at a time.
const ENDED_MAX: u32 = 8;

/// The key of a chunk: its datagram and its number there.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Place {
    datagram: Datagram,
    number: u32,
}

impl Place {
    fn of(datagram: &Datagram, part: &PartOf<'_>) -> Place {
        Place { datagram: *datagram, number: part.number }
    }
}

/// Bytes of a datagram.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Chunk {
    /// A bit for each unit that has arrived.
    come: [u64; 2],
    bytes: [u8; CHUNK],
}

impl Chunk {
    const EMPTY: Chunk = Chunk { come: [0; 2], bytes: [0; CHUNK] };

    fn come(&self) -> u128 {
        u128::from(self.come[1]) << 64 | u128::from(self.come[0])
    }

    fn set_come(&mut self, come: u128) {
        self.come = [come as u64, (come >> 64) as u64];
    }
}

/// The outcome of adding a fragment.
pub enum Outcome {
    /// The fragment itself is dropped for this reason; nothing else happens.
    Ends(Reason),
    /// It was the last one missing. The datagram from its IP header on, without IPv6 headers that preceded the fragment header.
    Whole(Vec<u8>),
    /// A field of the IPv6 packet at this offset is wrong (RFC 8200 section 4.5).
    Wrong(u32),
}

/// A datagram whose fragments have waited in vain.
pub struct Expired {
    port: Port,
    was_going: Port,
    gathered: Gathered,
    /// The first fragment, from its IP header on.
    quoted: Vec<u8>,
}

impl Expired {
    /// The interface by which its fragments arrived.
    pub fn link(&self, links: &Links) -> Link {
        links.at(self.port, self.gathered.vlan)
    }

    /// What an error about it answers, and the bytes that it quotes.
    pub fn cause(&self) -> (Cause<'_>, &[u8]) {
        let link = &self.gathered.head[..self.gathered.link_len.into()];
        let sender = sender(&self.quoted);
        (Cause { port: self.port, was_going: Some(self.was_going), sender, link, is_ethernet: true }, &self.quoted)
    }
}

/// The datagrams being reassembled.
pub struct Reassembly {
    datagrams: Map<Datagram, Gathered>,
    chunks: Map<Place, Chunk>,
    /// Counts of datagrams whose fragments have waited in vain: all of them, and those that had to make room for others.
    in_vain: DistributedVector<u64>,
}

/// The indices of [`Reassembly::in_vain`].
const ALL: u32 = 0;
const CROWDED_OUT: u32 = 1;

impl Reassembly {
    /// Creates room for this many chunks.
    pub fn new(builder: &mut StateBuilder, chunks: u32) -> Result<Reassembly, ConfigError> {
        let of = |error: StateError| ConfigError::state("reassembly_max", &error);
        fragments::room_to_wait("chunks", chunks).map_err(of)?;
        let map = |name: &str| MapConfig { name: name.into(), capacity: chunks, ..MapConfig::default() };
        let in_vain = DistributedVectorConfig { name: "pieces_in_vain".into(), len: 2 };
        Ok(Reassembly {
            datagrams: Map::new(builder, &map("datagrams")).map_err(of)?,
            chunks: Map::new(builder, &map("chunks")).map_err(of)?,
            in_vain: DistributedVector::new(builder, &in_vain, |sum, part| *sum += part).map_err(of)?,
        })
    }

    /// Adds a fragment that arrived by an interface. Datagrams that make room for it or have expired are put into `expired` if
    /// their senders must be told.
    pub fn add(
        &self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        came: &Interface,
        expired: &mut Vec<Expired>,
    ) -> Result<Outcome, Conflict> {
        let (Some(piece), Some(datagram)) = (Piece::read(packet), Datagram::of(packet)) else {
            return Ok(Outcome::Ends(Reason::MALFORMED));
        };
        if let Some(at) = piece.is_wrong() {
            return Ok(if piece.is_v6() { Outcome::Wrong(at) } else { Outcome::Ends(Reason::MALFORMED) });
        }
        // This fragment is a whole datagram, whatever else has arrived under its identification (RFC 6946 section 4).
        if piece.offset == 0 && !piece.more {
            return Ok(Outcome::Whole(whole(piece.header, piece.next, piece.bytes)));
        }
        let mut known = self.datagrams.get(cx, &datagram)?;
        if let Some(old) = known.take_if(|known| is_old(known, cx.now())) {
            // It has expired but has not been swept yet; its bytes do not belong to the new datagram.
            expired.extend(self.give_up(cx, &datagram, old)?);
        }
        let mut gathered = known.unwrap_or_else(|| Gathered::new(cx.now(), came.vlan.unwrap_or(0)));
        if gathered.ended != 0 {
            return Ok(Outcome::Ends(if gathered.ended == FULL { NO_ROOM } else { OVERLAP }));
        }
        let met = match gathered.contradicts(&piece) {
            true => Met::Others,
            false => self.meets(cx, &datagram, &piece)?,
        };
        match met {
            // The same bytes, but another end of the datagram (RFC 5722 section 4).
            Met::Itself if !piece.more && gathered.total != piece.end() as u32 => {
                return self.end(cx, &datagram, gathered, OVERLAPS);
            }
            Met::Itself => return Ok(Outcome::Ends(AGAIN)),
            Met::Others => return self.end(cx, &datagram, gathered, OVERLAPS),
            Met::Nobody => gathered.take_in(&piece, packet),
        }
        if self.datagrams.insert(cx, &datagram, &gathered)? == Inserted::Full
            && !(self.make_room(cx, &datagram, expired)?
                && self.datagrams.insert(cx, &datagram, &gathered)? != Inserted::Full)
        {
            return Ok(Outcome::Ends(NO_ROOM));
        }
        if !self.put_down(cx, (&datagram, &piece), expired)? {
            // This fragment has not waited.
            gathered.pieces -= 1;
            return self.end(cx, &datagram, gathered, FULL);
        }
        if gathered.have != gathered.total {
            return Ok(Outcome::Ends(WAITS));
        }
        let bytes = self.take_out(cx, &datagram, &gathered)?;
        self.datagrams.remove(cx, &datagram)?;
        let (header, bytes) = (gathered.header(), &bytes[..gathered.total as usize]);
        Ok(Outcome::Whole(whole(header, header[NEXT], bytes)))
    }

    /// Determines how much of a fragment has arrived before.
    fn meets(&self, cx: &mut Cx<'_>, datagram: &Datagram, piece: &Piece<'_>) -> Result<Met, Conflict> {
        let (mut any, mut all) = (false, true);
        for part in piece.parts() {
            let chunk = self.chunks.get(cx, &Place::of(datagram, &part))?.unwrap_or(Chunk::EMPTY);
            let same = chunk.bytes[part.at..][..part.bytes.len()] == *part.bytes;
            any |= chunk.come() & part.units() != 0;
            all &= chunk.come() & part.units() == part.units() && same;
        }
        Ok(if !any {
            Met::Nobody
        } else if all {
            Met::Itself
        } else {
            Met::Others
        })
    }

    /// Writes a fragment into its chunks. Returns false if there is no room for one of them.
    fn put_down(
        &self,
        cx: &mut Cx<'_>,
        (datagram, piece): (&Datagram, &Piece<'_>),
        expired: &mut Vec<Expired>,
    ) -> Result<bool, Conflict> {
        for part in piece.parts() {
            let place = Place::of(datagram, &part);
            let mut chunk = self.chunks.get(cx, &place)?.unwrap_or(Chunk::EMPTY);
            chunk.bytes[part.at..][..part.bytes.len()].copy_from_slice(part.bytes);
            chunk.set_come(chunk.come() | part.units());
            let mut tries = ENDED_MAX;
            while self.chunks.insert(cx, &place, &chunk)? == Inserted::Full {
                if tries == 0 || !self.make_room(cx, datagram, expired)? {
                    return Ok(false);
                }
                tries -= 1;
            }
        }
        Ok(true)
    }

    /// Makes room by ending the datagrams that have waited longest, except this one; under load they do not get their full
    /// waiting time. Returns false if all have arrived just now.
    #[cold]
    fn make_room(&self, cx: &mut Cx<'_>, datagram: &Datagram, told: &mut Vec<Expired>) -> Result<bool, Conflict> {
        let (now, size) = (cx.now(), (ENDED_MAX, self.datagrams.capacity()));
        for part in CROWDED {
            let mut old = Old { now, age_ns: LIFETIME_NS / part, but: Some(*datagram), ended: Vec::new() };
            let found = make_room(cx, datagram, size, |cx, among| {
                take_out(cx, &self.datagrams, std::iter::once(among), ENDED_MAX, &mut old)
            })?;
            for (datagram, gathered) in old.ended {
                let expired = self.give_up(cx, &datagram, gathered)?;
                if gathered.ended == 0 {
                    self.in_vain.update(cx, CROWDED_OUT, |count| *count += 1)?;
                }
                told.extend(expired);
            }
            if found {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Removes all chunks of a datagram and returns their bytes, with zeros where none have arrived.
    fn take_out(&self, cx: &mut Cx<'_>, datagram: &Datagram, gathered: &Gathered) -> Result<Vec<u8>, Conflict> {
        let chunks = gathered.reached.div_ceil(CHUNK as u32);
        let mut bytes = Vec::with_capacity(chunks as usize * CHUNK);
        for number in 0..chunks {
            let chunk = self.chunks.remove(cx, &Place { datagram: *datagram, number })?;
            bytes.extend_from_slice(&chunk.unwrap_or(Chunk::EMPTY).bytes);
        }
        Ok(bytes)
    }

    /// Marks a datagram as impossible to complete: its bytes are released, and fragments still to come will be dropped.
    fn end(&self, cx: &mut Cx<'_>, datagram: &Datagram, mut gathered: Gathered, why: u8) -> Result<Outcome, Conflict> {
        self.take_out(cx, datagram, &gathered)?;
        lose_waiting(cx, &gathered);
        (gathered.ended, gathered.reached, gathered.pieces) = (why, 0, 0);
        self.datagrams.insert(cx, datagram, &gathered)?;
        Ok(Outcome::Ends(if why == FULL { NO_ROOM } else { OVERLAP }))
    }

    /// Removes expired datagrams from the part of the table whose turn it is. Returns those whose senders must be told.
    pub fn sweep(&self, cx: &mut Cx<'_>) -> Result<Vec<Expired>, Conflict> {
        let mut old = Old { now: cx.now(), age_ns: LIFETIME_NS, but: None, ended: Vec::new() };
        let piece = SWEEP.piece(cx.now(), self.datagrams.capacity(), Share::ALL);
        take_out(cx, &self.datagrams, piece, SWEPT, &mut old)?;
        let mut expired = Vec::new();
        for (datagram, gathered) in old.ended {
            expired.extend(self.give_up(cx, &datagram, gathered)?);
        }
        Ok(expired)
    }

    /// When the first datagram that waits for further fragments will have expired.
    pub fn due_ns(&self, cx: &mut Cx<'_>) -> Result<Option<u64>, Conflict> {
        let mut since_ns = u64::MAX;
        for row in rows(self.datagrams.capacity()) {
            self.datagrams.glance(cx, row, |_, gathered| {
                if gathered.ended == 0 {
                    since_ns = since_ns.min(gathered.since_ns);
                }
                false
            })?;
        }
        Ok((since_ns < u64::MAX).then(|| since_ns.saturating_add(LIFETIME_NS + 1)))
    }

    /// Gives up a datagram that has been removed from the table: releases its bytes, and returns it if its sender must be told.
    fn give_up(&self, cx: &mut Cx<'_>, datagram: &Datagram, gathered: Gathered) -> Result<Option<Expired>, Conflict> {
        let bytes = self.take_out(cx, datagram, &gathered)?;
        if gathered.ended != 0 {
            return Ok(None);
        }
        self.in_vain.update(cx, ALL, |count| *count += 1)?;
        lose_waiting(cx, &gathered);
        // Without the first fragment no error is sent.
        if gathered.first == 0 {
            return Ok(None);
        }
        let (port, quoted) = (datagram.port(), gathered.first_piece(datagram, &bytes));
        Ok(Some(Expired { port, was_going: cx.opposite(port), gathered, quoted }))
    }

    /// Reports how many datagrams were never completed.
    pub fn report(&self, cx: &mut Cx<'_>, into: &mut Findings) -> Result<(), Conflict> {
        for (which, name) in [(ALL, "pieces_in_vain"), (CROWDED_OUT, "pieces_crowded_out")] {
            let mut sum = 0;
            self.in_vain.visit(cx, which, |count| sum += count)?;
            if sum > 0 {
                into.add(name, sum);
            }
        }
        Ok(())
    }
}

impl Part for Reassembly {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.datagrams.objects(into);
        self.chunks.objects(into);
        into.push(self.in_vain.object());
    }
}

/// Matches datagrams whose fragments have waited longer than `age_ns`, and collects those that are removed.
struct Old {
    now: u64,
    age_ns: u64,
    but: Option<Datagram>,
    ended: Vec<(Datagram, Gathered)>,
}

impl Over<Datagram, Gathered> for Old {
    fn is_over(&self, datagram: &Datagram, gathered: &Gathered) -> bool {
        let is_old = self.now.saturating_sub(gathered.since_ns) > self.age_ns;
        is_old && self.but.is_none_or(|but| datagram.as_bytes() != but.as_bytes())
    }

    fn ended(&mut self, _: &mut Cx<'_>, datagram: &Datagram, gathered: &Gathered) -> Result<(), Conflict> {
        self.ended.push((*datagram, *gathered));
        Ok(())
    }
}

/// Says that the fragments of a datagram that have arrived are lost.
fn lose_waiting(cx: &mut Cx<'_>, gathered: &Gathered) {
    if gathered.pieces > 0 {
        cx.lose_many(IN_VAIN, gathered.pieces.into());
    }
}

/// What of a fragment had arrived before it.
enum Met {
    Nobody,
    /// All of it, with the same bytes.
    Itself,
    Others,
}

/// Builds a datagram from its header, the protocol of its payload, and the payload.
fn whole(header: &[u8], next: u8, bytes: &[u8]) -> Vec<u8> {
    let mut datagram = Vec::with_capacity(header.len() + bytes.len());
    datagram.extend_from_slice(header);
    if header[0] >> 4 == 4 {
        fragment::rewrite(&mut datagram, bytes.len(), false, 0);
    } else {
        datagram[4..6].copy_from_slice(&(bytes.len() as u16).to_be_bytes());
        datagram[NEXT] = next;
    }
    datagram.extend_from_slice(bytes);
    datagram
}

/// The source address of an IP packet.
fn sender(packet: &[u8]) -> braid_nf::packet::IpAddress {
    match Ipv4::parse(packet) {
        Some(ip) if packet[0] >> 4 == 4 => ip.source(),
        _ => Ipv6::parse(packet).map_or_else(Default::default, |ip| ip.source()),
    }
}

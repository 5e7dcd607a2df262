//! Stores waiting packets: their bytes and what is known of each, linked in lists by the code that lets them wait.

use std::sync::Arc;

use braid_nf::packet::Link;
use braid_nf::prelude::*;
use braid_nf::state::{
    AllocatorConfig, Distributed, DistributedConfig, StateBuilder, StateError, StateObject, VectorConfig,
};
use braid_nf::{Came, Findings, Part, Port};

use crate::parts::headers::ecn;

/// The longest frame that can wait, in bytes: a full frame with two tags has 1522. With the header of a state object it fills
/// 24 cache lines.
pub const HELD_MAX: usize = 1528;

/// A waiting packet, without its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Waiting {
    /// When it is due; if that is not known, when it arrived.
    pub due_ns: u64,
    /// What it costs.
    pub cost: u32,
    len: u16,
    /// The port by which it leaves.
    port: Port,
    /// The next packet of its list.
    pub next: Lease,
    /// The packet of the same address that waits behind it for the link (`link.rs`).
    pub behind: Lease,
    /// Whether there is a next packet.
    pub has_next: u16,
    /// Whether one of the same address waits behind it.
    pub has_behind: u16,
    /// The port by which it arrived, its link type, and whether a capture may have cut it.
    came_by: Port,
    link: u8,
    may_be_cut: u8,
    /// When it arrived.
    came_ns: u64,
    /// The offset of its IP header.
    ip: u32,
    /// Its address's queue (`link.rs`), where there is a link.
    pub queue: u32,
}

/// The bytes of a packet.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Bytes([u8; HELD_MAX]);

/// The waiting packets.
#[derive(Debug)]
pub struct Store {
    room: Allocator,
    bytes: Vector<Bytes>,
    packets: Vector<Waiting>,
    /// Packets that wait longer are marked, if possible.
    mark_ns: Option<u64>,
    marked: Distributed<u64>,
}

impl Store {
    /// Creates room for this many packets; those that wait longer than `mark_ns` are marked.
    pub fn new(builder: &mut StateBuilder, packets: u32, mark_ns: Option<u64>) -> Result<Store, StateError> {
        let named = |name: &str, len| VectorConfig { name: name.into(), len };
        let room = AllocatorConfig { name: "room".into(), resources: packets, ..AllocatorConfig::default() };
        let marked = DistributedConfig { name: "congestion_marked".into(), staleness_ns: 0 };
        Ok(Store {
            mark_ns,
            marked: Distributed::new(builder, &marked, 0)?,
            room: Allocator::new(builder, &room)?,
            bytes: Vector::new(builder, &named("bytes", packets), Bytes([0; HELD_MAX]))?,
            packets: Vector::new(builder, &named("packets", packets), Waiting::default())?,
        })
    }

    /// The most packets that can wait.
    pub fn room(&self) -> u32 {
        self.room.resources()
    }

    /// Stores a packet of at most [`HELD_MAX`] bytes, and links it behind `last` if that is given. Returns `None` if there is
    /// no room.
    pub fn put(
        &self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        (cost, due_ns, queue): (u32, u64, u32),
        last: Option<Lease>,
    ) -> Result<Option<Lease>, Conflict> {
        let Some(lease) = self.room.allocate(cx)? else { return Ok(None) };
        let mut bytes = Bytes([0; HELD_MAX]);
        let frame = packet.bytes();
        bytes.0[..frame.len()].copy_from_slice(frame);
        self.bytes.set(cx, lease.index, bytes)?;
        let (port, came_by, link) = (cx.leaves_by(), packet.port(), packet.link() as u8);
        let (len, ip, came_ns) = (frame.len() as u16, packet.record().l3.into(), cx.now());
        let may_be_cut = u8::from(!packet.is_truncated());
        let waiting =
            Waiting { due_ns, cost, len, port, came_by, link, may_be_cut, came_ns, ip, queue, ..Waiting::default() };
        self.packets.set(cx, lease.index, waiting)?;
        if let Some(last) = last {
            self.link(cx, last, lease)?;
        }
        Ok(Some(lease))
    }

    /// Links a packet behind the last of a list.
    pub fn link(&self, cx: &mut Cx<'_>, last: Lease, lease: Lease) -> Result<(), Conflict> {
        self.packets.update(cx, last.index, |last| (last.next, last.has_next) = (lease, 1)).map(drop)
    }

    /// Lets a packet wait behind the last of its address.
    pub fn follow(&self, cx: &mut Cx<'_>, last: Lease, lease: Lease) -> Result<(), Conflict> {
        self.packets.update(cx, last.index, |last| (last.behind, last.has_behind) = (lease, 1)).map(drop)
    }

    /// Says when a packet is due.
    pub fn set_due(&self, cx: &mut Cx<'_>, lease: Lease, due_ns: u64) -> Result<(), Conflict> {
        self.packets.update(cx, lease.index, |packet| packet.due_ns = due_ns).map(drop)
    }

    /// What is known of a packet.
    pub fn get(&self, cx: &mut Cx<'_>, lease: Lease) -> Result<Waiting, Conflict> {
        Ok(self.packets.get(cx, lease.index)?.unwrap_or_default())
    }

    /// Sends a packet and frees its room.
    pub fn send(&self, cx: &mut Cx<'_>, lease: Lease, packet: &Waiting) -> Result<(), Conflict> {
        if let Some(Bytes(mut bytes)) = self.bytes.get(cx, lease.index)? {
            let frame = &mut bytes[..usize::from(packet.len)];
            let is_late = self.mark_ns.is_some_and(|most| cx.now().saturating_sub(packet.came_ns) > most);
            if is_late && ecn::mark(frame, packet.ip as usize) {
                self.marked.update(cx, |count| *count += 1)?;
            }
            let (link, may_be_cut) = (Link::from_bits(packet.link), packet.may_be_cut != 0);
            let came = Came { by: packet.came_by, link, may_be_cut };
            cx.emit_held(came, packet.port, frame);
        }
        self.room.free(cx, lease).map(drop)
    }

    /// Reports how many packets wait, and how many have been marked.
    pub fn report(&self, cx: &mut Cx<'_>, into: &mut Findings) -> Result<(), Conflict> {
        into.add("packets_waiting", self.room.leased() as u64);
        if self.mark_ns.is_some() {
            into.add("congestion_marked", self.marked.read(cx, |sum, part| *sum += part)?);
        }
        Ok(())
    }
}

impl Part for Store {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.room.objects(into);
        self.bytes.objects(into);
        self.packets.objects(into);
        self.marked.objects(into);
    }
}

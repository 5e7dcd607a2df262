//! Where packets lie that wait: bytes and what is known of each, linked in lists by those who let them wait.

use std::sync::Arc;

use braid_nf::packet::Link;
use braid_nf::prelude::*;
use braid_nf::state::{AllocatorConfig, StateBuilder, StateError, StateObject, VectorConfig};
use braid_nf::{Came, Part, Port};

/// The longest frame that can wait.
pub const HELD_MAX: usize = 1520;

/// A packet that waits, but for its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Waiting {
    /// When it is due; when it came, if that is not known.
    pub due_ns: u64,
    /// What it costs.
    pub cost: u32,
    len: u16,
    /// By which port it leaves.
    port: Port,
    /// The one behind it in its list.
    pub next: Lease,
    /// Whether there is one.
    pub has_next: u32,
    /// By which port it came, and as what kind of frame.
    came_by: Port,
    link: u16,
}

/// Bytes of a packet.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Bytes([u8; HELD_MAX]);

/// The packets.
#[derive(Debug)]
pub struct Store {
    room: Allocator,
    bytes: Vector<Bytes>,
    packets: Vector<Waiting>,
}

impl Store {
    /// Room for so many.
    pub fn new(builder: &mut StateBuilder, packets: u32) -> Result<Store, StateError> {
        let named = |name: &str, len| VectorConfig { name: name.into(), len };
        let room = AllocatorConfig { name: "room".into(), resources: packets, ..AllocatorConfig::default() };
        Ok(Store {
            room: Allocator::new(builder, &room)?,
            bytes: Vector::new(builder, &named("bytes", packets), Bytes([0; HELD_MAX]))?,
            packets: Vector::new(builder, &named("packets", packets), Waiting::default())?,
        })
    }

    /// Most packets that can wait.
    pub fn room(&self) -> u32 {
        self.room.resources()
    }

    /// Puts a packet of at most [`HELD_MAX`] bytes down, behind `last` if there is one; none if there is no room.
    pub fn put(
        &self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        (cost, due_ns): (u32, u64),
        last: Option<Lease>,
    ) -> Result<Option<Lease>, Conflict> {
        let Some(lease) = self.room.allocate(cx)? else { return Ok(None) };
        let mut bytes = Bytes([0; HELD_MAX]);
        let frame = packet.bytes();
        bytes.0[..frame.len()].copy_from_slice(frame);
        self.bytes.set(cx, lease.index, bytes)?;
        let (port, came_by, link) = (cx.leaves_by(), packet.port(), packet.link() as u16);
        let waiting = Waiting { due_ns, cost, len: frame.len() as u16, port, came_by, link, ..Waiting::default() };
        self.packets.set(cx, lease.index, waiting)?;
        if let Some(last) = last {
            self.packets.update(cx, last.index, |last| (last.next, last.has_next) = (lease, 1))?;
        }
        Ok(Some(lease))
    }

    /// What is known of a packet.
    pub fn get(&self, cx: &mut Cx<'_>, lease: Lease) -> Result<Waiting, Conflict> {
        Ok(self.packets.get(cx, lease.index)?.unwrap_or_default())
    }

    /// Sends a packet on and gives its room back.
    pub fn send(&self, cx: &mut Cx<'_>, lease: Lease, packet: &Waiting) -> Result<(), Conflict> {
        if let Some(bytes) = self.bytes.get(cx, lease.index)? {
            let came = Came { by: packet.came_by, link: Link::from_bits(packet.link as u8) };
            cx.emit_held(came, packet.port, &bytes.0[..usize::from(packet.len)]);
        }
        self.room.free(cx, lease).map(drop)
    }
}

impl Part for Store {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.room.objects(into);
        self.bytes.objects(into);
        self.packets.objects(into);
    }
}

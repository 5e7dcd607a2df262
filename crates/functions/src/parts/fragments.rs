//! Fragments that follow their first piece.
//!
//! Only the first piece of a datagram has ports, so only for it can a function decide. It remembers the decision here, and
//! the later pieces follow it, in whatever order they come after it. A piece that comes before the first one is dropped by
//! the functions (`fragment_before_first`): holding it back would need its bytes, which a flood would fill memory with.

use std::sync::Arc;

use braid_nf::packet::IpAddress;
use braid_nf::state::{StateBuilder, StateError, StateObject};
use braid_nf::{Conflict, Cx, Packet, Part, Port, Reason};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::aged::{Aged, Stamp};

/// A later fragment came before the first one, or the first one was dropped.
pub const BEFORE_FIRST: Reason = Reason("fragment_before_first");
/// No room to remember a first fragment.
pub const TABLE_FULL: Reason = Reason("fragment_table_full");

/// What joins the pieces of a datagram: addresses, protocol and identification (RFC 791, RFC 8200 section 4.5), and the port
/// by which they come.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Datagram {
    source: IpAddress,
    destination: IpAddress,
    identification: u32,
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
        Some(Datagram { source, destination, identification, port: packet.port(), protocol, zero: 0 })
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
    zero: [u8; 6],
}

impl Fate {
    /// Leaves by `port` with these addresses, none meaning its own.
    pub fn new(port: Port, source: Option<IpAddress>, destination: Option<IpAddress>) -> Fate {
        let (source, destination) = (source.unwrap_or_default(), destination.unwrap_or_default());
        Fate { source, destination, port, ..Fate::default() }
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

/// First pieces and what became of them.
pub struct Fragments {
    table: Aged<Datagram, Fate>,
}

impl Fragments {
    /// Remembers up to `capacity` datagrams for `lifetime_ns` each.
    pub fn new(builder: &mut StateBuilder, capacity: u32, lifetime_ns: u64) -> Result<Fragments, StateError> {
        Ok(Fragments { table: Aged::new(builder, "fragments", capacity, lifetime_ns)? })
    }

    /// Remembers the fate of a first piece, given as it came. False if there is no room.
    pub fn remember(&self, cx: &mut Cx<'_>, packet: &Packet<'_>, fate: Fate) -> Result<bool, Conflict> {
        let Some(datagram) = Datagram::of(packet) else { return Ok(false) };
        let seen_ns = cx.now();
        self.table.insert(cx, &datagram, &Fate { seen_ns, ..fate })
    }

    /// The fate of a later piece, given as it came; none if its first piece has not been seen.
    pub fn follow(&self, cx: &mut Cx<'_>, packet: &Packet<'_>) -> Result<Option<Fate>, Conflict> {
        match Datagram::of(packet) {
            Some(datagram) => self.table.get(cx, &datagram),
            None => Ok(None),
        }
    }

    /// Takes out what is too old; to be called every [`SWEEP_EVERY`](super::aged::SWEEP_EVERY).
    pub fn sweep(&self, cx: &mut Cx<'_>) -> Result<(), Conflict> {
        self.table.sweep(cx)
    }
}

impl Part for Fragments {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.table.objects(into);
    }
}

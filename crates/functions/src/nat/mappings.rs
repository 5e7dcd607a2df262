//! Mappings between inside endpoints and external ports: the state that both directions share.
//!
//! An external endpoint is a number: `(external address, port)` of each protocol has one, and an [`Allocator`] per protocol
//! leases them. Three objects belong together and change in one transaction: the lease, the map from inside endpoint to
//! lease, and the owner's record at the lease's number. When a lease ends, the other two go with it, so nothing dangles.
//!
//! Leases outlive packet sets: one lives for the longest timeout of its protocol plus the time for which a set may leave it
//! unrefreshed. Only TCP sets count themselves in the owner's record, since their timeouts differ by phase: when the last one
//! is gone, the mapping ends without waiting for its lease.

use std::sync::Arc;

use braid_nf::packet::IpAddress;
use braid_nf::packet::parse::protocol;
use braid_nf::state::{
    Allocator, AllocatorConfig, Inserted, Lease, Map, MapConfig, StateBuilder, StateObject, Tx, Vector, VectorConfig,
};
use braid_nf::{Conflict, Cx, Part, Port, Reason};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::config::{Config, Settings};
use crate::config::ConfigError;
use crate::parts::SECOND;

/// Every external port that the packet's protocol may have is in use.
pub const NO_FREE_PORT: Reason = Reason("no_free_port");
/// There are as many mappings as there may be.
pub const MAPPING_TABLE_FULL: Reason = Reason("mapping_table_full");

/// Protocols that are translated; for ICMP the identifier of queries takes the place of a port.
pub(super) const PROTOCOLS: [u8; 3] = [protocol::TCP, protocol::UDP, protocol::ICMP];
/// Old leases that are looked for when no port is free.
const SEARCH: u32 = 1024;

/// Address, port and protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Endpoint {
    pub(super) address: [u8; 4],
    pub(super) port: u16,
    pub(super) protocol: u8,
    zero: u8,
}

impl Endpoint {
    pub(super) fn new(address: [u8; 4], port: u16, protocol: u8) -> Endpoint {
        Endpoint { address, port, protocol, zero: 0 }
    }

    pub(super) fn ip(&self) -> IpAddress {
        IpAddress::from_v4(self.address)
    }
}

/// Who holds an external endpoint. All zero if nobody does.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Owner {
    inside: Endpoint,
    generation: u32,
    /// Live TCP sets that use the mapping.
    sets: u32,
    /// Port of the plan by which the owner sent last.
    port: Port,
    zero: [u8; 6],
}

/// A mapping that holds now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mapping {
    pub(super) inside: Endpoint,
    pub(super) external: Endpoint,
    pub(super) lease: Lease,
    /// Port of the plan behind which the inside endpoint is.
    pub(super) port: Port,
}

/// All mappings.
pub(super) struct Mappings {
    outward: Map<Endpoint, Lease>,
    owners: Vector<Owner>,
    leases: [Allocator; 3],
    external: Box<[[u8; 4]]>,
    first_port: u16,
    /// Ports of one address.
    ports: u32,
}

impl Mappings {
    pub(super) fn new(
        builder: &mut StateBuilder,
        config: &Config,
        settings: &Settings,
    ) -> Result<Mappings, ConfigError> {
        let ports = u32::from(config.last_port - config.first_port) + 1;
        let resources = ports.saturating_mul(settings.external.len() as u32);
        let capacity = config.mappings_max.min(resources.saturating_mul(3));
        let mut leases = |name: &str, number| {
            let validity = settings.timeouts.longest(number).saturating_add(settings.refresh_ns + SECOND);
            let config =
                AllocatorConfig { name: name.into(), resources, validity_ns: Some(validity), ..Default::default() };
            Allocator::new(builder, &config).map_err(|error| ConfigError::state("external", &error))
        };
        let leases = [
            leases("tcp_ports", protocol::TCP)?,
            leases("udp_ports", protocol::UDP)?,
            leases("icmp_ids", protocol::ICMP)?,
        ];
        let mapped = MapConfig { name: "mappings".into(), capacity, ..MapConfig::default() };
        let owners = VectorConfig { name: "owners".into(), len: resources.saturating_mul(3) };
        Ok(Mappings {
            outward: Map::new(builder, &mapped).map_err(|error| ConfigError::state("mappings_max", &error))?,
            owners: Vector::new(builder, &owners, Owner::default())
                .map_err(|error| ConfigError::state("external", &error))?,
            leases,
            external: settings.external.clone(),
            first_port: config.first_port,
            ports,
        })
    }

    /// The mapping of an inside endpoint, used now by a packet that came by `port`.
    pub(super) fn outward(&self, cx: &mut Cx<'_>, inside: Endpoint, port: Port) -> Result<Option<Mapping>, Conflict> {
        let Some(lease) = self.outward.get(cx, &inside)? else { return Ok(None) };
        if !self.refresh(cx, inside.protocol, lease)? {
            return Ok(None);
        }
        let at = self.owner(inside.protocol, lease.index);
        if self.owners.get(cx, at)?.is_some_and(|owner| owner.port != port) {
            self.owners.update(cx, at, |owner| owner.port = port)?;
        }
        Ok(Some(Mapping { inside, external: self.external(inside.protocol, lease.index), lease, port }))
    }

    /// The mapping behind an external endpoint. Does not refresh it.
    pub(super) fn inward(&self, cx: &mut Cx<'_>, external: Endpoint) -> Result<Option<Mapping>, Conflict> {
        let Some(index) = self.number(external) else { return Ok(None) };
        let owner = self.owners.get(cx, self.owner(external.protocol, index))?.unwrap_or_default();
        let Owner { inside, generation, port, .. } = owner;
        let lease = Lease { index, generation };
        Ok((inside.protocol != 0).then_some(Mapping { inside, external, lease, port }))
    }

    /// The external endpoint of an inside one, if it has any. Does not refresh it.
    pub(super) fn external_of(&self, cx: &mut Cx<'_>, inside: Endpoint) -> Result<Option<Endpoint>, Conflict> {
        Ok(self.outward.get(cx, &inside)?.map(|lease| self.external(inside.protocol, lease.index)))
    }

    /// A new mapping for an inside endpoint that has none.
    pub(super) fn create(
        &self,
        cx: &mut Cx<'_>,
        inside: Endpoint,
        port: Port,
    ) -> Result<Result<Mapping, Reason>, Conflict> {
        let Some(lease) = self.allocate(cx, inside)? else { return Ok(Err(NO_FREE_PORT)) };
        if self.outward.insert(cx, &inside, &lease)? == Inserted::Full {
            self.leases[slot(inside.protocol)].free(cx, lease)?;
            return Ok(Err(MAPPING_TABLE_FULL));
        }
        let owner = Owner { inside, generation: lease.generation, port, ..Owner::default() };
        self.owners.set(cx, self.owner(inside.protocol, lease.index), owner)?;
        Ok(Ok(Mapping { inside, external: self.external(inside.protocol, lease.index), lease, port }))
    }

    /// The endpoint's own port number on its own external address if that is free, else any port of that address (pooling is
    /// paired, RFC 4787 section 4.1), else any at all, else one whose lease turns out to be too old.
    fn allocate(&self, cx: &mut Cx<'_>, inside: Endpoint) -> Result<Option<Lease>, Conflict> {
        let leases = &self.leases[slot(inside.protocol)];
        let pool = self.pool(inside.address) * self.ports;
        let own = inside.port.checked_sub(self.first_port).map(|offset| pool + u32::from(offset));
        let near = pool + scaled(u64::from(inside.port) << 32 | number(inside.address), self.ports);
        if let Some(lease) = leases.allocate_near(cx, pool..pool + self.ports, own, near)? {
            return Ok(Some(lease));
        }
        if let Some(lease) = leases.allocate(cx)? {
            return Ok(Some(lease));
        }
        if self.expire(cx, slot(inside.protocol), SEARCH)? == 0 {
            return Ok(None);
        }
        leases.allocate(cx)
    }

    /// Which external address an inside address uses: always the same one.
    fn pool(&self, address: [u8; 4]) -> u32 {
        scaled(number(address), self.external.len() as u32)
    }

    /// Keeps a lease for its full time again. False if it has ended.
    #[inline]
    pub(super) fn refresh(&self, cx: &mut Cx<'_>, number: u8, lease: Lease) -> Result<bool, Conflict> {
        self.leases[slot(number)].refresh(cx, lease)
    }

    /// A TCP set uses the mapping from now on.
    pub(super) fn attach(&self, cx: &mut Cx<'_>, number: u8, lease: Lease) -> Result<(), Conflict> {
        if number == protocol::TCP {
            self.owners.update(cx, self.owner(number, lease.index), |owner| owner.sets += 1)?;
        }
        Ok(())
    }

    /// A TCP set is gone; with the last one goes the mapping.
    pub(super) fn detach(&self, cx: &mut Cx<'_>, number: u8, lease: Lease) -> Result<(), Conflict> {
        let leases = &self.leases[slot(number)];
        if number != protocol::TCP || !leases.is_live(cx, lease)? {
            return Ok(());
        }
        let left = self.owners.update(cx, self.owner(number, lease.index), |owner| {
            owner.sets = owner.sets.saturating_sub(1);
            owner.sets
        })?;
        if left == Some(0) && leases.free(cx, lease)? {
            self.forget(cx, slot(number), lease)?;
        }
        Ok(())
    }

    /// Ends mappings whose leases are too old, among the next `budget` external ports of a protocol. Returns how many.
    pub(super) fn expire(&self, cx: &mut Cx<'_>, slot: usize, budget: u32) -> Result<u32, Conflict> {
        let Some(leases) = self.leases.get(slot) else { return Ok(0) };
        let now = cx.now();
        leases.expire(cx, now, budget, |tx, lease| self.forget(tx, slot, lease))
    }

    /// External ports of one protocol that a tick looks at: all of them in a few seconds.
    pub(super) fn sweep_budget(&self) -> u32 {
        (self.leases[0].resources() / 1000).clamp(256, 4096)
    }

    /// The other two objects follow a lease that has ended.
    fn forget(&self, tx: &mut Tx, slot: usize, lease: Lease) -> Result<(), Conflict> {
        let at = self.owner(PROTOCOLS[slot], lease.index);
        if let Some(owner) = self.owners.get(tx, at)? {
            self.outward.remove(tx, &owner.inside)?;
            self.owners.set(tx, at, Owner::default())?;
        }
        Ok(())
    }

    fn owner(&self, number: u8, index: u32) -> u32 {
        slot(number) as u32 * self.leases[0].resources() + index
    }

    fn external(&self, number: u8, index: u32) -> Endpoint {
        let address = self.external.get((index / self.ports) as usize).copied().unwrap_or_default();
        Endpoint::new(address, self.first_port + (index % self.ports) as u16, number)
    }

    fn number(&self, external: Endpoint) -> Option<u32> {
        let address = self.external.iter().position(|address| *address == external.address)? as u32;
        let offset = u32::from(external.port.checked_sub(self.first_port)?);
        (offset < self.ports).then_some(address * self.ports + offset)
    }
}

fn number(address: [u8; 4]) -> u64 {
    u32::from_be_bytes(address).into()
}

/// A number below `end` that depends on all of `from`.
fn scaled(from: u64, end: u32) -> u32 {
    let mixed = (from ^ from >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    ((mixed * u64::from(end)) >> 32) as u32
}

/// The place of a protocol in [`PROTOCOLS`].
#[inline(always)]
fn slot(number: u8) -> usize {
    match number {
        protocol::TCP => 0,
        protocol::UDP => 1,
        _ => 2,
    }
}

impl Part for Mappings {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.outward.objects(into);
        self.owners.objects(into);
        self.leases.objects(into);
    }
}

//! Which external ports an inside host may have, and how many it has.
//!
//! By default all hosts that an external address falls to share its ports. With *blocks* a host gets whole blocks of ports, so
//! that one line of a log tells who had them for hours; with *deterministic* blocks which ports are a host's follows from its
//! address and nothing needs to be logged (RFC 7422). A host keeps one external address (pooling is paired).

use std::ops::RangeInclusive;
use std::sync::Arc;

use braid_nf::packet::IpAddress;
use braid_nf::prelude::*;
use braid_nf::state::{Inserted, MapConfig, StateError, StateObject, Tx};
use braid_nf::{Findings, Part, Reason};

use super::block_log::{BlockLog, Change};
use super::claim::{Claim, is_system, of_class};
use super::config::{Allocation, Pooling};
use super::endpoint::{Inside, scaled, slot};
use super::networks::{self, Network};
use super::pool::Pool;
use super::ports::{Bits, Ports};
use crate::config::ConfigError;
use crate::parts::Prefix;

/// Every external port that the host may have for this protocol is in use.
pub const NO_FREE_PORT: Reason = Reason("no_free_port");
/// The host has as many external ports as it may have.
pub const PORT_QUOTA: Reason = Reason("port_quota");
/// There are as many mappings, or hosts with mappings, as there may be.
pub const MAPPING_TABLE_FULL: Reason = Reason("mapping_table_full");

/// Most blocks of a host.
pub(super) const BLOCKS_MAX: usize = 4;
/// Other addresses that are tried with arbitrary pooling.
const OTHERS: u32 = 8;

/// What is known of a host that has mappings.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Host {
    mappings: u32,
    /// Mappings in each of its blocks, of all protocols.
    used: [u32; BLOCKS_MAX],
    /// Its blocks: numbers on its external address, plus 1; 0 if there is none.
    blocks: [u32; BLOCKS_MAX],
}

/// A host, or subscriber: an IPv4 address, or the prefix that an IPv6 subscriber has, in its network.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Name {
    address: IpAddress,
    network: u16,
}

impl std::fmt::Debug for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.network {
            0 => write!(f, "{}", self.address),
            network => write!(f, "{} of network {network}", self.address),
        }
    }
}

impl Name {
    /// As people read it.
    pub(super) fn words(&self, networks: &[Network]) -> String {
        let at = networks.binary_search_by_key(&self.network, |known| known.number).ok();
        match at.map(|at| networks[at].name.as_str()) {
            None | Some("") => self.address.to_string(),
            Some(network) => format!("{} of {network}", self.address),
        }
    }

    /// A number in which all of it counts; of an IPv4 address in the only network, the address.
    #[inline(always)]
    fn number(&self) -> u64 {
        let network = u64::from(self.network) << 32;
        let octets = u128::from_be_bytes(self.address.octets());
        match self.address.is_v4() {
            true => u64::from(octets as u32) ^ network,
            false => (octets >> 64) as u64 ^ (octets as u64).rotate_left(17) ^ network,
        }
    }
}

/// An external port that is free: number of its address, and port.
pub(super) type Place = (u32, u16);

/// All hosts.
pub(super) struct Hosts {
    allocation: Allocation,
    pooling: Pooling,
    quota: u32,
    first: u16,
    last: u16,
    addresses: u32,
    inside: Box<[Prefix]>,
    /// Addresses of all inside ranges together.
    inside_len: u64,
    networks: networks::List,
    subscriber_bits: u8,
    /// Only if something has to be remembered of hosts.
    table: Option<Map<Name, Host>>,
    /// Which blocks are taken, a row for each address.
    blocks: Option<Bits>,
    /// Who had them.
    log: Option<BlockLog>,
}

impl Hosts {
    pub(super) fn new(builder: &mut StateBuilder, pool: &Pool) -> Result<Hosts, ConfigError> {
        let addresses = pool.external.len() as u32;
        let state = |key: &'static str| move |error: StateError| ConfigError::state(key, &error);
        let blocks = match pool.allocation {
            Allocation::Blocks { size, .. } => {
                let len = pool.ports() / u32::from(size);
                Some(Bits::new(builder, "blocks", addresses, len).map_err(state("external"))?)
            }
            _ => None,
        };
        let map = MapConfig { name: "hosts".into(), capacity: pool.mappings_max, ..MapConfig::default() };
        let remembers = blocks.is_some() || pool.quota > 0;
        let table = remembers.then(|| Map::new(builder, &map)).transpose().map_err(state("mappings_max"))?;
        let log = match pool.allocation {
            Allocation::Blocks { size, .. } if pool.block_log_max > 0 || pool.block_syslog.is_some() => {
                let networks = pool.networks.clone();
                let log = BlockLog::new(builder, pool.block_log_max, pool.block_syslog, (size, networks));
                Some(log.map_err(state("block_log_max"))?)
            }
            _ => None,
        };
        Ok(Hosts {
            allocation: pool.allocation,
            pooling: pool.pooling,
            quota: pool.quota,
            first: pool.first_port,
            last: pool.last_port,
            addresses,
            inside_len: pool.inside.iter().filter_map(Prefix::len_v4).sum(),
            inside: pool.inside.clone(),
            networks: pool.networks.clone(),
            subscriber_bits: pool.subscriber_bits,
            table,
            blocks,
            log,
        })
    }

    /// To whom an inside endpoint belongs.
    fn name(&self, inside: Inside) -> Name {
        let whole = inside.address.is_v4();
        let address = if whole { inside.address } else { inside.address.prefix(self.subscriber_bits) };
        Name { address, network: inside.network }
    }

    /// An inside endpoint that wants a port.
    #[inline(always)]
    pub(super) fn claim(&self, inside: Inside) -> Claim {
        let number = self.name(inside).number();
        let home = match self.allocation {
            Allocation::Deterministic { size } => self.deterministic(inside, size).map_or(0, |(address, _)| address),
            _ => scaled(number, self.addresses),
        };
        Claim { inside, number, home, is_own_taken: false }
    }

    /// A free port for a new mapping; with blocks, perhaps in a new block.
    pub(super) fn choose(&self, tx: &mut Tx, ports: &Ports, claim: &Claim) -> Result<Result<Place, Reason>, Conflict> {
        let inside = claim.inside;
        let host = match &self.table {
            Some(table) => table.get(tx, &self.name(inside))?.unwrap_or_default(),
            None => Host::default(),
        };
        if self.quota > 0 && host.mappings >= self.quota {
            return Ok(Err(PORT_QUOTA));
        }
        let place = match self.allocation {
            Allocation::Shared => self.choose_shared(tx, ports, claim)?,
            Allocation::Blocks { size, most } => self.choose_in_blocks(tx, ports, claim, &host, (size, most))?,
            Allocation::Deterministic { size } => match self.deterministic(inside, size) {
                Some((address, first)) => {
                    let within = first..=first + (size - 1);
                    self.find(tx, ports, claim, address, within)?.map(|port| (address, port))
                }
                None => None,
            },
        };
        Ok(place.ok_or(NO_FREE_PORT))
    }

    /// Asks for what [`choose`](Self::choose) will mostly look at.
    #[inline(always)]
    pub(super) fn prefetch(&self, ports: &Ports, inside: Inside) {
        let (claim, number) = (self.claim(inside), slot(inside.protocol));
        if (self.first..=self.last).contains(&inside.port) {
            ports.prefetch(number, claim.home, inside.port);
        }
        if self.allocation == Allocation::Shared
            && let Some(near) = of_class(&(self.first..=self.last), is_system(inside.port))
        {
            ports.prefetch(number, claim.home, claim.begin(&near));
        }
    }

    #[inline(always)]
    fn choose_shared(&self, tx: &mut Tx, ports: &Ports, claim: &Claim) -> Result<Option<Place>, Conflict> {
        let whole = self.first..=self.last;
        if let Some(port) = self.find(tx, ports, claim, claim.home, whole.clone())? {
            return Ok(Some((claim.home, port)));
        }
        let others = if self.pooling == Pooling::Paired { 0 } else { OTHERS.min(self.addresses - 1) };
        for n in 1..=others {
            let address = (claim.home + n) % self.addresses;
            if let Some(port) = self.find(tx, ports, claim, address, whole.clone())? {
                return Ok(Some((address, port)));
            }
        }
        Ok(None)
    }

    /// System ports for system ports, others for others if that can be (RFC 4787 REQ-3 a and b).
    #[inline(always)]
    fn find(
        &self,
        tx: &mut Tx,
        ports: &Ports,
        claim: &Claim,
        address: u32,
        within: RangeInclusive<u16>,
    ) -> Result<Option<u16>, Conflict> {
        let (number, wanted) = (slot(claim.inside.protocol), claim.inside.port);
        let may_be_free = !claim.is_own_taken || address != claim.home;
        if may_be_free && within.contains(&wanted) && ports.owner(tx, number, address, wanted)?.is_none() {
            return Ok(Some(wanted));
        }
        let class = is_system(wanted);
        let found = self.find_in_class(tx, ports, claim, address, (&within, class))?;
        if found.is_some() {
            return Ok(found);
        }
        self.find_in_class(tx, ports, claim, address, (&within, !class))
    }

    #[inline(always)]
    fn find_in_class(
        &self,
        tx: &mut Tx,
        ports: &Ports,
        claim: &Claim,
        address: u32,
        (within, is_system): (&RangeInclusive<u16>, bool),
    ) -> Result<Option<u16>, Conflict> {
        match of_class(within, is_system) {
            Some(within) => {
                let from = claim.begin(&within);
                ports.find(tx, slot(claim.inside.protocol), address, within, from)
            }
            None => Ok(None),
        }
    }

    fn choose_in_blocks(
        &self,
        tx: &mut Tx,
        ports: &Ports,
        claim: &Claim,
        host: &Host,
        (size, most): (u16, usize),
    ) -> Result<Option<Place>, Conflict> {
        let home = claim.home;
        for block in host.blocks[..most].iter().filter_map(|block| block.checked_sub(1)) {
            if let Some(port) = self.find(tx, ports, claim, home, self.block(block, size))? {
                return Ok(Some((home, port)));
            }
        }
        let Some(blocks) = self.blocks.as_ref().filter(|_| host.blocks[..most].contains(&0)) else { return Ok(None) };
        let count = (u32::from(self.last - self.first) + 1) / u32::from(size);
        match blocks.find_zero(tx, home, 0..count, scaled(claim.number, count), u64::MAX)? {
            Some(block) => Ok(self.find(tx, ports, claim, home, self.block(block, size))?.map(|port| (home, port))),
            None => Ok(None),
        }
    }

    fn block(&self, number: u32, size: u16) -> RangeInclusive<u16> {
        let first = self.first + number as u16 * size;
        first..=first + (size - 1)
    }

    /// Number of the external address and first port of the block that a host always has.
    fn deterministic(&self, Inside { address, network, .. }: Inside, size: u16) -> Option<Place> {
        let network = self.networks.binary_search_by_key(&network, |known| known.number).ok()?;
        let mut before = network as u64 * self.inside_len;
        for range in &self.inside {
            if let Some(v4) = address.v4().filter(|_| range.contains(address)) {
                let offset = u32::from_be_bytes(v4) - range.first().v4().map_or(0, u32::from_be_bytes);
                let (host, per_address) = (before + u64::from(offset), self.per_address(size));
                let first = self.first + (host % per_address) as u16 * size;
                return Some(((host / per_address) as u32, first));
            }
            before += range.len_v4().unwrap_or(0);
        }
        None
    }

    fn per_address(&self, size: u16) -> u64 {
        (u64::from(self.last - self.first) + 1) / u64::from(size)
    }

    /// A host got an external port. None if no more hosts can be remembered; else the block that it got with it, if it did.
    #[inline(always)]
    pub(super) fn enter(&self, tx: &mut Tx, inside: Inside, place: Place) -> Result<Option<Option<Change>>, Conflict> {
        match &self.table {
            Some(table) => self.enter_in(table, tx, inside, place),
            None => Ok(Some(None)),
        }
    }

    fn enter_in(
        &self,
        table: &Map<Name, Host>,
        tx: &mut Tx,
        inside: Inside,
        (address, port): Place,
    ) -> Result<Option<Option<Change>>, Conflict> {
        let name = self.name(inside);
        let mut host = table.get(tx, &name)?.unwrap_or_default();
        let mut change = None;
        host.mappings += 1;
        if let (Allocation::Blocks { size, .. }, Some(blocks)) = (self.allocation, &self.blocks) {
            let block = u32::from((port - self.first) / size);
            let known = host.blocks.iter().position(|known| *known == block + 1);
            let at = known.or_else(|| host.blocks.iter().position(|known| *known == 0)).unwrap_or(0);
            if known.is_none() {
                host.blocks[at] = block + 1;
                blocks.set(tx, address, block, true)?;
                change = Some(Change { host: name, address, first: self.first + block as u16 * size, assigned: true });
            }
            host.used[at] += 1;
        }
        Ok((table.insert(tx, &name, &host)? != Inserted::Full).then_some(change))
    }

    /// A host no longer has an external port; an empty block is free again, and returned.
    pub(super) fn leave(
        &self,
        tx: &mut Tx,
        inside: Inside,
        (address, port): Place,
    ) -> Result<Option<Change>, Conflict> {
        let Some(table) = &self.table else { return Ok(None) };
        let name = self.name(inside);
        let Some(mut host) = table.get(tx, &name)? else { return Ok(None) };
        let mut change = None;
        host.mappings = host.mappings.saturating_sub(1);
        if let (Allocation::Blocks { size, .. }, Some(blocks)) = (self.allocation, &self.blocks) {
            let block = u32::from((port - self.first) / size);
            if let Some(at) = host.blocks.iter().position(|known| *known == block + 1) {
                host.used[at] = host.used[at].saturating_sub(1);
                if host.used[at] == 0 {
                    host.blocks[at] = 0;
                    blocks.set(tx, address, block, false)?;
                    let first = self.first + block as u16 * size;
                    change = Some(Change { host: name, address, first, assigned: false });
                }
            }
        }
        match host.mappings {
            0 => table.remove(tx, &name).map(drop)?,
            _ => table.insert(tx, &name, &host).map(drop)?,
        }
        Ok(change)
    }

    /// Logs what [`enter`](Self::enter) or [`leave`](Self::leave) changed.
    pub(super) fn note(&self, cx: &mut Cx<'_>, change: &Change, external: &[[u8; 4]]) -> Result<(), Conflict> {
        match &self.log {
            Some(log) => log.note(cx, change, external),
            None => Ok(()),
        }
    }

    /// Who had which block.
    pub(super) fn report(&self, cx: &mut Cx<'_>, into: &mut Findings, external: &[[u8; 4]]) -> Result<(), Conflict> {
        match &self.log {
            Some(log) => log.report(cx, into, external),
            None => Ok(()),
        }
    }
}

impl Part for Hosts {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.table.objects(into);
        self.blocks.objects(into);
        self.log.objects(into);
    }
}

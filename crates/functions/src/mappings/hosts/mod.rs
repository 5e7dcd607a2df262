//! Which external ports an inside host may have, and how many it has.
//!
//! By default all hosts that are assigned to an external address share its ports. With *blocks* a host gets whole blocks
//! of ports, so that one log entry tells who had them for hours. With *deterministic* blocks a host's address determines
//! its ports, and nothing needs to be logged (RFC 7422). A host keeps one external address (pooling is paired).

mod choice;

use std::sync::Arc;

use braid_nf::packet::IpAddress;
use braid_nf::prelude::*;
use braid_nf::state::{Inserted, MapConfig, StateError, StateObject, Tx};
use braid_nf::{Findings, Part, Reason};
use foldhash::HashMap;

use super::block_log::{BlockLog, Change};
use super::config::{Allocation, Pooling};
use super::endpoint::Inside;
use super::fixed::Fixed;
use super::networks::{self, Network};
use super::pool::Pool;
use super::ports::bitmap::Bits;
use super::ports::claim::Claim;
use super::roster::Roster;
use super::table::reclaim::Holder;
use crate::config::ConfigError;
use crate::parts::Prefix;

/// All external ports that the host may have for this protocol are in use.
pub const NO_FREE_PORT: Reason = Reason("no_free_port");
/// The host has as many external ports as it may.
pub const PORT_QUOTA: Reason = Reason("port_quota");
/// There are as many mappings, or hosts with mappings, as there may be.
pub const MAPPING_TABLE_FULL: Reason = Reason("mapping_table_full");

/// The maximum number of blocks of a host.
pub(crate) const BLOCKS_MAX: usize = 4;
/// The state of a host that has mappings.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Host {
    mappings: u32,
    /// The number of mappings in each of its pieces, over all protocols.
    used: [u32; BLOCKS_MAX],
    /// Its [`Piece`]s; 0: none.
    pieces: [u32; BLOCKS_MAX],
}

/// Ports that a host has: a block; or without blocks, those of a whole external address, as block 0. Usually all pieces
/// are on one address; while one address drains, some may be on another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    address: u32,
    block: u32,
}

impl Piece {
    /// The packed form: numbers of addresses and of blocks have fewer than 16 bits.
    fn bits(self) -> u32 {
        self.address << 16 | (self.block + 1)
    }
}

impl Host {
    /// All pieces. There may be more than a host may have now, if that limit has changed.
    fn pieces(&self) -> impl Iterator<Item = Piece> {
        let pieces = self.pieces.iter().filter(|bits| **bits != 0);
        pieces.map(|bits| Piece { address: bits >> 16, block: (bits & 0xffff) - 1 })
    }

    /// The address that the host keeps as long as it has a mapping there.
    fn home(&self, roster: &Roster) -> Option<u32> {
        self.pieces().map(|piece| piece.address).find(|address| roster.is_open(*address))
    }

    fn place_of(&self, piece: u32) -> Option<usize> {
        self.pieces.iter().position(|known| *known == piece)
    }
}

/// The result of counting a new mapping.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Entered {
    /// Whether the host counts the mapping.
    pub(crate) is_known: bool,
    /// The block that the host got with it, if any.
    pub(crate) change: Option<Change>,
}

/// A host or subscriber in its network: an IPv4 address, or the prefix of an IPv6 subscriber.
#[derive(Clone, Copy, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Name {
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
    /// The name as shown in reports.
    pub(crate) fn words(&self, networks: &[Network]) -> String {
        let at = networks.binary_search_by_key(&self.network, |known| known.number).ok();
        match at.map(|at| networks[at].name.as_str()) {
            None | Some("") => self.address.to_string(),
            Some(network) => format!("{} of {network}", self.address),
        }
    }

    /// A number that depends on the whole name; for an IPv4 address in the only network, the address itself.
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

/// A free external port: the number of its address, and the port.
pub(crate) type Place = (u32, u16);

/// All hosts.
pub(crate) struct Hosts {
    allocation: Allocation,
    pooling: Pooling,
    quota: u32,
    first: u16,
    last: u16,
    inside: Box<[Prefix]>,
    /// The number of addresses in all inside ranges together.
    inside_len: u64,
    networks: networks::List,
    subscriber_bits: u8,
    /// The numbers of the external addresses of hosts with configured mappings, the first one of each, if there are several addresses.
    bound: HashMap<Name, u32>,
    /// Whether all mappings are counted; otherwise only those that are not where their host would start now.
    counts_all: bool,
    /// Present only if state of hosts has to be kept.
    table: Option<Map<Name, Host>>,
    /// Which blocks are taken, with a row for each address.
    blocks: Option<Bits>,
    /// The log of who had them.
    log: Option<BlockLog>,
}

impl Hosts {
    pub(crate) fn new(
        builder: &mut StateBuilder,
        (pool, fixed): (&Pool, &[Fixed]),
        roster: &Roster,
    ) -> Result<Hosts, ConfigError> {
        let state = |key: &'static str| move |error: StateError| ConfigError::state(key, &error);
        let blocks = match pool.allocation {
            Allocation::Blocks { size, .. } => {
                let len = pool.ports() / u32::from(size);
                Some(Bits::new(builder, "blocks", roster.room(), len).map_err(state("external"))?)
            }
            _ => None,
        };
        let map = MapConfig { name: "hosts".into(), capacity: pool.mappings_max, ..MapConfig::default() };
        let counts_all = pool.counts_hosts();
        let is_paired = pool.allocation == Allocation::Shared && pool.pooling == Pooling::Paired;
        let remembers = counts_all || (is_paired && roster.has_changed()) || builder.has_left("hosts", "Map");
        let table = remembers.then(|| Map::new(builder, &map)).transpose().map_err(state("mappings_max"))?;
        let log = match pool.allocation {
            Allocation::Blocks { size, .. } if pool.block_log_max > 0 || pool.block_syslog.is_some() => {
                let networks = pool.networks.clone();
                let log = BlockLog::new(builder, pool.block_log_max, pool.block_syslog, (size, networks));
                Some(log.map_err(state("block_log_max"))?)
            }
            _ => None,
        };
        let mut hosts = Hosts {
            bound: HashMap::default(),
            allocation: pool.allocation,
            pooling: pool.pooling,
            quota: pool.quota,
            first: pool.first_port,
            last: pool.last_port,
            inside_len: pool.inside.iter().filter_map(Prefix::len_v4).sum(),
            inside: pool.inside.clone(),
            networks: pool.networks.clone(),
            subscriber_bits: pool.subscriber_bits,
            counts_all,
            table,
            blocks,
            log,
        };
        for Fixed { inside, external, .. } in fixed.iter().rev().filter(|_| pool.external.len() > 1) {
            if let Some(address) = roster.number(external.address) {
                hosts.bound.insert(hosts.name(*inside), address);
            }
        }
        Ok(hosts)
    }

    /// The host or subscriber that an inside endpoint belongs to.
    fn name(&self, inside: Inside) -> Name {
        let whole = inside.address.is_v4();
        let address = if whole { inside.address } else { inside.address.prefix(self.subscriber_bits) };
        Name { address, network: inside.network }
    }

    /// The claim of an inside endpoint that wants a port, without any knowledge of its host.
    #[inline(always)]
    pub(crate) fn expected(&self, roster: &Roster, inside: Inside) -> Claim {
        let number = self.name(inside).number();
        let home = match self.allocation {
            Allocation::Deterministic { size } => self.deterministic(roster, inside, size).map_or(0, |place| place.0),
            _ => self.start(inside).unwrap_or_else(|| roster.home(number)),
        };
        Claim { inside, number, home, host: Host::default(), own: Holder::Nobody }
    }

    /// The external address of a host with a configured mapping, where its other endpoints belong too (RFC 4787 REQ-2).
    #[inline(always)]
    fn start(&self, inside: Inside) -> Option<u32> {
        if self.bound.is_empty() { None } else { self.bound.get(&self.name(inside)).copied() }
    }

    /// Whether two inside endpoints belong to the same host.
    pub(crate) fn is_one(&self, one: Inside, other: Inside) -> bool {
        self.name(one) == self.name(other)
    }

    /// Completes a claim with the state of its host.
    #[inline(always)]
    pub(crate) fn recall(&self, tx: &mut Tx, roster: &Roster, claim: &mut Claim) -> Result<(), Conflict> {
        match &self.table {
            Some(table) => self.recall_from(table, tx, roster, claim),
            None => Ok(()),
        }
    }

    fn recall_from(
        &self,
        table: &Map<Name, Host>,
        tx: &mut Tx,
        roster: &Roster,
        claim: &mut Claim,
    ) -> Result<(), Conflict> {
        claim.host = table.get(tx, &self.name(claim.inside))?.unwrap_or_default();
        if !matches!(self.allocation, Allocation::Deterministic { .. }) {
            claim.home = match claim.host.home(roster).or_else(|| self.start(claim.inside)) {
                Some(home) => home,
                None => roster.home_unless_counted(tx, claim.number)?,
            };
        }
        Ok(())
    }

    /// Counts an external port that a host got. `None` if there is no room for another host.
    #[inline(always)]
    pub(crate) fn enter(
        &self,
        tx: &mut Tx,
        roster: &Roster,
        inside: Inside,
        place: Place,
    ) -> Result<Option<Entered>, Conflict> {
        match &self.table {
            Some(table) => self.enter_in(table, tx, roster, inside, place),
            None => Ok(Some(Entered::default())),
        }
    }

    fn enter_in(
        &self,
        table: &Map<Name, Host>,
        tx: &mut Tx,
        roster: &Roster,
        inside: Inside,
        place: Place,
    ) -> Result<Option<Entered>, Conflict> {
        let name = self.name(inside);
        let start = || self.start(inside).unwrap_or_else(|| roster.home(name.number()));
        if !self.counts_all && (self.pooling != Pooling::Paired || start() == place.0) {
            return Ok(Some(Entered::default()));
        }
        let mut host = table.get(tx, &name)?.unwrap_or_default();
        let piece = self.piece(place);
        host.mappings += 1;
        let known = host.place_of(piece.bits());
        let at = known.or_else(|| host.place_of(0));
        if let Some(at) = at {
            host.used[at] += 1;
            host.pieces[at] = piece.bits();
        }
        if table.insert(tx, &name, &host)? == Inserted::Full {
            return Ok(None);
        }
        // Only now, for a host without room takes no block.
        let change = match at {
            Some(_) if known.is_none() => self.take_block(tx, name, piece, true)?,
            _ => None,
        };
        Ok(Some(Entered { is_known: true, change }))
    }

    fn piece(&self, (address, port): Place) -> Piece {
        match self.allocation {
            Allocation::Blocks { size, .. } => Piece { address, block: u32::from((port - self.first) / size) },
            _ => Piece { address, block: 0 },
        }
    }

    /// Marks a block as taken or free; returns the change to log, or `None` if there are no blocks.
    fn take_block(&self, tx: &mut Tx, host: Name, piece: Piece, assigned: bool) -> Result<Option<Change>, Conflict> {
        let (Allocation::Blocks { size, .. }, Some(blocks)) = (self.allocation, &self.blocks) else { return Ok(None) };
        let Piece { address, block } = piece;
        blocks.set(tx, address, block, assigned)?;
        Ok(Some(Change { host, address, first: self.first + block as u16 * size, assigned }))
    }

    /// Stops counting an external port of a host that counted it. A block that becomes empty is freed, and the change
    /// returned.
    pub(crate) fn leave(&self, tx: &mut Tx, inside: Inside, place: Place) -> Result<Option<Change>, Conflict> {
        let Some(table) = &self.table else { return Ok(None) };
        let name = self.name(inside);
        let Some(mut host) = table.get(tx, &name)? else { return Ok(None) };
        let (mut change, piece) = (None, self.piece(place));
        host.mappings = host.mappings.saturating_sub(1);
        if let Some(at) = host.place_of(piece.bits()) {
            host.used[at] = host.used[at].saturating_sub(1);
            if host.used[at] == 0 {
                host.pieces[at] = 0;
                change = self.take_block(tx, name, piece, false)?;
            }
        }
        match host.mappings {
            0 => table.remove(tx, &name).map(drop)?,
            _ => table.insert(tx, &name, &host).map(drop)?,
        }
        Ok(change)
    }

    /// Logs the change that [`enter`](Self::enter) or [`leave`](Self::leave) has made.
    pub(crate) fn note(&self, cx: &mut Cx<'_>, change: &Change, address: [u8; 4]) -> Result<(), Conflict> {
        match &self.log {
            Some(log) => log.note(cx, change, address),
            None => Ok(()),
        }
    }

    /// Reports which host had which block.
    pub(crate) fn report(&self, cx: &mut Cx<'_>, into: &mut Findings) -> Result<(), Conflict> {
        match &self.log {
            Some(log) => log.report(cx, into),
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

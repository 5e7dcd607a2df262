//! Chooses the external port for a host: its own port number if free, else one of the same class near a hash. It chooses
//! among all ports of the host's address, among those of its blocks, or among those of the block that its address
//! determines.

use std::iter::once;
use std::ops::RangeInclusive;

use braid_nf::prelude::*;
use braid_nf::state::Tx;

use super::{Hosts, NO_FREE_PORT, PORT_QUOTA, Place};
use crate::mappings::config::{Allocation, Pooling};
use crate::mappings::endpoint::{Inside, slot};
use crate::mappings::ports::Ports;
use crate::mappings::ports::claim::{Claim, is_system, of_class};
use crate::mappings::roster::Roster;
use crate::mappings::table::reclaim::Holder;
use crate::parts::tables::sweep::scaled;

/// How many other addresses to try with arbitrary pooling.
const OTHERS: usize = 8;

impl Hosts {
    /// Chooses a free port for a new mapping; with blocks, perhaps in a new block.
    pub(crate) fn choose(
        &self,
        tx: &mut Tx,
        (ports, roster): (&Ports, &Roster),
        claim: &Claim,
    ) -> Result<Result<Place, Reason>, Conflict> {
        if self.quota > 0 && claim.host.mappings >= self.quota {
            return Ok(Err(PORT_QUOTA));
        }
        let place = match self.allocation {
            Allocation::Shared => self.choose_shared(tx, (ports, roster), claim)?,
            Allocation::Blocks { size, most } => self.choose_in_blocks(tx, ports, claim, (size, most))?,
            Allocation::Deterministic { size } => match self.deterministic(roster, claim.inside, size) {
                Some((address, first)) => {
                    let within = first..=first + (size - 1);
                    self.find(tx, ports, claim, address, within)?.map(|port| (address, port))
                }
                None => None,
            },
        };
        Ok(place.ok_or(NO_FREE_PORT))
    }

    /// The external addresses from which a host may send what has no ports, by number: first its own one.
    pub(crate) fn addresses<'a>(
        &self,
        tx: &mut Tx,
        roster: &'a Roster,
        inside: Inside,
    ) -> Result<impl Iterator<Item = u32> + use<'a>, Conflict> {
        let mut claim = self.expected(roster, inside);
        self.recall(tx, roster, &mut claim)?;
        Ok(once(claim.home).chain(roster.others(claim.home).take(self.others())))
    }

    /// How many external addresses besides its own a host may have.
    fn others(&self) -> usize {
        if self.pooling == Pooling::Paired { 0 } else { OTHERS }
    }

    /// Prefetches what [`choose`](Self::choose) usually accesses.
    #[inline(always)]
    pub(crate) fn prefetch(&self, (ports, roster): (&Ports, &Roster), inside: Inside) {
        let (claim, number) = (self.expected(roster, inside), slot(inside.protocol));
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
    fn choose_shared(
        &self,
        tx: &mut Tx,
        (ports, roster): (&Ports, &Roster),
        claim: &Claim,
    ) -> Result<Option<Place>, Conflict> {
        let whole = self.first..=self.last;
        if let Some(port) = self.find(tx, ports, claim, claim.home, whole.clone())? {
            return Ok(Some((claim.home, port)));
        }
        for address in roster.others(claim.home).take(self.others()) {
            if let Some(port) = self.find(tx, ports, claim, address, whole.clone())? {
                return Ok(Some((address, port)));
            }
        }
        Ok(None)
    }

    /// System ports are mapped to system ports, and others to others, if possible (RFC 4787 REQ-3 a and b).
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
        let is_free = within.contains(&wanted)
            && match claim.home == address {
                true => claim.own != Holder::Other,
                false => ports.is_free(tx, number, address, wanted)?,
            };
        if is_free {
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
        (size, most): (u16, usize),
    ) -> Result<Option<Place>, Conflict> {
        let (home, host) = (claim.home, &claim.host);
        for piece in host.pieces().filter(|piece| piece.address == home) {
            if let Some(port) = self.find(tx, ports, claim, home, self.block(piece.block, size))? {
                return Ok(Some((home, port)));
            }
        }
        // Blocks on an address that drains leave room for as many on the new one, as far as a host can have so many.
        let has_room = host.pieces().filter(|piece| piece.address == home).count() < most && host.place_of(0).is_some();
        let Some(blocks) = self.blocks.as_ref().filter(|_| has_room) else { return Ok(None) };
        let count = (u32::from(self.last - self.first) + 1) / u32::from(size);
        let near = scaled(claim.number, count);
        for (begin, end) in [(near, count), (0, near)] {
            let mut next = begin;
            while let Some(block) = blocks.find_zero(tx, home, next..end, next, u64::MAX)? {
                if let Some(port) = self.find(tx, ports, claim, home, self.block(block, size))? {
                    return Ok(Some((home, port)));
                }
                // All of its ports are configured for other hosts.
                next = block + 1;
            }
        }
        Ok(None)
    }

    /// The block with this index among those that a host has to itself on its current address, and the address.
    pub(crate) fn own_block(
        &self,
        roster: &Roster,
        claim: &Claim,
        number: usize,
    ) -> Option<(u32, RangeInclusive<u16>)> {
        match self.allocation {
            Allocation::Shared => None,
            Allocation::Blocks { size, .. } => {
                let mut pieces = claim.host.pieces().filter(|piece| piece.address == claim.home);
                pieces.nth(number).map(|piece| (piece.address, self.block(piece.block, size)))
            }
            Allocation::Deterministic { size } => {
                let (address, first) = self.deterministic(roster, claim.inside, size).filter(|_| number == 0)?;
                Some((address, first..=first + (size - 1)))
            }
        }
    }

    fn block(&self, number: u32, size: u16) -> RangeInclusive<u16> {
        let first = self.first + number as u16 * size;
        first..=first + (size - 1)
    }

    /// The number of the external address and the first port of the block that a host always has.
    pub(crate) fn deterministic(
        &self,
        roster: &Roster,
        Inside { address, network, .. }: Inside,
        size: u16,
    ) -> Option<Place> {
        let network = self.networks.binary_search_by_key(&network, |known| known.number).ok()?;
        let mut before = network as u64 * self.inside_len;
        for range in &self.inside {
            if let Some(v4) = address.v4().filter(|_| range.contains(address)) {
                let offset = u32::from_be_bytes(v4) - range.first().v4().map_or(0, u32::from_be_bytes);
                let (host, per_address) = (before + u64::from(offset), self.per_address(size));
                let first = self.first + (host % per_address) as u16 * size;
                return Some((roster.open(host / per_address), first));
            }
            before += range.len_v4().unwrap_or(0);
        }
        None
    }

    fn per_address(&self, size: u16) -> u64 {
        (u64::from(self.last - self.first) + 1) / u64::from(size)
    }
}

//! Detects DNS tunnels by orphan answers. Chimera (USENIX Security 2012) counts responses whose address the client never
//! contacts; here they are counted by client and zone, because a tunnel needs a zone of its own.

mod config;
mod message;
mod orphan;

pub use config::Config;

use std::time::Duration;

use braid_nf::packet::IpAddress;
use braid_nf::prelude::*;
use orphan::{LED, Orphan};

use crate::parts::headers::dns::{Name, Response};
use crate::parts::headers::zone::{self, ZONE_SHOWN, Zone};
use crate::parts::tables::aged::{SWEEP_EVERY, Stamp};
use crate::parts::{Aged, Alerts, Unkept, of_each, seconds};
use crate::{ConfigError, FromConfig};

const DNS: u16 = 53;

/// A client and the hash of a zone that it asks about.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Asker {
    client: IpAddress,
    zone: u64,
}

/// A client and an address or a name that it learnt from an answer.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Told {
    client: IpAddress,
    address: IpAddress,
}

/// Orphan answers to a client about a zone, since the window began.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Tally {
    since_ns: u64,
    orphans: u64,
    /// Bytes of the names below the zone, and of the answers without an address.
    bytes: u64,
}

impl Stamp for Tally {
    fn seen_ns(&self) -> u64 {
        self.since_ns
    }
}

/// A tally that passed the threshold, and the zone as text.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Tunnel {
    tally: Tally,
    zone: [u8; ZONE_SHOWN],
}

network_function! {
    /// Detects DNS tunnels; see the README beside this file.
    #[derive(Debug)]
    pub struct DnsTunnel {
        orphans_max: u64,
        bytes_max: u64,
        window_ns: u64,
        lists: Vec<Name>,
        resolvers: config::Resolvers,
        told: Aged<Told, Orphan>,
        tallies: Aged<Asker, Tally>,
        unkept: Unkept,
        alerts: Alerts<Asker, Tunnel>,
    }
}

impl FromConfig for DnsTunnel {
    type Config = Config;

    fn from_config(config: Config, builder: &mut StateBuilder, _: u16) -> Result<DnsTunnel, ConfigError> {
        let (window_ns, capacity) = (config.window_ns()?, config.answers_max);
        let error = |error| ConfigError::state("answers_max", &error);
        Ok(DnsTunnel {
            orphans_max: config.orphans_max()?,
            bytes_max: config.bytes.into(),
            window_ns,
            lists: config.lists()?,
            resolvers: config.resolvers()?,
            told: Aged::new(builder, "told", capacity, window_ns).map_err(error)?,
            tallies: Aged::new(builder, "tallies", capacity, window_ns).map_err(error)?,
            unkept: Unkept::new(builder, "unkept", "answers for which there was no room").map_err(error)?,
            alerts: Alerts::new(builder, config.alerts_max).map_err(|e| ConfigError::state("alerts_max", &e))?,
        })
    }
}

impl NetworkFunction for DnsTunnel {
    type Set = ();
    const NAME: &'static str = "dns_tunnel";

    /// Counts keep their meaning under any threshold.
    fn inherits(&self, _older: &Self) -> Result<(), String> {
        Ok(())
    }

    /// A set records that a flow has begun, so its address is looked up only once.
    fn packet_set(&self) -> Option<SetDef> {
        Some(SetDef::five_tuple())
    }

    fn timeout_ns(&self, (): &()) -> u64 {
        self.window_ns
    }

    fn ticks(&self) -> Vec<Duration> {
        vec![SWEEP_EVERY]
    }

    fn divides(&self, _period: usize) -> bool {
        true
    }

    fn first(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, set: &mut NewSet<'_, ()>) -> Handled {
        if !is_response(packet) {
            let mut askers = self.resolvers.asking_for(packet.src_ip());
            askers.try_for_each(|client| self.contact(cx, client, packet.dst_ip()))?;
        }
        // If the set table is full, the next packet looks the address up again: slower, but not wrong.
        let _known = set.register(cx, ());
        self.packet(cx, packet, &mut ())
    }

    fn packet(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, (): &mut ()) -> Handled {
        if is_response(packet)
            && let Some(response) = Response::parse(packet.payload())
            && !self.lists.iter().any(|list| list.ends(&response))
        {
            self.answer(cx, packet.dst_ip(), &response)?;
        }
        Ok(cx.pass())
    }

    fn orphan(&self, cx: &mut Cx<'_>, _: &mut Packet<'_>) -> Handled {
        Ok(cx.pass())
    }

    fn tick(&self, cx: &mut Cx<'_>, tick: Tick) -> Result<(), Conflict> {
        self.told.sweep(cx, tick.share)?;
        self.tallies.sweep(cx, tick.share)
    }

    fn report(&self, cx: &mut Cx<'_>, into: &mut Findings) -> Result<(), Conflict> {
        self.unkept.report(cx, into)?;
        self.alerts.report(cx, into, |asker, tunnel, into| {
            let Tally { since_ns, orphans, bytes } = tunnel.tally;
            let (zone, since) = (zone::shown(&tunnel.zone), seconds(since_ns));
            let (answers, them) = (of_each(orphans, "answer"), if orphans == 1 { "it" } else { "them" });
            let bytes = of_each(bytes, "byte");
            let detail = format!("{answers} about {zone} led nowhere, {bytes} in {them}, since {since}");
            into.find("dns_tunnel", asker.client, detail);
        })
    }
}

impl DnsTunnel {
    /// Counts an answer to a client. Its name is an orphan until the client contacts one of its addresses; all query
    /// types about one name (A, AAAA, HTTPS) count as one.
    fn answer(&self, cx: &mut Cx<'_>, client: IpAddress, response: &Response<'_>) -> Result<(), Conflict> {
        let Some((zone, name)) = Zone::of(response).zip(zone::name(response.name())) else { return Ok(()) };
        let bytes = message::answer_bytes(response) + self.name_bytes(cx, client, &zone, response)?;
        let (asker, seen_ns) = (Asker { client, zone: zone.hash }, cx.now());
        let (named, none) = (Told { client, address: message::as_address(name) }, Orphan::none(zone.hash, seen_ns));
        let known = self.told.get(cx, &named)?;
        let orphan = known.unwrap_or(Orphan { names: 1, bytes, ..none });
        let told = response.address().map(|address| Told { client, address });
        let mut leads = false;
        if let Some(told) = &told {
            let before = self.told.get(cx, told)?.unwrap_or(none);
            let same = if before.of == orphan.of { before } else { none };
            let awaited = Orphan { names: same.names + 1, bytes: same.bytes + orphan.bytes, ..none };
            leads = before.of == LED;
            // Without an entry a contact would go unnoticed. The answer may be honest, so it is not counted.
            if !leads && !self.told.insert(cx, told, &awaited)? {
                return self.unkept.count(cx);
            }
        }
        if let Some(orphan) = known {
            return if leads { self.clear(cx, client, &orphan) } else { Ok(()) };
        }
        if !self.told.insert(cx, &named, &orphan)? {
            return self.unkept.count(cx);
        }
        if leads {
            return Ok(());
        }
        let begun = Tally { since_ns: seen_ns, ..Tally::default() };
        let mut tally = self.tallies.get(cx, &asker)?.unwrap_or(begun);
        (tally.orphans, tally.bytes) = (tally.orphans + 1, tally.bytes + bytes);
        if tally.orphans >= self.orphans_max && tally.bytes >= self.bytes_max {
            self.alerts.raise(cx, &asker, &Tunnel { tally, zone: zone.text() })?;
        }
        if self.tallies.insert(cx, &asker, &tally)? { Ok(()) } else { self.unkept.count(cx) }
    }

    /// The bytes that a response's name may carry. For a list that is queried by address, only the list's own name
    /// counts, once for each client, and not the address: a tunnel could carry as much in the labels between the address
    /// and the zone without it.
    fn name_bytes(
        &self,
        cx: &mut Cx<'_>,
        client: IpAddress,
        zone: &Zone<'_>,
        response: &Response<'_>,
    ) -> Result<u64, Conflict> {
        let Some((list, hash)) = zone.list_of(response).and_then(|list| Some((list, zone::name(list)?))) else {
            return Ok(zone.bytes_below(response.name()));
        };
        let told = Told { client, address: message::as_address(hash) };
        let known = Orphan::none(zone.hash, cx.now());
        let is_new = self.told.get(cx, &told)?.is_none() && self.told.insert(cx, &told, &known)?;
        Ok(if is_new { zone.bytes_below(list) } else { 0 })
    }

    /// Clears the orphans whose address the client contacts. What else is told this address within the window leads there too.
    fn contact(&self, cx: &mut Cx<'_>, client: IpAddress, address: IpAddress) -> Result<(), Conflict> {
        let (told, led) = (Told { client, address }, Orphan::none(LED, cx.now()));
        let Some(orphans) = self.told.get(cx, &told)?.filter(|known| known.of != LED) else { return Ok(()) };
        self.told.insert(cx, &told, &led)?;
        self.clear(cx, client, &orphans)
    }

    /// Counts orphans no longer.
    fn clear(&self, cx: &mut Cx<'_>, client: IpAddress, these: &Orphan) -> Result<(), Conflict> {
        let asker = Asker { client, zone: these.of };
        let Some(Tally { since_ns, orphans, bytes }) = self.tallies.get(cx, &asker)? else { return Ok(()) };
        let (orphans, bytes) = (orphans.saturating_sub(these.names), bytes.saturating_sub(these.bytes));
        self.tallies.insert(cx, &asker, &Tally { since_ns, orphans, bytes }).map(drop)
    }
}

fn is_response(packet: &Packet<'_>) -> bool {
    packet.udp().is_some_and(|udp| udp.source_port() == DNS)
}

#[cfg(test)]
mod tests;

//! Chooses a connection's backend: the one that the packet names, else the one its client persists on, else the one that
//! the hash table gives.

use braid_nf::packet::IpAddress;
use braid_nf::packet::parse::protocol;
use braid_nf::prelude::*;
use braid_nf::state::hash;

use super::config::{Persistence, WhenDown};
use super::room::{Accepts, Found};
use super::settings::{Pool, Virtual};
use super::strays::ends_of;
use super::{FROM_BACKEND, Flow, LoadBalancer};
use crate::parts::tables::aged::Stamp;
use crate::parts::tables::tallies::Tally;
use crate::parts::{Aged, NS_PER_MS, Unkept};

/// No backend of the service is up.
pub const NO_BACKEND: Reason = Reason("no_backend");

/// Table places to try before all backends are compared. Where half of the table's places are of backends that are down, one connection in
/// 256 needs that.
const TRIES: usize = 8;
const SEED: u64 = 0x6261_6c61_6e63_6572;

/// A client of a service that persists on one backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Client {
    address: IpAddress,
    service: IpAddress,
    port: u16,
    /// The last port of a range.
    last: u16,
    /// 0: TCP and UDP.
    protocol: u8,
    zero: u8,
}

/// The remembered backend of such a client, or of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Kept {
    pub(super) seen_ns: u64,
    pub(super) backend: u64,
}

impl Stamp for Kept {
    fn seen_ns(&self) -> u64 {
        self.seen_ns
    }
}

impl Kept {
    /// Notes a backend under a key. If the backend is unchanged, the entry is rewritten at most four times in its
    /// lifetime.
    pub(super) fn note<K: Plain + std::fmt::Debug>(
        (table, unkept): (&Aged<K, Kept>, &Unkept),
        cx: &mut Cx<'_>,
        key: &K,
        backend: u32,
    ) -> Result<(), Conflict> {
        let (now, backend) = (cx.now(), u64::from(backend));
        let is_fresh =
            |kept: &Kept| kept.backend == backend && now.saturating_sub(kept.seen_ns) < table.lifetime_ns() / 4;
        if table.get(cx, key)?.as_ref().is_some_and(is_fresh)
            || table.insert(cx, key, &Kept { seen_ns: now, backend })?
        {
            return Ok(());
        }
        // The table is full: the hash decides, and it gives the same backend as long as no backend changes.
        unkept.count(cx)
    }
}

impl Client {
    /// The key of a client, or of the prefix that groups it with others.
    fn of(service: &Virtual, address: IpAddress) -> Client {
        let (to, ports, protocol) = service.end;
        let bits = service.together[usize::from(!address.is_v4())];
        let [port, last] = ports.words();
        Client { address: address.prefix(bits), service: to, port, last, protocol, zero: 0 }
    }
}

impl LoadBalancer {
    /// The backend for a client's new flow.
    pub(super) fn choose_for(
        &self,
        cx: &mut Cx<'_>,
        service: &Virtual,
        packet: &Packet<'_>,
        port: u16,
    ) -> Result<Option<u32>, Conflict> {
        match self.named_by(cx, service, packet)? {
            Some(named) => Ok(Some(named)),
            None => self.choose_and_keep(cx, service, (packet.src_ip(), port), Accepts::Room),
        }
    }

    /// The backend that a packet names, if it is up.
    fn named_by(&self, cx: &mut Cx<'_>, service: &Virtual, packet: &Packet<'_>) -> Result<Option<u32>, Conflict> {
        if service.server_ids.is_empty() || packet.protocol() != protocol::UDP {
            return Ok(None);
        }
        match service.server_ids.named_by(packet.payload()) {
            Some(named) if self.is_up(cx, named)? => Ok(Some(named)),
            _ => Ok(None),
        }
    }

    /// Moves a known flow to the backend that its packet names, if that is another one: its client has moved to a port
    /// that another client had before. True if the flow moved.
    pub(super) fn follow_name(&self, cx: &mut Cx<'_>, packet: &Packet<'_>, flow: &mut Flow) -> Result<bool, Conflict> {
        let may_be_named = self.settings.server_of(flow).is_some_and(|server| server.may_be_named);
        if !may_be_named || flow.way == FROM_BACKEND || packet.is_later_fragment() {
            return Ok(false);
        }
        let Some(service) = self.settings.service(ends_of(packet).1) else { return Ok(false) };
        let named = self.named_by(cx, service, packet)?.filter(|named| *named != u32::from(flow.backend));
        let Some(named) = named else { return Ok(false) };
        self.move_to(cx, packet, flow, (named, flow.phase))?;
        Ok(true)
    }

    /// Chooses the backend for a connection that begins or moves, and notes it if the client persists.
    fn choose_and_keep(
        &self,
        cx: &mut Cx<'_>,
        service: &Virtual,
        client: (IpAddress, u16),
        accepts: Accepts,
    ) -> Result<Option<u32>, Conflict> {
        let chosen = self.choose(cx, service, client, accepts)?;
        if let (Persistence::Source, Some(backend)) = (service.persistence, chosen) {
            self.keep(cx, service, client.0, backend)?;
        }
        Ok(chosen)
    }

    /// The backend that the client persists on, if it still [keeps clients](Self::keeps_clients); else the one that the hash gives.
    pub(super) fn choose(
        &self,
        cx: &mut Cx<'_>,
        service: &Virtual,
        client: (IpAddress, u16),
        accepts: Accepts,
    ) -> Result<Option<u32>, Conflict> {
        if service.persistence != Persistence::Source {
            return self.choose_by_hash(cx, service, client, accepts);
        }
        let key = Client::of(service, client.0);
        if let Some(kept) = self.kept.get(cx, &key)? {
            let backend = kept.backend as u32;
            if self.keeps_clients(cx, backend)? && self.accepts(cx, accepts, backend)? {
                return Ok(Some(backend));
            }
        }
        self.choose_by_hash(cx, service, (key.address, 0), accepts)
    }

    /// Refreshes the entry of a persistent client from a live connection, unless the client has been given another
    /// backend since.
    fn hold(&self, cx: &mut Cx<'_>, packet: &Packet<'_>, flow: &Flow) -> Result<(), Conflict> {
        let ((client, _), end) = ends_of(packet);
        let service = self.settings.service(end).filter(|service| service.persistence == Persistence::Source);
        let Some(service) = service else { return Ok(()) };
        let kept = self.kept.get(cx, &Client::of(service, client))?;
        let is_there = kept.is_none_or(|kept| kept.backend == u64::from(flow.backend));
        if is_there && self.keeps_clients(cx, flow.backend.into())? {
            self.keep(cx, service, client, flow.backend.into())?;
        }
        Ok(())
    }

    /// Notes a client's backend, except a backup.
    fn keep(&self, cx: &mut Cx<'_>, service: &Virtual, client: IpAddress, backend: u32) -> Result<(), Conflict> {
        if self.settings.servers.get(backend as usize).is_some_and(|server| server.is_backup) {
            // A backup serves only until another backend is up again.
            return Ok(());
        }
        Kept::note((&self.kept, &self.unkept_clients), cx, &Client::of(service, client), backend)
    }

    /// The backend that the hash of a client's endpoint gives; a backup if no other backend is up. That they are full is not enough.
    fn choose_by_hash(
        &self,
        cx: &mut Cx<'_>,
        service: &Virtual,
        (client, port): (IpAddress, u16),
        accepts: Accepts,
    ) -> Result<Option<u32>, Conflict> {
        let mut name = [0; 18];
        name[..16].copy_from_slice(&client.octets());
        name[16..].copy_from_slice(&port.to_be_bytes());
        for pool in &service.pools {
            match self.choose_of(cx, pool, &name, accepts)? {
                Found::At(backend) => return Ok(Some(backend)),
                Found::Full => break,
                Found::Nobody => {}
            }
        }
        Ok(None)
    }

    /// The backend at the place of a name's hash; while that is down or full, the one at the place of a further hash, and finally the one
    /// among those that are up and have room whose turn comes first ([`wait`]).
    fn choose_of(&self, cx: &mut Cx<'_>, pool: &Pool, name: &[u8; 18], accepts: Accepts) -> Result<Found, Conflict> {
        let mut none = Found::Nobody;
        for number in 0..TRIES {
            let place = hash::mixed(name, SEED + number as u64);
            let Some(backend) = pool.backends.get(usize::from(pool.table.at(place))) else { break };
            if self.is_up(cx, *backend)? {
                if self.accepts(cx, accepts, *backend)? {
                    return Ok(Found::At(*backend));
                }
                none = Found::Full;
            }
        }
        let mut first = None;
        for backend in &pool.backends {
            if !self.may_choose(cx, *backend)? {
                continue;
            }
            if self.accepts(cx, accepts, *backend)? {
                let weight = self.settings.servers.get(*backend as usize).map_or(0, |server| server.weight);
                let wait = wait(name, *backend, weight);
                first = first.filter(|(_, least)| *least <= wait).or(Some((*backend, wait)));
            } else {
                none = Found::Full;
            }
        }
        Ok(first.map_or(none, |(backend, _)| Found::At(backend)))
    }

    /// Whether clients stay on a backend: it is up, and does not drain, or drains of clients as they go by themselves.
    fn keeps_clients(&self, cx: &mut Cx<'_>, backend: u32) -> Result<bool, Conflict> {
        match self.settings.when_draining {
            WhenDown::Keep => self.is_up(cx, backend),
            WhenDown::Move => self.may_choose(cx, backend),
        }
    }

    /// Whether new flows may go to a backend: its weight is not 0 and it is up.
    pub(super) fn may_choose(&self, cx: &mut Cx<'_>, backend: u32) -> Result<bool, Conflict> {
        let has_weight = self.settings.servers.get(backend as usize).is_some_and(|server| server.weight > 0);
        Ok(has_weight && self.is_up(cx, backend)?)
    }

    /// A new flow to a backend.
    pub(super) fn flow_to(&self, cx: &Cx<'_>, backend: u32, phase: u8) -> Flow {
        let way = self.settings.way_to(backend, phase);
        // The cast is lossless: `Settings::check` refuses more backends than fit into 16 bits.
        let (checked_ms, backend) = ((cx.now() / NS_PER_MS) as u32, backend as u16);
        Flow { checked_ms, backend, way, phase }
    }

    /// Checks again whether the flow's backend is up, and moves the flow if not. False if no backend is up and has room.
    #[cold]
    pub(super) fn recheck(&self, cx: &mut Cx<'_>, packet: &Packet<'_>, flow: &mut Flow) -> Result<bool, Conflict> {
        if self.settings.when_down == WhenDown::Keep || self.is_up(cx, flow.backend.into())? {
            // The flow may have begun when no packet of its service could name a backend, so `way` is computed again.
            *flow = self.flow_to(cx, flow.backend.into(), flow.phase);
            self.hold(cx, packet, flow)?;
            self.note_stray(cx, packet, flow)?;
            return Ok(true);
        }
        self.choose_again(cx, packet, flow, flow.phase)
    }

    /// Chooses a backend for a connection that reuses the endpoints of an ended one, or that moves. False if no backend
    /// is up and has room.
    #[cold]
    pub(super) fn choose_again(
        &self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        flow: &mut Flow,
        phase: u8,
    ) -> Result<bool, Conflict> {
        let (client, end) = ends_of(packet);
        let Some(service) = self.settings.service(end) else { return Ok(false) };
        let accepts = Accepts::RoomBeside(flow.backend);
        let Some(backend) = self.choose_and_keep(cx, service, client, accepts)? else { return Ok(false) };
        self.move_to(cx, packet, flow, (backend, phase))?;
        Ok(true)
    }

    /// Moves a flow to another backend.
    fn move_to(
        &self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        flow: &mut Flow,
        (backend, phase): (u32, u8),
    ) -> Result<(), Conflict> {
        self.forget_stray(cx, packet)?;
        self.count(cx, flow, Tally::ENDED)?;
        *flow = self.flow_to(cx, backend, phase);
        self.enter(cx, packet, flow, true).map(drop)
    }
}

/// How long a name waits for a backend: exponentially distributed with the weight as rate. The backend with the least wait therefore gets a
/// share of the names that follows its weight, and one that fails moves its own names only (weighted rendezvous hashing).
fn wait(name: &[u8; 18], backend: u32, weight: u32) -> f64 {
    let hash = hash::mixed(name, SEED.rotate_left(32) ^ u64::from(backend));
    let above_0_to_1 = ((hash >> 11) + 1) as f64 / (1u64 << 53) as f64;
    -above_0_to_1.ln() / f64::from(weight)
}

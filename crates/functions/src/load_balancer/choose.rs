//! Which backend a connection goes to, and which backends are up.

use braid_nf::packet::IpAddress;
use braid_nf::packet::parse::protocol;
use braid_nf::prelude::*;
use braid_nf::state::hash;

use super::config::{Virtual, WhenDown};
use super::{Flow, HEARTBEAT, LoadBalancer, TO_BACKEND};
use crate::parts::Side;

/// No backend of the service is up.
pub const NO_BACKEND: Reason = Reason("no_backend");

/// Places of the table that are tried before all backends are gone through. With half of them down, one connection in 256
/// comes to that.
const TRIES: usize = 8;
const SEED: u64 = 0x6261_6c61_6e63_6572;

impl LoadBalancer {
    /// The backend for connections of a client's endpoint: the one at its place of the table; if that is down, the one at the
    /// place of another hash; and so on.
    pub(super) fn choose(
        &self,
        cx: &mut Cx<'_>,
        service: &Virtual,
        client: IpAddress,
        port: u16,
    ) -> Result<Option<u32>, Conflict> {
        let mut name = [0; 18];
        name[..16].copy_from_slice(&client.octets());
        name[16..].copy_from_slice(&port.to_be_bytes());
        let mut place = 0;
        for number in 0..TRIES {
            place = hash::mixed(&name, SEED + number as u64);
            let Some(backend) = service.backends.get(usize::from(service.table.at(place))) else { break };
            if self.is_up(cx, *backend)? {
                return Ok(Some(*backend));
            }
        }
        let count = service.backends.len();
        let start = (((place >> 32) * count as u64) >> 32) as usize;
        for backend in service.backends.iter().cycle().skip(start).take(count) {
            let has_weight = self.settings.servers.get(*backend as usize).is_some_and(|server| server.weight > 0);
            if has_weight && self.is_up(cx, *backend)? {
                return Ok(Some(*backend));
            }
        }
        Ok(None)
    }

    fn is_up(&self, cx: &mut Cx<'_>, backend: u32) -> Result<bool, Conflict> {
        Ok(self.settings.heartbeat_port.is_none() || self.up.get(cx, backend)? == Some(1))
    }

    /// A flow to a backend.
    pub(super) fn flow_to(&self, cx: &Cx<'_>, backend: u32, phase: u8) -> Flow {
        let server = self.settings.servers.get(backend as usize);
        let (address, port) = server.map(|server| (server.address, server.port)).unwrap_or_default();
        Flow { address, port, backend, way: TO_BACKEND, phase, checked_ns: cx.now() }
    }

    /// Asks again whether the flow's backend is up, and moves the flow if it is not. False if there is nowhere to go.
    #[cold]
    pub(super) fn recheck(&self, cx: &mut Cx<'_>, packet: &Packet<'_>, flow: &mut Flow) -> Result<bool, Conflict> {
        if self.settings.when_down == WhenDown::Keep || self.is_up(cx, flow.backend)? {
            return Ok(true);
        }
        let (source, destination) = packet.ports().unwrap_or_default();
        let Some(service) = self.settings.service((packet.dst_ip(), destination, packet.protocol())) else {
            return Ok(false);
        };
        let Some(backend) = self.choose(cx, service, packet.src_ip(), source)? else { return Ok(false) };
        *flow = self.flow_to(cx, backend, flow.phase);
        Ok(true)
    }

    /// Whether a packet is a backend's announcement.
    pub(super) fn is_heartbeat(&self, packet: &Packet<'_>) -> bool {
        self.settings.heartbeat_port.is_some()
            && packet.protocol() == protocol::UDP
            && packet.ports().map(|(_, to)| to) == self.settings.heartbeat_port
            && self.settings.sides.of(packet.port()) == Some(Side::Inside)
            && self.settings.knows(packet.src_ip())
    }

    /// Backends at this address are up.
    pub(super) fn hear(&self, cx: &mut Cx<'_>, from: IpAddress) -> Handled {
        let now = cx.now().max(1);
        for backend in self.settings.servers_at(from) {
            self.heard.set(cx, backend, now)?;
            if self.up.get(cx, backend)? != Some(1) {
                self.up.set(cx, backend, 1)?;
            }
        }
        Ok(Verdict::Drop(HEARTBEAT))
    }

    /// Backends that have been silent for too long are down. One that was never heard has that long from the first look on.
    pub(super) fn notice_silence(&self, cx: &mut Cx<'_>) -> Result<(), Conflict> {
        if self.settings.heartbeat_port.is_none() {
            return Ok(());
        }
        let now = cx.now();
        for backend in 0..self.heard.len() {
            match self.heard.get(cx, backend)? {
                Some(0) => {
                    self.heard.set(cx, backend, now.max(1))?;
                }
                Some(heard)
                    if now.saturating_sub(heard) > self.settings.heartbeat_ns
                        && self.up.get(cx, backend)? == Some(1) =>
                {
                    self.up.set(cx, backend, 0)?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

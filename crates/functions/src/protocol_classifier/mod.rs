//! Identifies the application protocol of every TCP and UDP session, as nDPI does: by its first bytes, or else by its
//! port.

mod config;

pub use config::Config;

use braid_nf::FieldUse;
use braid_nf::packet::parse::protocol::{TCP, UDP};
use braid_nf::prelude::*;
use braid_nf::state::VectorConfig;

use crate::config::{READS_WIRE_LEN, idle_ns};
use crate::parts::Volume;
use crate::parts::headers::protocols::{Protocol, Transport, by_payload, by_port};
use crate::{ConfigError, FromConfig};

/// The state of a session.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Session {
    volume: Volume,
    /// The protocol's number; 0: not known yet.
    protocol: u8,
    /// The number of packets with payload that were examined.
    looked: u8,
    /// The protocol that the ports suggest.
    by_port: u8,
    zero: [u8; 5],
}

/// Sums over the ended sessions of a protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Usage {
    /// Sessions.
    pub sessions: u64,
    /// Their packets and bytes.
    pub volume: Volume,
}

network_function! {
    /// Classifies sessions; see the README beside this file.
    #[derive(Debug)]
    pub struct ProtocolClassifier {
        looks: u8,
        idle_timeout_ns: u64,
        ended: Vector<Usage>,
    }
}

impl FromConfig for ProtocolClassifier {
    type Config = Config;

    fn from_config(config: Config, builder: &mut StateBuilder, _: u16) -> Result<ProtocolClassifier, ConfigError> {
        let (looks, idle_timeout_ns) = (config.looks()?, idle_ns("idle_timeout_s", config.idle_timeout_s)?);
        let vector = VectorConfig { name: "ended".into(), len: Protocol::ALL.len() as u32 };
        let ended = Vector::new(builder, &vector, Usage::default());
        let ended = ended.map_err(|error| ConfigError::state("packets_max", &error))?;
        Ok(ProtocolClassifier { looks, idle_timeout_ns, ended })
    }
}

impl NetworkFunction for ProtocolClassifier {
    type Set = Session;
    const NAME: &'static str = "protocol_classifier";

    /// A session's protocol does not depend on the configuration.
    fn inherits(&self, _older: &Self) -> Result<(), String> {
        Ok(())
    }

    fn packet_set(&self) -> Option<SetDef> {
        Some(SetDef::five_tuple().only(&[TCP, UDP]).symmetric())
    }

    fn timeout_ns(&self, _: &Session) -> u64 {
        self.idle_timeout_ns
    }

    fn fields(&self) -> Vec<FieldUse> {
        vec![READS_WIRE_LEN]
    }

    fn first(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, set: &mut NewSet<'_, Session>) -> Handled {
        let mut session = Session::default();
        let verdict = self.packet(cx, packet, &mut session)?;
        // A session that finds no room is not counted, but passes.
        let _counted = set.register(cx, session);
        Ok(verdict)
    }

    fn packet(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, session: &mut Session) -> Handled {
        session.volume.count(packet);
        if session.protocol == 0 && session.looked < self.looks {
            self.look(packet, session);
        }
        Ok(cx.pass())
    }

    fn orphan(&self, cx: &mut Cx<'_>, _: &mut Packet<'_>) -> Handled {
        Ok(cx.pass())
    }

    fn expired(&self, cx: &mut Cx<'_>, _: &SetKey, session: &Session) -> Result<(), Conflict> {
        let more = session.volume;
        self.ended.update(cx, protocol(session) as u32, |usage| {
            *usage = Usage { sessions: usage.sessions + 1, volume: usage.volume.plus(more) };
        })?;
        Ok(())
    }

    fn report(&self, cx: &mut Cx<'_>, into: &mut Findings) -> Result<(), Conflict> {
        for protocol in Protocol::ALL {
            let usage = self.ended.get(cx, *protocol as u32)?.unwrap_or_default();
            if usage.sessions > 0 {
                tell(*protocol, usage, into);
            }
        }
        Ok(())
    }

    fn report_set(&self, _: &SetKey, session: &Session, into: &mut Findings) {
        tell(protocol(session), Usage { sessions: 1, volume: session.volume }, into);
    }
}

impl ProtocolClassifier {
    fn look(&self, packet: &Packet<'_>, session: &mut Session) {
        let transport = if packet.protocol() == TCP { Transport::Tcp } else { Transport::Udp };
        let Some(ports) = packet.ports() else { return };
        session.by_port = by_port(transport, ports) as u8;
        let payload = packet.payload();
        if !payload.is_empty() {
            session.looked += 1;
            session.protocol = by_payload(transport, ports, payload).unwrap_or(Protocol::Unknown) as u8;
        }
    }
}

fn protocol(session: &Session) -> Protocol {
    Protocol::from_number(if session.protocol != 0 { session.protocol } else { session.by_port })
}

fn tell(protocol: Protocol, usage: Usage, into: &mut Findings) {
    let name = protocol.name();
    into.add(format!("{name} sessions"), usage.sessions);
    usage.volume.tell(into, |what| format!("{name} {what}"));
}

#[cfg(test)]
mod tests;

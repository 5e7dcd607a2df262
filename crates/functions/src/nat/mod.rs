//! Network address and port translation for IPv4 (NAPT44): many inside hosts share a few external addresses.
//!
//! Mapping is endpoint-independent (RFC 4787 section 4.1): one inside endpoint has one external endpoint, whomever it talks
//! to. `mappings.rs` holds that shared state; a packet set is one direction of one flow and caches its whole translation, so a
//! packet in steady state reads and writes its own set only, and the mapping's lease once in `refresh_ms`. Sets are nothing
//! but a cache: a packet whose set is gone, or found no room, is translated by way of the mapping (`find.rs`).
//!
//! Not here: other protocols than TCP, UDP and ICMP, application-level gateways, static mappings, IPv6 translation.

mod config;
mod find;
mod icmp;
mod mappings;
mod rewrite;
mod session;
#[cfg(test)]
mod tests;

pub use config::{Config, Filtering, Others};
pub use find::{FILTERED, NO_MAPPING, NO_SIDE, NOT_TRANSLATABLE, NOT_UNICAST};
pub use mappings::{MAPPING_TABLE_FULL, NO_FREE_PORT};
pub use session::Session;

use std::time::Duration;

use braid_nf::packet::IpAddress;
use braid_nf::packet::parse::protocol;
use braid_nf::prelude::*;
use braid_nf::state::Inserted;

use self::config::Settings;
use self::find::Found;
use self::mappings::{Mappings, PROTOCOLS};
use self::rewrite::{Peer, Rewrite};
use self::session::{OUTWARD, Phase};
use crate::catalog::FromConfig;
use crate::config::ConfigError;
use crate::parts::aged::SWEEP_EVERY;
use crate::parts::{Fragments, answer, fragments, scope};

/// IPv6 or not IP, and configured to be dropped.
pub const UNWANTED: Reason = Reason("unwanted");

network_function! {
    /// The translator.
    pub struct Nat {
        settings: Settings,
        mappings: Mappings,
        /// To whom inside endpoints have sent: for address and port dependent filtering only.
        peers: Option<Map<Peer, u64>>,
        fragments: Fragments,
    }
}

impl FromConfig for Nat {
    type Config = Config;

    fn from_config(config: Config, builder: &mut StateBuilder, ports: u16) -> Result<Nat, ConfigError> {
        let settings = Settings::check(&config, ports)?;
        let peers = match config.filtering {
            Filtering::EndpointIndependent => None,
            Filtering::AddressAndPortDependent => Some(config.peers(builder)?),
        };
        let mappings = Mappings::new(builder, &config, &settings)?;
        let fragments = Fragments::new(builder, config.fragments_max, settings.fragment_ns)
            .map_err(|error| ConfigError::state("fragments_max", &error))?;
        Ok(Nat { settings, mappings, peers, fragments })
    }
}

impl NetworkFunction for Nat {
    type Set = Session;
    const NAME: &'static str = "nat";

    /// Each direction by itself: a reply's addresses are others than those of what it answers.
    fn packet_set(&self) -> Option<SetDef> {
        Some(SetDef::five_tuple())
    }

    fn timeout_ns(&self, session: &Session) -> u64 {
        self.settings.timeouts.of(session)
    }

    /// One period per protocol to sweep its leases, and one to sweep fragments.
    fn ticks(&self) -> Vec<Duration> {
        vec![Duration::from_millis(10), Duration::from_millis(10), Duration::from_millis(10), SWEEP_EVERY]
    }

    fn packet(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, session: &mut Session) -> Handled {
        if packet.port() != session.from || packet.is_fragment() {
            return self.uncached(cx, packet);
        }
        let now = cx.now();
        if now.saturating_sub(session.refreshed_ns) >= self.settings.refresh_ns {
            if !self.mappings.refresh(cx, session.protocol, session.lease)? {
                // The mapping ended because another worker's clock is far ahead: uncached until the set ends too.
                return self.uncached(cx, packet);
            }
            session.refreshed_ns = now;
        }
        if session.protocol == protocol::TCP {
            session.phase = Phase::after(session.phase, packet.tcp_flags().unwrap_or(0)) as u8;
        }
        if !packet.decrement_ttl() {
            return self.ttl_exceeded(cx, packet);
        }
        let address = IpAddress::from_v4(session.address);
        if session.way == OUTWARD {
            packet.set_src(address, session.port);
        } else {
            packet.set_dst(address, session.port);
        }
        Ok(Verdict::Forward(session.to))
    }

    fn first(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, set: &mut NewSet<'_, Session>) -> Handled {
        let found = self.find(cx, packet)?;
        if let Found::Session(session) = &found
            && let Err(reason) = self.keep(cx, packet, set, session)?
        {
            return Ok(Verdict::Drop(reason));
        }
        self.conclude(cx, packet, found)
    }

    fn orphan(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        Ok(match self.settings.non_ip {
            _ if scope::is_damaged_ip(packet) => Verdict::Drop(Reason::MALFORMED),
            Others::Pass => cx.pass(),
            Others::Drop => Verdict::Drop(UNWANTED),
        })
    }

    fn expired(&self, cx: &mut Cx<'_>, key: &SetKey, session: &Session) -> Result<(), Conflict> {
        if let (Some(peers), OUTWARD, Some(peer)) = (&self.peers, session.way, Peer::of_key(key)) {
            peers.remove(cx, &peer)?;
        }
        self.mappings.detach(cx, session.protocol, session.lease)
    }

    fn tick(&self, cx: &mut Cx<'_>, Tick(tick): Tick) -> Result<(), Conflict> {
        if tick == PROTOCOLS.len() {
            return self.fragments.sweep(cx);
        }
        self.mappings.expire(cx, tick, self.mappings.sweep_budget())?;
        Ok(())
    }
}

impl Nat {
    /// Translates by way of the mappings, as for a first packet, but keeps no set.
    #[cold]
    fn uncached(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        let found = self.find(cx, packet)?;
        self.conclude(cx, packet, found)
    }

    /// Caches a translation. Without room for it the packet goes its way all the same and so will the next, unless filtering
    /// needs to know when the flow ends.
    fn keep(
        &self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        set: &mut NewSet<'_, Session>,
        session: &Session,
    ) -> Result<Result<(), Reason>, Conflict> {
        let peers = self.peers.as_ref().filter(|_| session.way == OUTWARD);
        let peer = Peer::of(packet);
        if let (Some(peers), Some(peer)) = (peers, &peer) {
            let now = cx.now();
            if peers.insert(cx, peer, &now)? == Inserted::Full {
                return Ok(Err(MAPPING_TABLE_FULL));
            }
        }
        if set.register(cx, *session) {
            self.mappings.attach(cx, session.protocol, session.lease)?;
        } else if let (Some(peers), Some(peer)) = (peers, &peer) {
            peers.remove(cx, peer)?;
            return Ok(Err(Reason::SET_TABLE_FULL));
        }
        Ok(Ok(()))
    }

    fn conclude(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, found: Found) -> Handled {
        match found {
            Found::Session(session) => self.send(cx, packet, Rewrite::from(&session)),
            Found::Once(rewrite) => self.send(cx, packet, rewrite),
            Found::Error(error) => self.send_error(cx, packet, &error),
            Found::Untouched(port) => Ok(Verdict::Forward(port)),
            Found::No(reason) => Ok(Verdict::Drop(reason)),
        }
    }

    fn send(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, rewrite: Rewrite) -> Handled {
        let is_first_fragment = packet.is_fragment() && !packet.is_later_fragment();
        if is_first_fragment && !self.fragments.remember(cx, packet, rewrite.fate())? {
            return Ok(Verdict::Drop(fragments::TABLE_FULL));
        }
        if !packet.decrement_ttl() {
            return self.ttl_exceeded(cx, packet);
        }
        rewrite.apply(packet);
        Ok(Verdict::Forward(rewrite.to))
    }

    #[cold]
    fn ttl_exceeded(&self, cx: &mut Cx<'_>, packet: &Packet<'_>) -> Handled {
        answer::time_exceeded(cx, packet, self.settings.router);
        Ok(Verdict::Drop(Reason::TTL_EXCEEDED))
    }
}

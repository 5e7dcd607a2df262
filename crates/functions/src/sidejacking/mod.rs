//! Detects stolen HTTP sessions by a session cookie that a different client sends: Chimera's sidejacking query (Borders,
//! Springer and Burnside, USENIX Security 2012).

mod config;
mod request;

pub use config::Config;

use std::time::Duration;

use braid_nf::packet::IpAddress;
use braid_nf::packet::parse::protocol::TCP;
use braid_nf::prelude::*;
use braid_nf::state::hash::mixed;
use request::Seen;

use crate::config::idle_ns;
use crate::parts::tables::aged::{SWEEP_EVERY, Stamp};
use crate::parts::{Aged, Alerts, Unkept, seconds};
use crate::{ConfigError, FromConfig};

/// The position of a TCP session within a request, which may span several packets.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Reading {
    host: u64,
    agent: u64,
    /// The cookie's identifier, kept until the header ends.
    cookie: [u64; 2],
    /// 1 until the header ends.
    within: u16,
    /// 1 if a line of the header was cut by the end of a packet: host and browser may be unknown.
    cut: u16,
    client_reversed: u32,
}

/// A web session: a hash of host, cookie name and cookie value.
type SessionId = [u64; 2];

/// The user of a web session.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct User {
    client: IpAddress,
    agent: u64,
    seen_ns: u64,
}

impl Stamp for User {
    fn seen_ns(&self) -> u64 {
        self.seen_ns
    }
}

/// The use of a session by a second user.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Theft {
    at_ns: u64,
    owner: IpAddress,
    thief: IpAddress,
}

network_function! {
    /// Detects stolen sessions; see the README beside this file.
    #[derive(Debug)]
    pub struct Sidejacking {
        names: Vec<String>,
        by_agent: bool,
        refresh_ns: u64,
        idle_timeout_ns: u64,
        users: Aged<SessionId, User>,
        unkept: Unkept,
        alerts: Alerts<SessionId, Theft>,
    }
}

impl FromConfig for Sidejacking {
    type Config = Config;

    fn from_config(config: Config, builder: &mut StateBuilder, _: u16) -> Result<Sidejacking, ConfigError> {
        let users = Aged::new(builder, "users", config.sessions_max, idle_ns("session_s", config.session_s)?);
        let unkept = Unkept::new(builder, "unkept", "requests whose session found no room");
        Ok(Sidejacking {
            by_agent: config.by_agent,
            refresh_ns: config.refresh_ns()?,
            idle_timeout_ns: idle_ns("idle_timeout_s", config.idle_timeout_s)?,
            users: users.map_err(|error| ConfigError::state("sessions_max", &error))?,
            unkept: unkept.map_err(|error| ConfigError::state("sessions_max", &error))?,
            alerts: Alerts::new(builder, config.alerts_max).map_err(|e| ConfigError::state("alerts_max", &e))?,
            names: config.names()?,
        })
    }
}

impl NetworkFunction for Sidejacking {
    type Set = Reading;
    const NAME: &'static str = "sidejacking";

    /// The users of sessions do not depend on the configuration.
    fn inherits(&self, _older: &Self) -> Result<(), String> {
        Ok(())
    }

    fn packet_set(&self) -> Option<SetDef> {
        Some(SetDef::five_tuple().only(&[TCP]).symmetric())
    }

    fn timeout_ns(&self, _: &Reading) -> u64 {
        self.idle_timeout_ns
    }

    fn ticks(&self) -> Vec<Duration> {
        vec![SWEEP_EVERY]
    }

    fn divides(&self, _period: usize) -> bool {
        true
    }

    /// A set becomes live with its first request.
    fn first(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, set: &mut NewSet<'_, Reading>) -> Handled {
        let mut reading = Reading::default();
        let verdict = self.packet(cx, packet, &mut reading)?;
        if reading.within != 0 {
            // If the set table is full, only the first packet of a request is read.
            let _room = set.register(cx, reading);
        }
        Ok(verdict)
    }

    fn packet(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, reading: &mut Reading) -> Handled {
        let payload = packet.payload();
        let from_client = u32::from(cx.reversed()) == reading.client_reversed;
        let begins = request::begins(payload);
        if begins {
            *reading = Reading { within: 1, client_reversed: u32::from(cx.reversed()), ..Reading::default() };
        }
        if begins || (reading.within != 0 && from_client && !payload.is_empty()) {
            self.read(cx, packet, reading)?;
        }
        Ok(cx.pass())
    }

    fn orphan(&self, cx: &mut Cx<'_>, _: &mut Packet<'_>) -> Handled {
        Ok(cx.pass())
    }

    fn tick(&self, cx: &mut Cx<'_>, tick: Tick) -> Result<(), Conflict> {
        self.users.sweep(cx, tick.share)
    }

    fn report(&self, cx: &mut Cx<'_>, into: &mut Findings) -> Result<(), Conflict> {
        self.unkept.report(cx, into)?;
        self.alerts.report(cx, into, |id, theft, into| {
            let Theft { at_ns, owner, thief } = theft;
            let what = if owner == thief { "another browser of the same address" } else { "another address" };
            let detail = format!("session {:016x} of {owner} was used by {what}, at {}", id[0], seconds(*at_ns));
            into.find("sidejacking", thief, detail);
        })
    }
}

impl Sidejacking {
    /// Reads the header lines in a packet; when the header ends, the session is looked up.
    fn read(&self, cx: &mut Cx<'_>, packet: &Packet<'_>, reading: &mut Reading) -> Result<(), Conflict> {
        for seen in request::lines(packet.payload(), &self.names) {
            match seen {
                Seen::Host(value) => reading.host = mixed(value, 1),
                Seen::Agent(value) => reading.agent = mixed(value, 2),
                Seen::Cookie(name, value) => {
                    let name = mixed(name, 3);
                    reading.cookie = [mixed(value, name), mixed(value, !name)];
                }
                Seen::Cut => reading.cut = 1,
                Seen::End => {
                    reading.within = 0;
                    self.identify(cx, packet.src_ip(), reading)?;
                }
            }
        }
        Ok(())
    }

    fn identify(&self, cx: &mut Cx<'_>, client: IpAddress, reading: &Reading) -> Result<(), Conflict> {
        let [a, b] = reading.cookie;
        // Without the host, which session it is is not known.
        if (a, b) == (0, 0) || reading.cut != 0 && reading.host == 0 {
            return Ok(());
        }
        let knows_agent = reading.cut == 0 || reading.agent != 0;
        let (id, now) = ([a ^ reading.host, b ^ reading.host.rotate_left(32)], cx.now());
        let user = User { client, agent: reading.agent, seen_ns: now };
        match self.users.get(cx, &id)? {
            Some(known) if known.client != client || (self.by_agent && knows_agent && known.agent != user.agent) => {
                let theft = Theft { at_ns: now, owner: known.client, thief: client };
                self.alerts.raise(cx, &id, &theft).map(drop)
            }
            // A recent time stamp is not renewed, so most requests of a session only read.
            // The next request of the session says whose it is.
            _ if self.by_agent && !knows_agent => Ok(()),
            Some(known) if now.saturating_sub(known.seen_ns) < self.refresh_ns => Ok(()),
            _ if self.users.insert(cx, &id, &user)? => Ok(()),
            _ => self.unkept.count(cx),
        }
    }
}

#[cfg(test)]
mod tests;

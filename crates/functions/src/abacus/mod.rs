//! Accounts the TCP traffic of subscribers as a mobile core should: retransmitted bytes are not charged again, unless
//! their content differs. After Abacus (Go et al., NDSS 2014; a function of mOS, NSDI 2017).

mod config;
mod stream;

pub use config::Config;
pub use stream::Stream;

use braid_nf::packet::IpAddress;
use braid_nf::packet::headers::tcp_flags::{ACK, FIN, RST, SYN};
use braid_nf::packet::parse::protocol::TCP;
use braid_nf::prelude::*;
use braid_nf::state::{Inserted, Map, MapConfig};

use crate::config::idle_ns;
use crate::parts::{Alerts, Prefix, seconds};
use crate::{ConfigError, FromConfig};

/// A retransmitted segment with different bytes.
const TUNNELLED: Reason = Reason("tunnelled_retransmission");

/// A subscriber's payload bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Usage {
    /// Sessions.
    pub sessions: u64,
    /// New bytes, which are charged.
    pub fresh: u64,
    /// Retransmitted bytes that are not known to differ, which are not charged.
    pub repeated: u64,
    /// Retransmitted bytes with different content, which are charged.
    pub tunnelled: u64,
}

/// A TCP session, with a stream for each direction.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Session {
    subscriber: IpAddress,
    usage: Usage,
    streams: [Stream; 2],
}

impl Session {
    /// Takes the beginning or an end of a connection. The next one on the same ports has sequence numbers of its own (RFC 9293
    /// section 3.6.1), so nothing in it is a retransmission; it is another session of the subscriber.
    #[cold]
    fn turn(&mut self, (sequence, flags): (u32, u8), from: bool) {
        let own = usize::from(from);
        match flags & (SYN | ACK | RST) {
            SYN if self.streams.iter().all(Stream::is_closed) || self.streams[own].ends_before(sequence) => {
                self.streams = [Stream::default(); 2];
                self.usage.sessions += 1;
            }
            flags if flags & RST != 0 => self.streams.iter_mut().for_each(Stream::close),
            flags if flags & SYN == 0 => self.streams[own].close(),
            _ => {}
        }
    }
}

/// The first segment that showed a subscriber's retransmissions to carry other data.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Fraud {
    at_ns: u64,
    sequence: u32,
    bytes: u32,
}

network_function! {
    /// Accounts; see the README beside this file.
    #[derive(Debug)]
    pub struct Abacus {
        subscribers: Vec<Prefix>,
        drops: bool,
        idle_timeout_ns: u64,
        accounts: Map<IpAddress, Usage>,
        alerts: Alerts<IpAddress, Fraud>,
        unaccounted: Distributed<u64>,
    }
}

impl FromConfig for Abacus {
    type Config = Config;

    fn from_config(config: Config, builder: &mut StateBuilder, _: u16) -> Result<Abacus, ConfigError> {
        let accounts = MapConfig { name: "accounts".into(), capacity: config.subscribers_max, ..MapConfig::default() };
        let error = |error| ConfigError::state("subscribers_max", &error);
        Ok(Abacus {
            idle_timeout_ns: idle_ns("idle_timeout_s", config.idle_timeout_s)?,
            accounts: Map::new(builder, &accounts).map_err(error)?,
            alerts: Alerts::new(builder, config.subscribers_max).map_err(error)?,
            unaccounted: config.unaccounted(builder)?,
            drops: config.drops(),
            subscribers: config.subscribers,
        })
    }
}

impl NetworkFunction for Abacus {
    type Set = Session;
    const NAME: &'static str = "abacus";

    /// Sessions remember which end is the subscriber.
    fn inherits(&self, older: &Self) -> Result<(), String> {
        if self.subscribers != older.subscribers {
            return Err("sessions remember whose they are: `subscribers` stays".to_owned());
        }
        Ok(())
    }

    fn packet_set(&self) -> Option<SetDef> {
        Some(SetDef::five_tuple().only(&[TCP]).symmetric())
    }

    fn timeout_ns(&self, _: &Session) -> u64 {
        self.idle_timeout_ns
    }

    fn first(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, set: &mut NewSet<'_, Session>) -> Handled {
        let subscriber = self.subscriber(packet);
        let usage = Usage { sessions: 1, ..Usage::default() };
        let mut session = Session { subscriber, usage, streams: [Stream::default(); 2] };
        let verdict = self.packet(cx, packet, &mut session)?;
        match set.register(cx, session) {
            true => Ok(verdict),
            false if self.drops => Ok(Verdict::Drop(Reason::SET_TABLE_FULL)),
            false => {
                let Usage { fresh, .. } = session.usage;
                self.unaccounted.update(cx, |bytes| *bytes += fresh)?;
                Ok(verdict)
            }
        }
    }

    fn packet(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, session: &mut Session) -> Handled {
        let Some((sequence, flags)) = packet.tcp().map(|tcp| (tcp.sequence(), tcp.flags())) else {
            return Ok(cx.pass());
        };
        if flags & (SYN | FIN | RST) != 0 {
            session.turn((sequence, flags), cx.reversed());
        }
        let payload = packet.payload();
        if payload.is_empty() {
            return Ok(cx.pass());
        }
        let stream = &mut session.streams[usize::from(cx.reversed())];
        let found = stream.take(sequence, payload);
        session.usage.fresh += found.fresh;
        session.usage.repeated += found.repeated;
        session.usage.tunnelled += found.tunnelled;
        if found.tunnelled == 0 {
            return Ok(cx.pass());
        }
        let fraud = Fraud { at_ns: cx.wall(), sequence, bytes: payload.len() as u32 };
        self.alerts.raise(cx, &session.subscriber, &fraud)?;
        Ok(if self.drops { Verdict::Drop(TUNNELLED) } else { cx.pass() })
    }

    fn orphan(&self, cx: &mut Cx<'_>, _: &mut Packet<'_>) -> Handled {
        Ok(cx.pass())
    }

    fn expired(&self, cx: &mut Cx<'_>, _: &SetKey, session: &Session) -> Result<(), Conflict> {
        let more = session.usage;
        if self.accounts.update(cx, &session.subscriber, |account| account.add(&more))?.is_none()
            && self.accounts.insert(cx, &session.subscriber, &more)? == Inserted::Full
        {
            self.unaccounted.update(cx, |bytes| *bytes += more.fresh + more.tunnelled)?;
        }
        Ok(())
    }

    fn report(&self, cx: &mut Cx<'_>, into: &mut Findings) -> Result<(), Conflict> {
        into.pieces(|into, from, entries| {
            self.accounts.for_each(cx, from, entries, |_, subscriber, usage| {
                tell(subscriber, usage, into);
                Ok(braid_nf::state::Visit::Keep)
            })
        })?;
        let unaccounted = self.unaccounted.read(cx, |sum, part| *sum += part)?;
        if unaccounted > 0 {
            into.add("bytes charged to no account", unaccounted);
        }
        self.alerts.report(cx, into, |subscriber, fraud, into| {
            let Fraud { at_ns, sequence, bytes } = fraud;
            let when = seconds(*at_ns);
            let detail =
                format!("sequence {sequence} came again with other bytes ({bytes} in the segment), first at {when}");
            into.find("tunnelled_retransmission", subscriber, detail);
        })
    }

    fn report_set(&self, _: &SetKey, session: &Session, into: &mut Findings) {
        tell(&session.subscriber, &session.usage, into);
    }
}

impl Abacus {
    /// The end that is charged: the one within the subscribers' ranges, or else the sender of the first packet.
    fn subscriber(&self, packet: &Packet<'_>) -> IpAddress {
        let is_ours = |address: &IpAddress| self.subscribers.iter().any(|range| range.contains(*address));
        let ends = [packet.src_ip(), packet.dst_ip()];
        ends.into_iter().find(is_ours).unwrap_or(ends[0])
    }
}

impl Usage {
    fn add(&mut self, more: &Usage) {
        self.sessions += more.sessions;
        self.fresh += more.fresh;
        self.repeated += more.repeated;
        self.tunnelled += more.tunnelled;
    }
}

fn tell(subscriber: &IpAddress, usage: &Usage, into: &mut Findings) {
    into.add(format!("{subscriber} sessions"), usage.sessions);
    into.add(format!("{subscriber} bytes charged"), usage.fresh + usage.tunnelled);
    if usage.repeated > 0 {
        into.add(format!("{subscriber} bytes repeated"), usage.repeated);
    }
}

#[cfg(test)]
mod tests;

//! What a plan file may say about `connection_limiter`.

use std::time::Duration;

use braid_nf::Port;
use serde::Deserialize;

use super::connection::Timeouts;
use super::owners::Most;
use crate::config::{ConfigError, IDLE_MAX, check_lengths, span_ns};
use crate::parts::Sides;
use crate::token_bucket::Limit;

/// Whose connection it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// Of the host that opens it.
    Source,
    /// Of the host to which it is opened.
    Destination,
    /// Of the host inside, whoever opens it.
    Subscriber,
}

braid_nf::plain!(By);

/// What becomes of a connection that is one too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Its packets are dropped.
    Drop,
    /// They are dropped, and the sender is told: by a reset for TCP, by an ICMP error for UDP.
    Reject,
}

braid_nf::plain!(Action);

/// What becomes of a connection for which there is no room to be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenFull {
    /// Its packets are dropped: nobody has more than the limit.
    Drop,
    /// They pass, and it counts for nobody: nobody is kept out by a flood of others.
    Pass,
}

braid_nf::plain!(WhenFull);

/// Lengths of the address ranges that have limits of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Lengths {
    /// For IPv4.
    pub v4: u8,
    /// For IPv6.
    pub v6: u8,
}

impl Default for Lengths {
    fn default() -> Lengths {
        Lengths { v4: 32, v6: 64 }
    }
}

braid_nf::plain!(Lengths);

/// Configuration of [`ConnectionLimiter`](super::ConnectionLimiter).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Whose connections are limited.
    pub by: By,
    /// Limits hold for address ranges of these lengths.
    pub prefix: Lengths,
    /// Most connections at once; 0: no limit.
    pub connections_max: u32,
    /// New connections a second; none: no limit.
    pub connections_per_s: Option<u64>,
    /// New connections at once; a second's worth if not given.
    pub burst: Option<u64>,
    /// What becomes of others.
    pub action: Action,
    /// Of `by = "subscriber"`: ports behind which subscribers are; even ones if not given.
    pub inside_ports: Vec<Port>,
    /// Of `by = "subscriber"`: all others; odd ones if not given.
    pub outside_ports: Vec<Port>,
    /// Most ranges that have connections.
    pub owners_max: u32,
    /// What becomes of connections for which there is no room.
    pub when_full: WhenFull,
    /// Seconds in which a TCP connection is to be confirmed by both ends.
    pub opening_s: u64,
    /// Seconds without a packet after which an open TCP connection is over.
    pub tcp_s: u64,
    /// Seconds after which one that was closed or reset counts no more.
    pub closing_s: u64,
    /// Seconds without a packet after which a UDP exchange is over.
    pub udp_s: u64,
    /// Owners at their limit that the report has room for.
    pub alerts_max: u32,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            by: By::Source,
            prefix: Lengths::default(),
            connections_max: 1000,
            connections_per_s: None,
            burst: None,
            action: Action::Drop,
            inside_ports: Vec::new(),
            outside_ports: Vec::new(),
            owners_max: 65_536,
            when_full: WhenFull::Drop,
            opening_s: 30,
            tcp_s: 7440,
            closing_s: 10,
            udp_s: 60,
            alerts_max: 4096,
        }
    }
}

impl Config {
    pub(super) fn most(&self) -> Result<Most, ConfigError> {
        let per_second = match (self.connections_per_s, self.burst) {
            (None, None) => None,
            (None, Some(_)) => return Err(ConfigError::new("burst", "there is no `connections_per_s`", "add it")),
            (Some(rate), burst) => Some(Limit::new("connections_per_s", rate, "burst", burst.unwrap_or(rate))?),
        };
        if self.connections_max == 0 && per_second.is_none() {
            let instead = "write a number above 0, or `connections_per_s`";
            return Err(ConfigError::new("connections_max", "nothing is limited", instead));
        }
        Ok(Most { connections: self.connections_max, per_second })
    }

    pub(super) fn lengths(&self) -> Result<Lengths, ConfigError> {
        check_lengths("prefix", self.prefix.v4, self.prefix.v6)?;
        Ok(self.prefix)
    }

    pub(super) fn timeouts(&self) -> Result<Timeouts, ConfigError> {
        let span = |key, seconds| span_ns(key, Duration::from_secs(seconds), Duration::from_secs(1), IDLE_MAX);
        Ok(Timeouts {
            opening_ns: span("opening_s", self.opening_s)?,
            tcp_ns: span("tcp_s", self.tcp_s)?,
            closing_ns: span("closing_s", self.closing_s)?,
            udp_ns: span("udp_s", self.udp_s)?,
        })
    }

    pub(super) fn sides(&self, ports: u16) -> Result<Sides, ConfigError> {
        let given = !(self.inside_ports.is_empty() && self.outside_ports.is_empty());
        if given && self.by != By::Subscriber {
            let reason = "the host that opens a connection is on no side";
            return Err(ConfigError::new(
                if self.inside_ports.is_empty() { "outside_ports" } else { "inside_ports" },
                reason,
                "leave the lists out, or write `by = \"subscriber\"`",
            ));
        }
        Sides::from_lists(&self.inside_ports, &self.outside_ports, ports)
    }
}

//! The configuration of `connection_limiter`, as written in a plan file.

use braid_nf::Port;
use serde::Deserialize;

use super::connection::Timeouts;
use super::owners::Most;
use crate::config::{ConfigError, idle_ns};
use crate::parts::{Lengths, Sides};
use crate::token_bucket::Limit;

/// Which end owns a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// The host that opens it.
    Source,
    /// The host to which it is opened.
    Destination,
    /// The host inside, whichever end opens it.
    Subscriber,
}

braid_nf::plain!(By);

/// What happens to a connection beyond the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Its packets are dropped.
    Drop,
    /// They are dropped, and the sender gets a reset (TCP) or an ICMP error (UDP).
    Reject,
}

braid_nf::plain!(Action);

/// What happens to a connection that there is no room to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenFull {
    /// Its packets are dropped: no owner exceeds its limit.
    Drop,
    /// Its packets pass and it is not counted: a flood from others keeps nobody out.
    Pass,
}

braid_nf::plain!(WhenFull);

/// Prefix lengths as far as they are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Written {
    /// For IPv4; 32 by default.
    pub v4: Option<u8>,
    /// For IPv6; 64 by default, and 128 with `by = "destination"`: the servers of a link are different hosts.
    pub v6: Option<u8>,
}

/// Configuration of [`ConnectionLimiter`](super::ConnectionLimiter).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Which end owns a connection.
    pub by: By,
    /// Prefix lengths of the address ranges that are limited.
    pub prefix: Written,
    /// Concurrent connections per owner; 0: no limit.
    pub connections_max: u32,
    /// New connections per second; `None`: no limit.
    pub connections_per_s: Option<u64>,
    /// New connections at once; one second's worth by default.
    pub burst: Option<u64>,
    /// What happens to connections beyond the limits.
    pub action: Action,
    /// For `by = "subscriber"`: ports behind which subscribers are; by default the even ones.
    pub inside_ports: Vec<Port>,
    /// For `by = "subscriber"`: all other ports; by default the odd ones.
    pub outside_ports: Vec<Port>,
    /// The maximum number of owners with connections.
    pub owners_max: u32,
    /// What happens to connections that there is no room to count.
    pub when_full: WhenFull,
    /// Time in which both ends must confirm a TCP connection, in seconds.
    pub opening_s: u64,
    /// Idle time after which an open TCP connection ends, in seconds.
    pub tcp_s: u64,
    /// Time after which a closed or reset connection no longer counts, in seconds.
    pub closing_s: u64,
    /// Time after which an open connection no longer counts that only its opener has reset, in seconds.
    pub reset_s: u64,
    /// Idle time after which a UDP exchange ends, in seconds.
    pub udp_s: u64,
    /// How many refused owners the report has room for.
    pub alerts_max: u32,
    /// Resets and ICMP errors per second and port, with `action = "reject"`; 0: none.
    pub icmp_errors_per_s: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            by: By::Source,
            prefix: Written::default(),
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
            reset_s: 240,
            udp_s: 60,
            alerts_max: 4096,
            icmp_errors_per_s: 1000,
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

    /// Which addresses are one owner.
    pub(super) fn lengths(&self) -> Result<Lengths, ConfigError> {
        let Lengths { v4, v6 } = Lengths::default();
        let v6 = if self.by == By::Destination { 128 } else { v6 };
        Lengths { v4: self.prefix.v4.unwrap_or(v4), v6: self.prefix.v6.unwrap_or(v6) }.check("prefix")
    }

    pub(super) fn timeouts(&self) -> Result<Timeouts, ConfigError> {
        Ok(Timeouts {
            opening_ns: idle_ns("opening_s", self.opening_s)?,
            tcp_ns: idle_ns("tcp_s", self.tcp_s)?,
            closing_ns: idle_ns("closing_s", self.closing_s)?,
            reset_ns: idle_ns("reset_s", self.reset_s)?,
            udp_ns: idle_ns("udp_s", self.udp_s)?,
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

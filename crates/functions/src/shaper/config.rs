//! The configuration of `shaper` in a plan file.

use std::time::Duration;

use braid_nf::Port;
use serde::Deserialize;

use super::bands::Fits;
use super::borrow::{Limits, Terms};
use super::store::HELD_MAX;
use super::wheel::WAIT_MAX_NS;
use crate::config::{ConfigError, check_port, span_ns};
use crate::parts::config::counted::{BytesOf, Counted};
use crate::parts::config::many::Many;
use crate::parts::config::units;
use crate::parts::{NS_PER_MS, Prefix, SECOND};
use crate::policer::{By, Lengths};
use crate::token_bucket::Limit;

/// Configuration of [`Shaper`](super::Shaper).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Bytes a second for each address.
    #[serde(deserialize_with = "units::rate")]
    pub bytes_per_s: u64,
    /// The burst in bytes; by default a tenth of a second's worth, at least 2000.
    #[serde(deserialize_with = "units::size")]
    pub burst_bytes: Option<u64>,
    /// The most bytes that wait for one address; by default a tenth of a second's worth, at least 20,000 or seven seconds'
    /// worth, whichever is less.
    #[serde(deserialize_with = "units::size")]
    pub queue_bytes: Option<u64>,
    /// The most packets that wait, for all addresses together.
    pub queue_packets: u32,
    /// Whether source or destination addresses are shaped.
    pub by: By,
    /// The prefix lengths of address ranges to shape instead of addresses.
    pub prefix: Option<Lengths>,
    /// Shape only packets that arrive by this port; `None`: all packets.
    pub from_port: Option<Port>,
    /// What all addresses together may have.
    pub link: Option<Link>,
    /// Bytes a second that an address may have while the link has more than the others need; `None`: no borrowing.
    #[serde(deserialize_with = "units::rate")]
    pub ceil_bytes_per_s: Option<u64>,
    /// The burst in bytes at the ceiling rate; by default the larger of `burst_bytes` and two ticks' worth plus a frame.
    #[serde(deserialize_with = "units::size")]
    pub ceil_burst_bytes: Option<u64>,
    /// Bytes that an address may borrow before it is the next one's turn.
    pub quantum_bytes: Option<u32>,
    /// The most addresses of which packets wait for the link, or that may borrow; packets of others are dropped.
    pub addresses_max: Option<u32>,
    /// Groups of address ranges that share a rate, between their addresses and the link.
    pub group: Vec<Group>,
    /// Which packets go first, from the highest priority down; all others follow.
    pub priority: Vec<Fits>,
    /// Which bytes of a packet count.
    pub bytes_of: BytesOf,
    /// Bytes that are added to each packet; may be negative.
    pub overhead: i64,
    /// Packets that wait longer than this, in milliseconds, are marked as having experienced congestion if their endpoints
    /// support ECN; `None`: no packets are marked.
    pub ecn_ms: Option<u64>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            bytes_per_s: 12_500_000,
            burst_bytes: None,
            queue_bytes: None,
            queue_packets: 4096,
            by: By::Destination,
            prefix: None,
            from_port: None,
            link: None,
            ceil_bytes_per_s: None,
            ceil_burst_bytes: None,
            quantum_bytes: None,
            addresses_max: None,
            group: Vec::new(),
            priority: Vec::new(),
            bytes_of: BytesOf::Frame,
            overhead: 0,
            ecn_ms: None,
        }
    }
}

/// A rate for all addresses together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Bytes a second.
    #[serde(deserialize_with = "units::rate")]
    pub bytes_per_s: u64,
    /// The burst in bytes.
    #[serde(deserialize_with = "units::size")]
    pub burst_bytes: u64,
}

/// The rates of addresses in some ranges.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// The ranges.
    pub prefixes: Many<Prefix>,
    /// What they have together; `None`: they are directly below the link, like addresses in no group.
    pub total: Option<Rates>,
    /// What each of them has; `None`: what all addresses have.
    pub each: Option<Rates>,
}

/// A guaranteed rate, and a ceiling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rates {
    /// Guaranteed bytes a second.
    #[serde(deserialize_with = "units::rate")]
    pub bytes_per_s: u64,
    /// The burst in bytes.
    #[serde(default, deserialize_with = "units::size")]
    pub burst_bytes: Option<u64>,
    /// Bytes a second including what is borrowed; by default as `bytes_per_s`.
    #[serde(default, deserialize_with = "units::rate")]
    pub ceil_bytes_per_s: Option<u64>,
    /// The burst in bytes at the ceiling rate.
    #[serde(default, deserialize_with = "units::size")]
    pub ceil_burst_bytes: Option<u64>,
}

/// The smallest burst: a smaller bucket would be full between two ticks, and lose what flows in.
fn least_burst(rate: u64, counted: Counted) -> u64 {
    rate / 500 + counted.most(HELD_MAX)
}

fn enough_for_ticks(key: &str, (rate, limit): (u64, Limit), counted: Counted) -> Result<(), ConfigError> {
    let least = least_burst(rate, counted);
    if limit.burst() >= least {
        return Ok(());
    }
    let reason = format!("{} bytes are less than two ticks' worth and a packet", limit.burst());
    Err(ConfigError::new(key, reason, format!("write at least {least}")))
}

impl Rates {
    /// Checks both limits; `at` is the prefix of the keys in errors.
    fn limits(&self, at: &str, counted: Counted) -> Result<Limits, ConfigError> {
        let key = |key: &str| format!("{at}{key}");
        let burst = self.burst_bytes.unwrap_or(Limit::usual_burst(self.bytes_per_s, 2000));
        let own = Limit::new(&key("bytes_per_s"), self.bytes_per_s, &key("burst_bytes"), burst)?;
        let rate = self.ceil_bytes_per_s.unwrap_or(self.bytes_per_s);
        if rate < self.bytes_per_s {
            let reason = format!("{rate} is less than `bytes_per_s`");
            let instead = format!("write at least {}", self.bytes_per_s);
            return Err(ConfigError::new(&key("ceil_bytes_per_s"), reason, instead));
        }
        let burst = self.ceil_burst_bytes.unwrap_or(burst.max(least_burst(rate, counted)));
        let ceil = Limit::new(&key("ceil_bytes_per_s"), rate, &key("ceil_burst_bytes"), burst)?;
        enough_for_ticks(&key("ceil_burst_bytes"), (rate, ceil), counted)?;
        Ok(Limits { own, ceil })
    }
}

impl Config {
    pub(super) fn limit(&self) -> Result<Limit, ConfigError> {
        let burst = self.burst_bytes.unwrap_or(Limit::usual_burst(self.bytes_per_s, 2000));
        let limit = Limit::new("bytes_per_s", self.bytes_per_s, "burst_bytes", burst)?;
        if self.ceil_bytes_per_s.is_none() {
            self.counted()?.check_burst("burst_bytes", burst)?;
        }
        Ok(limit)
    }

    pub(super) fn link_limit(&self) -> Result<Option<Limit>, ConfigError> {
        let limit = |Link { bytes_per_s, burst_bytes }: Link| {
            let limit = Limit::new("link.bytes_per_s", bytes_per_s, "link.burst_bytes", burst_bytes)?;
            self.counted()?.check_burst("link.burst_bytes", burst_bytes).map(|()| limit)
        };
        self.link.map(limit).transpose()
    }

    /// Checks that nothing about borrowing is configured without a ceiling.
    pub(super) fn without_borrowing(&self) -> Result<(), ConfigError> {
        let given = [
            ("ceil_burst_bytes", self.ceil_burst_bytes.is_some()),
            ("quantum_bytes", self.quantum_bytes.is_some()),
            ("group", !self.group.is_empty()),
            ("priority", !self.priority.is_empty()),
        ];
        if self.addresses_max.is_some() && self.link.is_none() {
            let reason = "without a link each address waits for itself, and has no place in a table";
            return Err(ConfigError::new("addresses_max", reason, "give `link`, or leave it out"));
        }
        match given.iter().find(|(_, given)| *given) {
            Some((key, _)) => Err(ConfigError::new(key, "nobody borrows", "give `ceil_bytes_per_s`")),
            None => Ok(()),
        }
    }

    /// The link's limit, and the terms of groups, the first of which are those of addresses in no group.
    pub(super) fn borrowing(&self) -> Result<(Limit, Vec<Terms>), ConfigError> {
        let each = Rates {
            bytes_per_s: self.bytes_per_s,
            burst_bytes: self.burst_bytes,
            ceil_bytes_per_s: self.ceil_bytes_per_s,
            ceil_burst_bytes: self.ceil_burst_bytes,
        };
        if self.prefix.is_some() {
            let instead = "leave it out, or leave out `ceil_bytes_per_s`";
            return Err(ConfigError::new("prefix", "addresses that borrow do so each for itself", instead));
        }
        let counted = self.counted()?;
        let each = each.limits("", counted)?;
        let (Some(link), Some(Link { bytes_per_s: rate, .. })) = (self.link_limit()?, self.link) else {
            let instead = "give `link`, such as { bytes_per_s = 12500000, burst_bytes = 50000 }";
            return Err(ConfigError::new("link", "there is nothing to borrow from", instead));
        };
        enough_for_ticks("link.burst_bytes", (rate, link), counted)?;
        self.ranges_in_one_group()?;
        if self.quantum_bytes == Some(0) {
            return Err(ConfigError::new("quantum_bytes", "0 bytes are no turn", "write 1514 or more: a whole packet"));
        }
        if let Some(number) = self.group.iter().position(|group| group.total.is_none() && group.each.is_none()) {
            let instead = "write `total`, `each` or both, or leave it out";
            return Err(
                ConfigError::new("group", "nothing is said about what its addresses have", instead).of("group", number)
            );
        }
        let mut terms = vec![Terms { total: None, each }];
        for group in &self.group {
            let total = group.total.map(|total| total.limits("group.total.", counted)).transpose()?;
            if let (Some(limits), Some(total)) = (total, group.total) {
                enough_for_ticks("group.total.burst_bytes", (total.bytes_per_s, limits.own), counted)?;
            }
            let each = group.each.map_or(Ok(each), |each| each.limits("group.each.", counted))?;
            terms.push(Terms { total, each });
        }
        Ok((link, terms))
    }

    /// The address ranges of groups, each with the index of its group's terms.
    pub(super) fn ranges(&self) -> Vec<(Prefix, u32)> {
        let of =
            |(at, group): (usize, &Group)| group.prefixes.0.iter().map(move |range| (*range, at as u32 + 1)).collect();
        self.group.iter().enumerate().flat_map::<Vec<_>, _>(of).collect()
    }

    /// Checks that no range belongs to two groups.
    fn ranges_in_one_group(&self) -> Result<(), ConfigError> {
        let ranges = self.ranges();
        let again =
            ranges.iter().enumerate().find(|&(at, (range, _))| ranges[..at].iter().any(|(other, _)| other == range));
        let Some((_, (range, group))) = again else { return Ok(()) };
        let key = format!("group[{}].prefixes", group - 1);
        Err(ConfigError::new(
            &key,
            format!("{range} stands there twice"),
            "write it once, in one group with `total` and `each`",
        ))
    }

    /// The most bytes that may wait for an address.
    pub(super) fn queue_bytes(&self) -> Result<u64, ConfigError> {
        let rate = self.bytes_per_s.max(1);
        let default = (rate / 10).max(20_000).min(rate.saturating_mul(7));
        let bytes = self.queue_bytes.unwrap_or(default);
        let most = u128::from(rate) * u128::from(WAIT_MAX_NS) / u128::from(SECOND);
        if u128::from(bytes) > most {
            let reason = format!("at {rate} a second a queue of {bytes} bytes takes longer than seven seconds");
            return Err(ConfigError::new("queue_bytes", reason, format!("write at most {most}")));
        }
        Ok(bytes)
    }

    /// The longest that a packet may have to wait for its address: as long as a full queue takes.
    pub(super) fn wait_max_ns(&self) -> Result<u64, ConfigError> {
        let wait = u128::from(self.queue_bytes()?) * u128::from(SECOND) / u128::from(self.bytes_per_s.max(1));
        Ok(wait as u64)
    }

    /// How bytes are counted.
    pub(super) fn counted(&self) -> Result<Counted, ConfigError> {
        Counted::new(self.bytes_of, self.overhead)
    }

    /// The wait after which packets are marked. With a link, packets may wait longer than a full queue of their own address
    /// takes.
    pub(super) fn mark_ns(&self) -> Result<Option<u64>, ConfigError> {
        let Some(ms) = self.ecn_ms else { return Ok(None) };
        let most = Duration::from_secs(7);
        let mark_ns = span_ns("ecn_ms", Duration::from_millis(ms), Duration::from_millis(1), most)?;
        // A packet leaves in a tick, so up to one tick later than it is due.
        let longest_ms = (self.wait_max_ns()? / NS_PER_MS).saturating_add(1);
        if self.link.is_none() && ms >= longest_ms {
            let reason = format!("a full queue of an address takes {} ms, so nothing waits for {ms}", longest_ms - 1);
            let instead = match longest_ms {
                1 => "write a larger `queue_bytes`, or leave it out".to_owned(),
                _ => format!("write at most {}, or a larger `queue_bytes`", longest_ms - 1),
            };
            return Err(ConfigError::new("ecn_ms", reason, instead));
        }
        Ok(Some(mark_ns))
    }

    pub(super) fn checked_port(&self, ports: u16) -> Result<Option<Port>, ConfigError> {
        self.from_port.map(|port| check_port("from_port", port, ports)).transpose()
    }
}

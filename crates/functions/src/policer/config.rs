//! The configuration of `policer`, as written in a plan file.

use braid_nf::Port;
use serde::Deserialize;

use super::meter::Meter;
use crate::config::{ConfigError, check_port, has_twice, lacks};
use crate::parts;
use crate::parts::config::counted::{BytesOf, Counted};
use crate::parts::config::units::{self, Amount};
use crate::parts::headers::dscp::CodePoint;
use crate::token_bucket::Limit;

/// Configuration of [`Policer`](super::Policer).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// How packets are coloured.
    pub meter: Kind,
    /// Rate of one address in bytes per second; 12,500,000 if no rate is given.
    #[serde(deserialize_with = "units::rate")]
    pub bytes_per_s: Option<u64>,
    /// Burst of one address in bytes; by default a tenth of a second's worth.
    #[serde(deserialize_with = "units::size")]
    pub burst_bytes: Option<u64>,
    /// Rate in packets per second, instead of bytes.
    pub packets_per_s: Option<u64>,
    /// Burst in packets; by default a tenth of a second's worth, but at least 10.
    pub burst_packets: Option<u64>,
    /// For `srtcm` and `rfc4115`: the excess burst, in the unit of the rate.
    #[serde(deserialize_with = "units::size")]
    pub excess_burst: Option<Amount>,
    /// For `rfc4115`: the excess rate, in the unit of the rate.
    #[serde(deserialize_with = "units::rate")]
    pub excess_per_s: Option<Amount>,
    /// For `trtcm`: the peak rate, in the unit of the rate.
    #[serde(deserialize_with = "units::rate")]
    pub peak_per_s: Option<Amount>,
    /// For `trtcm`: the peak burst, in the unit of the rate.
    #[serde(deserialize_with = "units::size")]
    pub peak_burst: Option<Amount>,
    /// Whether packets that arrive marked yellow or red keep at least that colour.
    pub colour_aware: bool,
    /// From which colour on packets are dropped.
    pub drop: Drops,
    /// The code points to write, by colour.
    pub dscp: Marks,
    /// Which address is policed.
    pub by: By,
    /// The prefix lengths of address ranges to police instead of addresses.
    pub prefix: Option<Lengths>,
    /// The port whose arriving packets are policed; `None`: all.
    pub from_port: Option<Port>,
    /// The limit for all sets together.
    pub link: Option<Link>,
    /// Which bytes of a packet count.
    pub bytes_of: BytesOf,
    /// Bytes to add to each packet.
    pub overhead: i64,
    /// Whether packets and bytes of each colour are counted.
    pub counts: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            meter: Kind::Single,
            bytes_per_s: None,
            burst_bytes: None,
            packets_per_s: None,
            burst_packets: None,
            excess_burst: None,
            excess_per_s: None,
            peak_per_s: None,
            peak_burst: None,
            colour_aware: false,
            drop: Drops::Red,
            dscp: Marks::default(),
            by: By::Destination,
            prefix: None,
            from_port: None,
            link: None,
            bytes_of: BytesOf::Frame,
            overhead: 0,
            counts: false,
        }
    }
}

/// The kinds of meter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// One token bucket.
    Single,
    /// Single rate, three colours (RFC 2697).
    Srtcm,
    /// Two rates, three colours (RFC 2698).
    Trtcm,
    /// Two rates, three colours (RFC 4115).
    Rfc4115,
}

/// Which address of a packet is policed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// The destination address.
    Destination,
    /// The source address.
    Source,
}

braid_nf::plain!(By, Marks, Lengths);

/// Code points by colour; `None`: unchanged. A red packet is dropped unless it has a code point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Marks {
    /// For green packets.
    pub green: Option<CodePoint>,
    /// For yellow packets.
    pub yellow: Option<CodePoint>,
    /// For red packets.
    pub red: Option<CodePoint>,
}

/// From which colour on packets are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Drops {
    /// Red ones, unless they have a mark.
    Red,
    /// Yellow ones too, which take nothing from any bucket: only what all buckets hold passes, as with `peakrate` of tc.
    Yellow,
}

/// Prefix lengths of address ranges, and their maximum number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Lengths {
    /// For IPv4.
    pub v4: u8,
    /// For IPv6.
    pub v6: u8,
    /// The maximum number of ranges at a time.
    pub capacity: u32,
}

impl Default for Lengths {
    fn default() -> Lengths {
        Lengths { v4: 24, v6: 64, capacity: 65_536 }
    }
}

impl Lengths {
    /// The prefix lengths alone.
    pub(crate) fn bits(self) -> parts::Lengths {
        parts::Lengths { v4: self.v4, v6: self.v6 }
    }
}

/// A limit for all sets together. Rate and burst are each given in the unit of the sets' rate, or in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Link {
    /// The rate per second, in the unit of the sets' rate.
    #[serde(deserialize_with = "units::rate")]
    pub per_s: Option<Amount>,
    /// The burst, in the unit of the sets' rate.
    #[serde(deserialize_with = "units::size")]
    pub burst: Option<Amount>,
    /// The rate in bytes per second, if bytes are counted.
    #[serde(deserialize_with = "units::rate")]
    pub bytes_per_s: Option<Amount>,
    /// The burst in bytes, if bytes are counted.
    #[serde(deserialize_with = "units::size")]
    pub burst_bytes: Option<Amount>,
}

impl Link {
    /// Reads the rate or the burst, each of which has two keys.
    fn number(
        (key, value): (&str, Option<Amount>),
        (of_bytes, bytes): (&str, Option<Amount>),
        in_packets: bool,
    ) -> Result<u64, ConfigError> {
        let at = |key: &str| format!("link.{key}");
        match (value, bytes) {
            (Some(_), Some(_)) => Err(has_twice(&at(key), key)),
            (None, Some(_)) if in_packets => {
                let instead = format!("write `{key} = …`, a number of packets");
                Err(ConfigError::new(&at(of_bytes), "packets are counted, and this is of bytes", instead))
            }
            (Some(value), None) => value.of(&at(key), in_packets),
            (None, Some(bytes)) => Ok(bytes.into()),
            (None, None) => Err(lacks(&at(key), key)),
        }
    }
}

const BYTES_PER_S_DEFAULT: u64 = 12_500_000;

impl Config {
    /// Whether packets are counted instead of bytes.
    pub(super) fn in_packets(&self) -> Result<bool, ConfigError> {
        let bytes = self.bytes_per_s.is_some() || self.burst_bytes.is_some();
        let packets = self.packets_per_s.is_some() || self.burst_packets.is_some();
        if bytes && packets {
            let instead = "keep either the keys with bytes or those with packets; two functions in a row do both";
            return Err(ConfigError::new("packets_per_s", "packets and bytes are limited at once", instead));
        }
        Ok(packets)
    }

    /// How the bytes of a packet are counted.
    pub(super) fn counted(&self) -> Result<Counted, ConfigError> {
        let counted = Counted::new(self.bytes_of, self.overhead)?;
        if self.in_packets()? && !counted.is_plain() {
            let key = if self.overhead == 0 { "bytes_of" } else { "overhead" };
            return Err(ConfigError::new(key, "packets are counted, and no bytes of them", "leave it out"));
        }
        Ok(counted)
    }

    fn committed(&self) -> Result<Limit, ConfigError> {
        if self.in_packets()? {
            let Some(rate) = self.packets_per_s else {
                return Err(ConfigError::new("burst_packets", "there is no `packets_per_s`", "add it"));
            };
            return Limit::new(
                "packets_per_s",
                rate,
                "burst_packets",
                self.burst_packets.unwrap_or(Limit::usual_burst(rate, 10)),
            );
        }
        let rate = self.bytes_per_s.unwrap_or(BYTES_PER_S_DEFAULT);
        Limit::new("bytes_per_s", rate, "burst_bytes", self.burst_bytes.unwrap_or(Limit::usual_burst(rate, 2000)))
    }

    pub(super) fn meter(&self) -> Result<Meter, ConfigError> {
        let committed = self.committed()?;
        let rate = self.packets_per_s.or(self.bytes_per_s).unwrap_or(BYTES_PER_S_DEFAULT);
        self.refuse_strangers()?;
        let in_packets = self.in_packets()?;
        let needed = |key: &str, value: Option<Amount>| {
            let missing = || ConfigError::new(key, format!("missing for `{}`", self.meter.name()), "add it");
            value.ok_or_else(missing)?.of(key, in_packets)
        };
        let passes = |key: &str, limit: Limit| match in_packets || self.dscp.red.is_some() {
            // If not, all packets get the mark, which may be intended.
            true => Ok(limit),
            false => self.counted()?.check_burst(key, limit.burst()).map(|()| limit),
        };
        Ok(match self.meter {
            Kind::Single => Meter::Single(passes("burst_bytes", committed)?),
            Kind::Srtcm => {
                let burst = needed("excess_burst", self.excess_burst)?;
                Meter::SingleRate { committed, excess: Limit::new("bytes_per_s", rate, "excess_burst", burst)? }
            }
            Kind::Trtcm => {
                let (peak, burst) = (needed("peak_per_s", self.peak_per_s)?, needed("peak_burst", self.peak_burst)?);
                if peak < rate {
                    let reason = format!("{peak} is below the committed rate of {rate}");
                    return Err(ConfigError::new("peak_per_s", reason, "write at least that (RFC 2698 section 2)"));
                }
                let peak = passes("peak_burst", Limit::new("peak_per_s", peak, "peak_burst", burst)?)?;
                Meter::TwoRate { committed, peak }
            }
            Kind::Rfc4115 => {
                let excess = needed("excess_per_s", self.excess_per_s)?;
                let burst = needed("excess_burst", self.excess_burst)?;
                Meter::TwoRateApart { committed, excess: Limit::new("excess_per_s", excess, "excess_burst", burst)? }
            }
        })
    }

    /// Rejects keys that belong to another meter than the chosen one.
    fn refuse_strangers(&self) -> Result<(), ConfigError> {
        let excess = matches!(self.meter, Kind::Srtcm | Kind::Rfc4115);
        for (key, value, belongs) in [
            ("excess_burst", self.excess_burst, excess),
            ("excess_per_s", self.excess_per_s, self.meter == Kind::Rfc4115),
            ("peak_per_s", self.peak_per_s, self.meter == Kind::Trtcm),
            ("peak_burst", self.peak_burst, self.meter == Kind::Trtcm),
        ] {
            if value.is_some() && !belongs {
                let reason = format!("the meter `{}` has none", self.meter.name());
                return Err(ConfigError::new(key, reason, "leave it out, or choose another `meter`"));
            }
        }
        let has_yellow = self.meter != Kind::Single || self.colour_aware;
        if self.drop == Drops::Yellow && !has_yellow {
            let instead = "leave it out, or choose another `meter`, or colour_aware = true";
            return Err(ConfigError::new("drop", "the meter `single` makes no packet yellow", instead));
        }
        if self.drop == Drops::Yellow && (self.dscp.yellow.is_some() || self.dscp.red.is_some()) {
            let reason = "yellow and red packets are dropped, so nothing is written into them";
            return Err(ConfigError::new("drop", reason, "leave it out, or `yellow` and `red` of `dscp`"));
        }
        if self.dscp.yellow.is_some() && !has_yellow {
            let instead = "leave it out, or choose another `meter`, or colour_aware = true";
            return Err(ConfigError::new("dscp.yellow", "the meter `single` makes no packet yellow", instead));
        }
        Ok(())
    }

    /// The limit for all sets together.
    pub(super) fn link_limit(&self) -> Result<Option<Limit>, ConfigError> {
        let Some(link) = self.link else { return Ok(None) };
        let in_packets = self.in_packets()?;
        let per_s = Link::number(("per_s", link.per_s), ("bytes_per_s", link.bytes_per_s), in_packets)?;
        let burst = Link::number(("burst", link.burst), ("burst_bytes", link.burst_bytes), in_packets)?;
        let limit = Limit::new("link.per_s", per_s, "link.burst", burst)?;
        if !in_packets {
            self.counted()?.check_burst("link.burst", burst)?;
        }
        Ok(Some(limit))
    }

    pub(super) fn checked_port(&self, ports: u16) -> Result<Option<Port>, ConfigError> {
        self.from_port.map(|port| check_port("from_port", port, ports)).transpose()
    }
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Single => "single",
            Kind::Srtcm => "srtcm",
            Kind::Trtcm => "trtcm",
            Kind::Rfc4115 => "rfc4115",
        }
    }
}

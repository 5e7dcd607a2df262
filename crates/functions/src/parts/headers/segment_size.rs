//! MSS clamping (RFC 4459 section 3.2): the segments that begin a TCP connection announce no more than the links on the way take, where
//! the "packet too big" errors that would say so get lost, as behind PPPoE and tunnels.

use std::fmt;

use braid_nf::packet::headers::{Header, Ipv4, Ipv6, Tcp, tcp_flags};
use braid_nf::{Packet, plain};
use serde::de::{Deserialize, Deserializer, Error, Visitor};

use crate::config::ConfigError;

/// Bytes before the data of a segment without options.
pub(crate) const HEADERS_V4: u16 = (Ipv4::LEN + Tcp::LEN) as u16;
pub(crate) const HEADERS_V6: u16 = (Ipv6::LEN + Tcp::LEN) as u16;

/// What RFC 9293 section 3.7.1 takes for granted over IPv4, and what the longest packets that are handled have room for.
const SIZES: std::ops::RangeInclusive<u16> = 536..=9216 - HEADERS_V4;

/// What a plan file says: `false`, `true` for what fits the configured MTUs, or bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClampMss {
    /// Segments are left alone.
    #[default]
    Off,
    /// To what fits the MTUs of the function.
    ToMtu,
    /// To this many bytes over IPv4.
    To(u16),
}

impl ClampMss {
    /// The limit over IPv4, where the MTUs of the function leave room for `fitting`, if it has any.
    pub(crate) fn limit(self, fitting: Option<u16>, mtus: &str) -> Result<Limit, ConfigError> {
        let wrong = |reason: String, instead: String| Err(ConfigError::new("clamp_mss", reason, instead));
        match (self, fitting) {
            (ClampMss::Off, _) => Ok(Limit(u16::MAX)),
            (ClampMss::To(size), _) if SIZES.contains(&size) => Ok(Limit(size)),
            (ClampMss::To(size), _) => wrong(
                format!("{size} is out of range"),
                format!("write {} to {}: 1452 for PPPoE (an MTU of 1492)", SIZES.start(), SIZES.end()),
            ),
            (ClampMss::ToMtu, Some(fitting)) => Ok(Limit(fitting)),
            (ClampMss::ToMtu, None) => {
                wrong("there is no MTU to fit".to_owned(), format!("add {mtus}, or write the bytes: clamp_mss = 1452"))
            }
        }
    }
}

impl<'de> Deserialize<'de> for ClampMss {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ClampMss, D::Error> {
        deserializer.deserialize_any(Written)
    }
}

struct Written;

impl Visitor<'_> for Written {
    type Value = ClampMss;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("true, false or a number of bytes, 1452 for example")
    }

    fn visit_bool<E: Error>(self, is_on: bool) -> Result<ClampMss, E> {
        Ok(if is_on { ClampMss::ToMtu } else { ClampMss::Off })
    }

    fn visit_i64<E: Error>(self, bytes: i64) -> Result<ClampMss, E> {
        let wrong = |_| E::invalid_value(serde::de::Unexpected::Signed(bytes), &self);
        u16::try_from(bytes).map(ClampMss::To).map_err(wrong)
    }
}

/// Most bytes of data in a segment, over IPv4. The largest is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit(u16);

plain!(Limit);

impl Limit {
    /// What fits an MTU.
    #[inline(always)]
    pub(crate) fn of_mtu(mtu: u16) -> Limit {
        Limit(mtu.saturating_sub(HEADERS_V4))
    }

    /// Lowers what a segment with SYN announces. Over IPv6 headers are longer.
    #[inline(always)]
    pub(crate) fn clamp(self, packet: &mut Packet<'_>) {
        let is_v4 = || packet.src_ip().is_v4();
        self.clamp_to(packet, if self.0 == u16::MAX || is_v4() { self.0 } else { self.0 - (HEADERS_V6 - HEADERS_V4) });
    }

    /// The same where headers are not those of the packet: a translator between IP versions knows what fits either.
    #[inline(always)]
    pub(crate) fn clamp_to_itself(self, packet: &mut Packet<'_>) {
        self.clamp_to(packet, self.0);
    }

    #[inline(always)]
    fn clamp_to(self, packet: &mut Packet<'_>, most: u16) {
        if most != u16::MAX && packet.tcp_flags().is_some_and(|flags| flags & tcp_flags::SYN != 0) {
            packet.lower_segment_size(most);
        }
    }
}

//! An address with a port or a range of ports, as written in a plan file: `192.0.2.1:80`, `[2001:db8::5]:5000-5100`.

use std::fmt::{Display, Formatter};
use std::net::{AddrParseError, SocketAddrV4, SocketAddrV6};
use std::str::FromStr;

use braid_nf::packet::IpAddress;
use serde::Deserialize;

use crate::config::ConfigError;

/// An address with a port.
pub trait End: Copy + Display + FromStr<Err = AddrParseError> {
    /// The address.
    fn address(&self) -> IpAddress;
    /// The port.
    fn port(&self) -> u16;
    /// Returns the same address with another port.
    fn with_port(self, port: u16) -> Self;
}

impl End for SocketAddrV4 {
    fn address(&self) -> IpAddress {
        (*self.ip()).into()
    }

    fn port(&self) -> u16 {
        SocketAddrV4::port(self)
    }

    fn with_port(mut self, port: u16) -> SocketAddrV4 {
        self.set_port(port);
        self
    }
}

impl End for SocketAddrV6 {
    fn address(&self) -> IpAddress {
        (*self.ip()).into()
    }

    fn port(&self) -> u16 {
        SocketAddrV6::port(self)
    }

    fn with_port(mut self, port: u16) -> SocketAddrV6 {
        self.set_port(port);
        self
    }
}

/// A range of one or more ports of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String", bound = "A: End")]
pub struct Endpoints<A> {
    first: A,
    last: u16,
}

/// The error for a text that is not an address with ports.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointsError {
    /// The address with the first port is malformed.
    #[error("{0}")]
    Address(#[from] AddrParseError),
    /// The text after the hyphen is not a valid last port.
    #[error("`{0}` is no range of ports, expected `192.0.2.1:5000-5100`")]
    Last(String),
}

impl<A: End> TryFrom<String> for Endpoints<A> {
    type Error = EndpointsError;

    fn try_from(text: String) -> Result<Endpoints<A>, EndpointsError> {
        let Some((first, last)) = text.split_once('-') else {
            let first = text.parse::<A>()?;
            return Ok(Endpoints { last: first.port(), first });
        };
        let first = first.parse::<A>()?;
        match last.parse() {
            Ok(last) if last > first.port() => Ok(Endpoints { first, last }),
            _ => Err(EndpointsError::Last(text)),
        }
    }
}

impl<A: End> Display for Endpoints<A> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self.len() {
            1 => write!(f, "{}", self.first),
            _ => write!(f, "{}-{}", self.first, self.last),
        }
    }
}

impl<A: End> Endpoints<A> {
    fn all(self) -> impl Iterator<Item = A> {
        (self.first.port()..=self.last).map(move |port| self.first.with_port(port))
    }

    /// Their address.
    pub fn address(&self) -> IpAddress {
        self.first.address()
    }

    /// Whether a port is one of them.
    pub fn has(&self, port: u16) -> bool {
        (self.first.port()..=self.last).contains(&port)
    }

    fn len(&self) -> usize {
        usize::from(self.last - self.first.port()) + 1
    }

    /// Pairs each endpoint with the one at the same place in `others`.
    pub fn paired<B: End>(self, others: Endpoints<B>) -> Result<impl Iterator<Item = (A, B)>, ConfigError> {
        if self.len() != others.len() {
            let reason = format!("{self} has {} ports, and {others} has {}", self.len(), others.len());
            return Err(ConfigError::new("static", reason, "write as many on both sides"));
        }
        Ok(self.all().zip(others.all()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<A: End>(text: &str) -> Result<Vec<String>, String> {
        let read = Endpoints::<A>::try_from(text.to_owned()).map_err(|error| error.to_string())?;
        Ok(read.all().map(|end| end.to_string()).collect())
    }

    #[test]
    fn one_port_or_several_in_a_row() {
        assert_eq!(read::<SocketAddrV4>("192.0.2.1:80").unwrap(), ["192.0.2.1:80"]);
        assert_eq!(read::<SocketAddrV4>("192.0.2.1:80-82").unwrap(), ["192.0.2.1:80", "192.0.2.1:81", "192.0.2.1:82"]);
        assert_eq!(read::<SocketAddrV6>("[2001:db8::5]:9-10").unwrap(), ["[2001:db8::5]:9", "[2001:db8::5]:10"]);
        assert_eq!(read::<SocketAddrV4>("192.0.2.1:1-65535").unwrap().len(), 65535);
        for text in
            ["192.0.2.1:82-80", "192.0.2.1:80-80", "192.0.2.1:80-", "192.0.2.1:80-65536", "192.0.2.1:80-192.0.2.1:82"]
        {
            let error = read::<SocketAddrV4>(text).unwrap_err();
            assert_eq!(error, format!("`{text}` is no range of ports, expected `192.0.2.1:5000-5100`"));
        }
        for text in ["192.0.2.1", "192.0.2.1-192.0.2.2:80", "[2001:db8::5]:9-10"] {
            assert_eq!(read::<SocketAddrV4>(text).unwrap_err(), "invalid IPv4 socket address syntax");
        }
    }
}

//! A packet as fields with values: what a line says about it, or what was read from a frame. Absent fields are not compared.

use braid_packet::IpVersion;
use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::net::IpAddr;

use super::words;

/// What can be said about a packet, in the order in which it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Field {
    /// Ethernet source.
    MacSource,
    /// Ethernet destination.
    MacDestination,
    /// VLAN tags, outer first, joined by dots, each with its priority after a slash if it has one; `none`.
    Vlan,
    /// `udp`, `tcp`, `icmp`, `icmp6`, `arp`, `ip`, or the number of an Ethernet type.
    Kind,
    /// ICMP type or ARP operation.
    Operation,
    /// Source address.
    Source,
    /// Source port.
    SourcePort,
    /// Destination address.
    Destination,
    /// Destination port.
    DestinationPort,
    /// TCP flags.
    Flags,
    /// ICMP code.
    Code,
    /// ICMP identifier.
    IcmpId,
    /// Sequence number of TCP or of an ICMP echo.
    Sequence,
    /// TCP acknowledgment number.
    Acknowledgment,
    /// TCP window.
    Window,
    /// TCP options, as bytes.
    Options,
    /// Next-hop MTU of an ICMP error.
    Mtu,
    /// IP protocol number.
    Protocol,
    /// Time to live or hop limit.
    Ttl,
    /// Type of service or traffic class.
    Tos,
    /// Whether fragmentation is forbidden.
    DontFragment,
    /// IPv4 identification, or that of an IPv6 fragment header.
    Identification,
    /// Options of the IPv4 header, or of an IPv6 hop-by-hop header, as bytes.
    IpOptions,
    /// The range of bytes of its datagram that it contains.
    Piece,
    /// Whether more fragments follow.
    More,
    /// `none` for UDP without a checksum, `wrong` for an incorrect one.
    Checksum,
    /// `wrong` for an incorrect checksum of the IPv4 header.
    IpChecksum,
    /// Length of the IPv4 header as stated in the header, in words of four bytes.
    IpHeader,
    /// Total length of IPv4 or payload length of IPv6, as stated in the header.
    IpLength,
    /// Length of the TCP header as stated in the header, in words of four bytes.
    TcpHeader,
    /// Length of UDP as stated in its header.
    UdpLength,
    /// Length of the frame in bytes: it is truncated or padded with zeros to this length.
    Frame,
    /// Number of bytes of the frame that a capture with a snap length has kept.
    Captured,
    /// Number of bytes after the last header.
    Length,
    /// The bytes after the last header.
    Data,
    /// What stands behind the packet that an ICMP error quotes (RFC 4884), as bytes.
    Extension,
    /// The packet that an ICMP error quotes.
    Quote,
}

/// Fields that are written as a name and a value.
pub const NAMED: [(&str, Field); 27] = [
    ("flags", Field::Flags),
    ("code", Field::Code),
    ("id", Field::IcmpId),
    ("seq", Field::Sequence),
    ("ack", Field::Acknowledgment),
    ("win", Field::Window),
    ("options", Field::Options),
    ("mtu", Field::Mtu),
    ("proto", Field::Protocol),
    ("ttl", Field::Ttl),
    ("tos", Field::Tos),
    ("df", Field::DontFragment),
    ("ipid", Field::Identification),
    ("ipoptions", Field::IpOptions),
    ("piece", Field::Piece),
    ("more", Field::More),
    ("checksum", Field::Checksum),
    ("ipchecksum", Field::IpChecksum),
    ("ihl", Field::IpHeader),
    ("iplen", Field::IpLength),
    ("doff", Field::TcpHeader),
    ("udplen", Field::UdpLength),
    ("frame", Field::Frame),
    ("captured", Field::Captured),
    ("len", Field::Length),
    ("data", Field::Data),
    ("extension", Field::Extension),
];

impl Field {
    /// The name of the field in a line.
    pub fn name(self) -> &'static str {
        match self {
            Field::MacSource => "Ethernet source",
            Field::MacDestination => "Ethernet destination",
            Field::Vlan => "vlan",
            Field::Kind => "kind",
            Field::Operation => "type",
            Field::Source => "source address",
            Field::SourcePort => "source port",
            Field::Destination => "destination address",
            Field::DestinationPort => "destination port",
            Field::Quote => "quoted packet",
            named => NAMED.iter().find(|(_, field)| *field == named).map_or("", |(name, _)| name),
        }
    }
}

/// The value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number.
    Number(u64),
    /// An IP address.
    Address(IpAddr),
    /// Anything compared as text.
    Word(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// The value of the variable with this name; the first outgoing packet that contains it binds it.
    Variable(String),
    /// Any value.
    Any,
    /// A packet.
    Packet(Box<Packet>),
}

impl Value {
    /// Makes a word.
    pub fn word(text: impl Into<String>) -> Value {
        Value::Word(text.into())
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Number(number) => write!(f, "{number}"),
            Value::Address(address) => write!(f, "{address}"),
            Value::Word(word) => f.write_str(word),
            Value::Bytes(bytes) => {
                f.write_str("0x")?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
            Value::Variable(name) => write!(f, "${name}"),
            Value::Any => f.write_char('*'),
            Value::Packet(packet) => write!(f, "{packet}"),
        }
    }
}

/// The given fields of a packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packet(pub BTreeMap<Field, Value>);

impl Packet {
    /// The value of a field, if it is given.
    pub fn field(&self, field: Field) -> Option<&Value> {
        self.0.get(&field)
    }

    /// Sets a field.
    pub fn set(&mut self, field: Field, value: Value) {
        self.0.insert(field, value);
    }

    /// The value of a numeric field; `default` if it is not given.
    pub fn number(&self, field: Field, default: u64) -> u64 {
        match self.field(field) {
            Some(Value::Number(number)) => *number,
            _ => default,
        }
    }

    /// The value of a text field; empty if it is not given.
    pub fn word(&self, field: Field) -> &str {
        match self.field(field) {
            Some(Value::Word(word)) => word,
            _ => "",
        }
    }

    /// A field, of this packet or of one that it quotes, that may have any value.
    pub fn open_field(&self) -> Option<Field> {
        self.0.iter().find_map(|(field, value)| match value {
            Value::Any => Some(*field),
            Value::Packet(quote) => quote.open_field(),
            _ => None,
        })
    }

    /// Whether it is an IPv6 packet, as far as can be determined.
    pub fn is_v6(&self) -> bool {
        self.version() == IpVersion::V6
    }

    /// Its version of IP, as far as can be determined.
    pub fn version(&self) -> IpVersion {
        let v6 = |field| matches!(self.field(field), Some(Value::Address(address)) if address.is_ipv6());
        match self.word(Field::Kind) == "icmp6" || v6(Field::Source) || v6(Field::Destination) {
            true => IpVersion::V6,
            false => IpVersion::V4,
        }
    }

    /// Only the fields that `other` also gives, and those that every packet has.
    pub fn seen_as(&self, other: &Packet) -> Packet {
        let always = Field::Kind..=Field::DestinationPort;
        let shown = self.0.iter().filter(|(field, _)| other.0.contains_key(field) || always.contains(field));
        Packet(shown.map(|(field, value)| (*field, value.clone())).collect())
    }

    /// The packet for a short report: without payload, Ethernet addresses and fields that rarely matter.
    pub fn in_short(&self) -> Packet {
        use Field::*;
        let left_out = [MacSource, MacDestination, Tos, Identification, DontFragment, More, Data, Window];
        let left_out = |field| left_out.contains(field) || (Checksum..=Frame).contains(field);
        let shown = self.0.iter().filter(|(field, value)| {
            let untagged = **field == Vlan && **value == Value::word("none");
            !left_out(field) && !untagged
        });
        Packet(shown.map(|(field, value)| (*field, value.clone())).collect())
    }

    fn end(&self, f: &mut fmt::Formatter<'_>, address: Field, port: Field) -> fmt::Result {
        match (self.field(address), self.field(port)) {
            (Some(Value::Address(IpAddr::V6(address))), Some(port)) => write!(f, "[{address}]:{port}"),
            (Some(address), Some(port)) => write!(f, "{address}:{port}"),
            (Some(address), None) => write!(f, "{address}"),
            (None, Some(port)) => write!(f, "*:{port}"),
            (None, None) => f.write_char('*'),
        }
    }
}

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (Some(source), Some(destination)) = (self.field(Field::MacSource), self.field(Field::MacDestination)) {
            write!(f, "eth {source} > {destination} ")?;
        }
        if let Some(vlan) = self.field(Field::Vlan) {
            write!(f, "vlan {vlan} ")?;
        }
        let kind = self.word(Field::Kind);
        match kind.starts_with("0x") {
            true => write!(f, "type {kind}")?,
            false => f.write_str(kind)?,
        }
        if let Some(operation) = self.field(Field::Operation) {
            write!(f, " {operation}")?;
        }
        if self.0.keys().any(|field| (Field::Source..=Field::DestinationPort).contains(field)) {
            f.write_char(' ')?;
            self.end(f, Field::Source, Field::SourcePort)?;
            f.write_str(" > ")?;
            self.end(f, Field::Destination, Field::DestinationPort)?;
        }
        for (field, value) in self.0.range(Field::Flags..Field::Quote) {
            match (field, value) {
                (Field::Flags, value) => write!(f, " {value}")?,
                (Field::DontFragment | Field::More, Value::Number(1)) => write!(f, " {}", field.name())?,
                (Field::Code, Value::Number(code)) => {
                    let operation = self.word(Field::Operation);
                    write!(f, " code {}", words::code_name(operation, self.version(), *code))?;
                }
                (field, value) => write!(f, " {} {value}", field.name())?,
            }
        }
        match self.field(Field::Quote) {
            Some(quote) => write!(f, " quoting {quote}"),
            None => Ok(()),
        }
    }
}

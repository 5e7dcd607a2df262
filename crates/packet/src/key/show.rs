//! Keys in readable form: `10.0.0.1:1234 > 10.0.0.2:80 tcp`.

use std::fmt;

use super::extract::select;
use super::keys::Keys;
use super::{FieldId, KeyClass, SYMMETRIC, SetKey, protocol};
use crate::address::{IpAddress, MacAddress};

/// The fields of a key, unpacked. In a symmetric key, the order of the ends is unspecified.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyParts {
    fields: u32,
    /// Source and destination address.
    pub ips: [Option<IpAddress>; 2],
    /// Source and destination port.
    pub ports: [Option<u16>; 2],
    /// Ethernet source and destination.
    pub macs: [Option<MacAddress>; 2],
    /// All other fields, as numbers.
    pub rest: Vec<(FieldId, u32)>,
}

impl SetKey {
    /// Returns the fields.
    pub fn parts(&self) -> KeyParts {
        KeyParts::of(self)
    }
}

impl KeyParts {
    /// Returns whether both directions have this key.
    pub fn is_symmetric(&self) -> bool {
        self.fields & SYMMETRIC != 0
    }

    /// Returns one of the numeric fields in `rest`, if the key has it.
    pub fn number(&self, field: FieldId) -> Option<u32> {
        self.rest.iter().find(|(known, _)| *known == field).map(|(_, value)| *value)
    }

    fn of(key: &SetKey) -> KeyParts {
        let mut bytes = [0; Keys::WIDE_BYTES];
        for (place, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(key.words) {
            *place = word.to_le_bytes();
        }
        let address = if key.class() == KeyClass::Wide { 16 } else { 4 };
        let mut unpacked = KeyParts { fields: key.shape.0, ..KeyParts::default() };
        let mut rest: &[u8] = &bytes;
        for field in select(key.shape.0) {
            let Some((value, behind)) = rest.split_at_checked(field.bytes(address)) else { break };
            rest = behind;
            unpacked.take(field, value);
        }
        unpacked
    }

    fn take(&mut self, field: FieldId, value: &[u8]) {
        let number = value.iter().fold(0, |number: u32, byte| number << 8 | u32::from(*byte));
        let ip = || match value {
            &[a, b, c, d] => Some(IpAddress::from_v4([a, b, c, d])),
            _ => value.first_chunk().map(|bytes| IpAddress::from_v6(*bytes)),
        };
        let mac = || value.first_chunk().map(|bytes| MacAddress(*bytes));
        match field {
            FieldId::IpSrc => self.ips[0] = ip(),
            FieldId::IpDst => self.ips[1] = ip(),
            FieldId::SrcPort => self.ports[0] = Some(number as u16),
            FieldId::DstPort => self.ports[1] = Some(number as u16),
            FieldId::EthSrc => self.macs[0] = mac(),
            FieldId::EthDst => self.macs[1] = mac(),
            _ => self.rest.push((field, number)),
        }
    }

    /// Formats address and port of one end, as far as present.
    fn end(&self, side: usize) -> Option<String> {
        let port = self.ports[side];
        match (self.ips[side], port) {
            (Some(ip), Some(port)) if ip.is_v4() => Some(format!("{ip}:{port}")),
            (Some(ip), Some(port)) => Some(format!("[{ip}]:{port}")),
            (Some(ip), None) => Some(ip.to_string()),
            (None, Some(port)) => Some(format!(":{port}")),
            (None, None) => None,
        }
    }
}

impl fmt::Debug for SetKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for SetKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unpacked = self.parts();
        let arrow = if unpacked.is_symmetric() { "<>" } else { ">" };
        let mut parts = Vec::new();
        let macs = unpacked.macs.map(|mac| mac.map(|mac| mac.to_string()));
        for pair in [macs, [unpacked.end(0), unpacked.end(1)]] {
            match pair {
                [Some(from), Some(to)] => parts.push(format!("{from} {arrow} {to}")),
                [Some(from), None] => parts.push(format!("from {from}")),
                [None, Some(to)] => parts.push(format!("to {to}")),
                [None, None] => {}
            }
        }
        parts.extend(unpacked.rest.iter().map(|&(field, value)| show(field, value)));
        f.write_str(&parts.join(" "))
    }
}

fn show(field: FieldId, value: u32) -> String {
    match field {
        FieldId::IpProto => protocol::name(value as u8).map_or_else(|| format!("proto {value}"), str::to_owned),
        FieldId::IcmpId => format!("icmp id {value}"),
        FieldId::EtherType => format!("type {value:#06x}"),
        FieldId::GtpTeid => format!("teid {value:#010x}"),
        FieldId::ArpTarget => format!("arp {}", IpAddress::from_v4(value.to_be_bytes())),
        _ => format!("{} {value}", field.name()),
    }
}

//! The interfaces of a capture: which interface received which packet, and their names.
//!
//! pcapng describes each interface before its first packet, and names it in every packet; the version 2 of Linux cooked captures has an
//! index in every packet. Other formats have no interfaces: all their packets belong to the first.

use std::path::Path;

use braid_packet::{Link, Port};

use super::piped::is_dash;
use super::reader::{CaptureReader, Captured};

/// Gives each interface its port: those that pcapng describes in the order in which they are described, those of cooked packets in the
/// order in which they appear.
#[derive(Debug, Default)]
pub(super) struct Interfaces {
    /// The indexes of cooked packets, by port.
    cooked: Vec<[u8; 4]>,
}

impl Interfaces {
    /// The port of a packet; there may be more than a run has.
    pub(super) fn port(&mut self, captured: &Captured<'_>) -> Port {
        let index: Option<[u8; 4]> = match captured.link() {
            // Protocol, two reserved bytes, index of the interface.
            Link::Cooked2 => captured.bytes.get(4..8).and_then(|index| index.try_into().ok()),
            _ => None,
        };
        let Some(index) = index else { return Port::try_from(captured.interface).unwrap_or(Port::MAX) };
        let known = self.cooked.iter().position(|known| *known == index);
        let number = known.unwrap_or_else(|| {
            // A file may make up an index for each packet.
            if self.cooked.len() < usize::from(Port::MAX) {
                self.cooked.push(index);
                return self.cooked.len() - 1;
            }
            self.cooked.len()
        });
        Port::try_from(number).unwrap_or(Port::MAX)
    }
}

/// The interfaces that a file describes before its first packet, by their names; one without a name has an empty one. None for a file that
/// describes no interfaces, that cannot be read, or that is a pipe, which can be read only once.
pub fn interface_names(path: &Path) -> Vec<String> {
    if is_dash(path) || !path.is_file() {
        return Vec::new();
    }
    let Ok(mut reader) = CaptureReader::open(path) else { return Vec::new() };
    let _ = reader.advance();
    reader.interface_names()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(packets: &[(u32, u32, [u8; 20])]) -> Vec<Port> {
        let mut interfaces = Interfaces::default();
        let port = |(linktype, interface, bytes): &(u32, u32, [u8; 20])| {
            let (linktype, interface) = (*linktype, *interface);
            interfaces.port(&Captured { bytes, wire_len: 20, timestamp_ns: None, linktype, interface })
        };
        packets.iter().map(port).collect()
    }

    #[test]
    fn described_interfaces_keep_their_order_and_cooked_ones_come_as_they_appear() {
        const ETHERNET: u32 = 1;
        const COOKED: u32 = 276;
        assert_eq!(ports(&[2, 0, 1, 0].map(|interface| (ETHERNET, interface, [0; 20]))), [2, 0, 1, 0]);
        assert_eq!(ports(&[(ETHERNET, 1 << 20, [0; 20])]), [Port::MAX], "it has no port, and not another's");
        let cooked = |index: u8| {
            let mut bytes = [0; 20];
            bytes[7] = index;
            (COOKED, 0, bytes)
        };
        assert_eq!(ports(&[7, 3, 7, 9, 3].map(cooked)), [0, 1, 0, 2, 1]);
    }
}

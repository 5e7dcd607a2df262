//! Messages of memif's control channel, version 2.0: 128 bytes each, in host byte order.
//!
//! The protocol is defined only by its implementations: FD.io VPP (src/plugins/memif/memif.h, extras/libmemif) and DPDK
//! (drivers/net/memif/memif.h). A message begins with its type in two bytes; the packed fields follow.

/// Size of a message in bytes.
pub(super) const MESSAGE: usize = 128;
/// The supported version: 2.0.
pub(super) const VERSION: u16 = 2 << 8;
/// Size of a secret in bytes; a shorter secret is terminated by a zero.
pub(super) const SECRET: usize = 24;
/// Size of a name in bytes.
const NAME: usize = 32;
/// Size in bytes of the reason why a connection ends.
const REASON: usize = 96;

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// From either side: the last message is accepted.
    Ack,
    /// From the server: minimum and maximum version, the highest numbers of regions and of rings in each direction, and the largest ring.
    Hello { versions: (u16, u16), regions: u16, rings_to_client: u16, rings_to_server: u16, log2_ring: u8 },
    /// From the client: the interface that it requests. Mode 0 is Ethernet.
    Init { version: u16, id: u32, mode: u8, secret: [u8; SECRET] },
    /// From the client: shared memory, with its descriptor.
    AddRegion { index: u16, size: u64 },
    /// From the client: a ring in that memory, with its event descriptor.
    AddRing { to_server: bool, index: u16, region: u16, offset: u32, log2_ring: u8 },
    /// From the client: everything has been announced.
    Connect,
    /// From the server: packets may be sent.
    Connected,
    /// From either side: the connection ends.
    Disconnect { reason: String },
    /// A message of another type.
    Unknown(u16),
}

/// Writes consecutive fields.
struct Writer {
    bytes: [u8; MESSAGE],
    at: usize,
}

impl Writer {
    fn new(kind: u16) -> Writer {
        Writer { bytes: [0; MESSAGE], at: 0 }.bytes(&kind.to_ne_bytes())
    }

    fn bytes(mut self, bytes: &[u8]) -> Writer {
        self.bytes[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
        self
    }

    /// Writes text into a field of `room` bytes, truncated so that a terminating zero fits.
    fn text(mut self, text: &str, room: usize) -> Writer {
        let len = text.len().min(room - 1);
        self.bytes[self.at..self.at + len].copy_from_slice(&text.as_bytes()[..len]);
        self.at += room;
        self
    }

    fn u16(self, number: u16) -> Writer {
        self.bytes(&number.to_ne_bytes())
    }

    fn u32(self, number: u32) -> Writer {
        self.bytes(&number.to_ne_bytes())
    }
}

impl Message {
    pub(super) fn encode(&self) -> [u8; MESSAGE] {
        let writer = match self {
            Message::Ack => Writer::new(1),
            Message::Hello { versions: (min, max), regions, rings_to_client, rings_to_server, log2_ring } => {
                let writer = Writer::new(2).text("braid", NAME).u16(*min).u16(*max).u16(*regions);
                writer.u16(*rings_to_client).u16(*rings_to_server).bytes(&[*log2_ring])
            }
            Message::Init { version, id, mode, secret } => {
                Writer::new(3).u16(*version).u32(*id).bytes(&[*mode]).bytes(secret).text("braid", NAME)
            }
            Message::AddRegion { index, size } => Writer::new(4).u16(*index).bytes(&size.to_ne_bytes()),
            Message::AddRing { to_server, index, region, offset, log2_ring } => {
                let writer = Writer::new(5).u16(u16::from(*to_server)).u16(*index).u16(*region).u32(*offset);
                writer.bytes(&[*log2_ring]).u16(0)
            }
            Message::Connect => Writer::new(6).text("braid", NAME),
            Message::Connected => Writer::new(7).text("braid", NAME),
            Message::Disconnect { reason } => Writer::new(8).u32(0).text(reason, REASON),
            Message::Unknown(kind) => Writer::new(*kind),
        };
        writer.bytes
    }

    pub(super) fn decode(bytes: &[u8; MESSAGE]) -> Message {
        let u16_at = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        let u32_at = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        match u16_at(0) {
            1 => Message::Ack,
            2 => Message::Hello {
                versions: (u16_at(34), u16_at(36)),
                regions: u16_at(38),
                rings_to_client: u16_at(40),
                rings_to_server: u16_at(42),
                log2_ring: bytes[44],
            },
            3 => {
                let mut secret = [0; SECRET];
                secret.copy_from_slice(&bytes[9..9 + SECRET]);
                Message::Init { version: u16_at(2), id: u32_at(4), mode: bytes[8], secret }
            }
            4 => {
                let halves = [u32_at(4), u32_at(8)].map(u64::from);
                let [low, high] = if cfg!(target_endian = "little") { halves } else { [halves[1], halves[0]] };
                Message::AddRegion { index: u16_at(2), size: high << 32 | low }
            }
            5 => Message::AddRing {
                to_server: u16_at(2) & 1 != 0,
                index: u16_at(4),
                region: u16_at(6),
                offset: u32_at(8),
                log2_ring: bytes[12],
            },
            6 => Message::Connect,
            7 => Message::Connected,
            8 => {
                let text = &bytes[6..6 + REASON];
                let end = text.iter().position(|byte| *byte == 0).unwrap_or(REASON);
                Message::Disconnect { reason: String::from_utf8_lossy(&text[..end]).into_owned() }
            }
            kind => Message::Unknown(kind),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_message_is_read_as_it_was_written() {
        let check = |message: Message| assert_eq!(Message::decode(&message.encode()), message);
        check(Message::Ack);
        check(Message::Hello {
            versions: (VERSION, VERSION + 1),
            regions: 1,
            rings_to_client: 2,
            rings_to_server: 3,
            log2_ring: 14,
        });
        check(Message::Init { version: VERSION, id: 0x0102_0304, mode: 0, secret: *b"twenty-four letters long" });
        check(Message::AddRegion { index: 1, size: 0x0102_0304_0506_0708 });
        check(Message::AddRing { to_server: true, index: 2, region: 1, offset: 0x0a0b_0c0d, log2_ring: 10 });
        check(Message::Connect);
        check(Message::Connected);
        check(Message::Disconnect { reason: "no more".into() });
        check(Message::Unknown(9));
    }

    #[test]
    fn fields_stand_where_other_implementations_look_for_them() {
        let bytes = Message::Init { version: VERSION, id: 7, mode: 0, secret: [b's'; SECRET] }.encode();
        assert_eq!(&bytes[..9], [3, 0, 0, 2, 7, 0, 0, 0, 0]);
        assert_eq!((&bytes[9..33], &bytes[33..38]), (&[b's'; 24][..], &b"braid"[..]));
        let bytes = Message::AddRing { to_server: false, index: 1, region: 0, offset: 256, log2_ring: 10 }.encode();
        assert_eq!(&bytes[..15], [5, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 10, 0, 0]);
    }

    #[test]
    fn a_long_reason_is_cut() {
        let reason = "x".repeat(200);
        let Message::Disconnect { reason } = Message::decode(&Message::Disconnect { reason }.encode()) else {
            panic!()
        };
        assert_eq!(reason.len(), REASON - 1);
    }

    proptest! {
        #[test]
        fn no_bytes_make_a_message_panic(bytes in prop::collection::vec(any::<u8>(), MESSAGE)) {
            let _ = Message::decode(bytes.as_slice().try_into().unwrap());
        }
    }
}

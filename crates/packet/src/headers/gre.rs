//! GRE (RFC 2784) with key and sequence number (RFC 2890).

use zerocopy::byteorder::network_endian::U16;

use super::{Header, View, header};

const CHECKSUM: u16 = 0x8000;
const KEY: u16 = 0x2000;
const SEQUENCE: u16 = 0x1000;
/// Source routing bit of RFC 1701, long deprecated: such headers are not parsed.
const ROUTING: u16 = 0x4000;

header! {
    /// The four fixed bytes; checksum, key and sequence number follow if their bits are set.
    Gre { flags: U16, protocol: U16 }
}

impl Header for Gre {
    /// Requires version 0 and no routing; version 1, used by PPTP, is another header.
    #[inline(always)]
    fn variable_len(&self, _rest: &[u8]) -> Option<usize> {
        let flags = self.flags.get();
        (flags & (7 | ROUTING) == 0).then(|| (flags & (CHECKSUM | KEY | SEQUENCE)).count_ones() as usize * 4)
    }
}

impl Gre {
    /// Ethernet type of the payload.
    #[inline(always)]
    pub fn protocol(&self) -> u16 {
        self.protocol.get()
    }

    /// Sets the Ethernet type of the payload.
    #[inline(always)]
    pub fn set_protocol(&mut self, protocol: u16) {
        self.protocol = protocol.into();
    }

    /// Sets which optional fields follow; the caller writes them.
    #[inline(always)]
    pub fn set_present(&mut self, checksum: bool, key: bool, sequence: bool) {
        self.flags = (u16::from(checksum) << 15 | u16::from(key) << 13 | u16::from(sequence) << 12).into();
    }

    #[inline(always)]
    fn has(&self, bit: u16) -> bool {
        self.flags.get() & bit != 0
    }
}

impl View<'_, Gre> {
    /// Checksum of header and payload, if present.
    pub fn checksum(&self) -> Option<u16> {
        self.has(CHECKSUM).then(|| self.word(0)).flatten().map(|word| (word >> 16) as u16)
    }

    /// Key, if present.
    pub fn key(&self) -> Option<u32> {
        self.has(KEY).then(|| self.word(usize::from(self.has(CHECKSUM)))).flatten()
    }

    /// Sequence number, if present.
    pub fn sequence(&self) -> Option<u32> {
        let at = usize::from(self.has(CHECKSUM)) + usize::from(self.has(KEY));
        self.has(SEQUENCE).then(|| self.word(at)).flatten()
    }

    fn word(&self, number: usize) -> Option<u32> {
        let bytes = self.variable().get(number * 4..)?.first_chunk::<4>()?;
        Some(u32::from_be_bytes(*bytes))
    }
}

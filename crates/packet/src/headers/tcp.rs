//! TCP (RFC 9293) with options.

use zerocopy::byteorder::network_endian::{U16, U32};

use super::ipv4::next_option;
use super::{Header, View, header};

/// Control bits in the header's 14th byte.
pub mod tcp_flags {
    #![allow(missing_docs)]
    pub const FIN: u8 = 0x01;
    pub const SYN: u8 = 0x02;
    pub const RST: u8 = 0x04;
    pub const PSH: u8 = 0x08;
    pub const ACK: u8 = 0x10;
    pub const URG: u8 = 0x20;
    pub const ECE: u8 = 0x40;
    pub const CWR: u8 = 0x80;
}

header! {
    /// The 20 fixed bytes; the options follow.
    Tcp {
        source_port: U16, destination_port: U16, sequence: U32, acknowledgement: U32,
        offset: u8, flags: u8, window: U16, checksum: U16, urgent: U16,
    }
}

impl Header for Tcp {
    /// Requires a data offset of at least five words and all options present.
    #[inline(always)]
    fn variable_len(&self, _rest: &[u8]) -> Option<usize> {
        (usize::from(self.offset >> 4) * 4).checked_sub(20)
    }
}

impl Tcp {
    /// Creates a header without options and with all control bits clear.
    pub fn new(source_port: u16, destination_port: u16) -> Tcp {
        let ports =
            Tcp { source_port: source_port.into(), destination_port: destination_port.into(), ..Tcp::default() };
        Tcp { offset: 5 << 4, ..ports }
    }

    /// Source port.
    #[inline(always)]
    pub fn source_port(&self) -> u16 {
        self.source_port.get()
    }

    /// Destination port.
    #[inline(always)]
    pub fn destination_port(&self) -> u16 {
        self.destination_port.get()
    }

    /// Sequence number of the first payload byte.
    #[inline(always)]
    pub fn sequence(&self) -> u32 {
        self.sequence.get()
    }

    /// Acknowledgement number: the sequence number that the sender expects next.
    #[inline(always)]
    pub fn acknowledgement(&self) -> u32 {
        self.acknowledgement.get()
    }

    /// Control bits, see [`tcp_flags`].
    #[inline(always)]
    pub fn flags(&self) -> u8 {
        self.flags
    }

    /// Whether any of the given control bits is set.
    #[inline(always)]
    pub fn has(&self, bits: u8) -> bool {
        self.flags & bits != 0
    }

    /// Window, unscaled.
    #[inline(always)]
    pub fn window(&self) -> u16 {
        self.window.get()
    }

    /// Checksum as stored.
    #[inline(always)]
    pub fn checksum(&self) -> u16 {
        self.checksum.get()
    }

    /// Urgent pointer.
    #[inline(always)]
    pub fn urgent(&self) -> u16 {
        self.urgent.get()
    }

    /// Sets the source port.
    #[inline(always)]
    pub fn set_source_port(&mut self, port: u16) {
        self.source_port = port.into();
    }

    /// Sets the destination port.
    #[inline(always)]
    pub fn set_destination_port(&mut self, port: u16) {
        self.destination_port = port.into();
    }

    /// Sets the sequence number.
    #[inline(always)]
    pub fn set_sequence(&mut self, number: u32) {
        self.sequence = number.into();
    }

    /// Sets the acknowledgement number.
    #[inline(always)]
    pub fn set_acknowledgement(&mut self, number: u32) {
        self.acknowledgement = number.into();
    }

    /// Sets the control bits.
    #[inline(always)]
    pub fn set_flags(&mut self, flags: u8) {
        self.flags = flags;
    }

    /// Sets the window.
    #[inline(always)]
    pub fn set_window(&mut self, window: u16) {
        self.window = window.into();
    }

    /// Sets the checksum.
    #[inline(always)]
    pub fn set_checksum(&mut self, checksum: u16) {
        self.checksum = checksum.into();
    }
}

impl<'a> View<'a, Tcp> {
    /// Returns an iterator over the options.
    pub fn options(&self) -> TcpOptions<'a> {
        TcpOptions { rest: self.variable() }
    }
}

/// One option (RFC 9293 section 3.1, RFC 7323, RFC 2018).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpOption<'a> {
    /// One byte of padding.
    NoOperation,
    /// Maximum segment size that the sender accepts.
    MaximumSegment(u16),
    /// Shift count of the window.
    WindowScale(u8),
    /// Selective acknowledgements are supported.
    SackPermitted,
    /// Selective acknowledgements: pairs of sequence numbers.
    Sack(&'a [u8]),
    /// Time stamp and its echo.
    Timestamps(u32, u32),
    /// Any other option, or one of the above with a wrong length: its kind and its data.
    Other(u8, &'a [u8]),
}

impl TcpOption<'_> {
    /// Returns the option kind (IANA registry of TCP option kinds).
    pub fn kind(&self) -> u8 {
        match self {
            TcpOption::NoOperation => 1,
            TcpOption::MaximumSegment(_) => 2,
            TcpOption::WindowScale(_) => 3,
            TcpOption::SackPermitted => 4,
            TcpOption::Sack(_) => 5,
            TcpOption::Timestamps(..) => 8,
            TcpOption::Other(kind, _) => *kind,
        }
    }
}

/// Iterator over options; ends at the end-of-list option, at the end of the header, or at a malformed option.
#[derive(Clone, Copy, Debug)]
pub struct TcpOptions<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for TcpOptions<'a> {
    type Item = TcpOption<'a>;

    fn next(&mut self) -> Option<TcpOption<'a>> {
        let (kind, data, rest) = next_option(self.rest)?;
        self.rest = rest;
        Some(match (kind, data) {
            (1, _) => TcpOption::NoOperation,
            (2, &[high, low]) => TcpOption::MaximumSegment(u16::from_be_bytes([high, low])),
            (3, &[shift]) => TcpOption::WindowScale(shift),
            (4, &[]) => TcpOption::SackPermitted,
            (5, blocks) if blocks.len() % 8 == 0 => TcpOption::Sack(blocks),
            (8, &[a, b, c, d, e, f, g, h]) => {
                TcpOption::Timestamps(u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]))
            }
            _ => TcpOption::Other(kind, data),
        })
    }
}

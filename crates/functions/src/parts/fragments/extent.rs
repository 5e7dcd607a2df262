//! Which bytes of its datagram a fragment carries.

use braid_nf::Packet;

/// Offsets in bytes from the start of what is fragmented: in IPv6, from the first byte behind the fragment header of the first piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) begin: u16,
    pub(super) end: u16,
}

impl Extent {
    /// As the headers of a packet say, whether or not all its bytes are present; `None` without a fragment header. Of several in IPv6 the first
    /// counts, as for [`Datagram`](super::Datagram).
    pub(super) fn of(packet: &Packet<'_>) -> Option<Extent> {
        if let Some(ip) = packet.ipv4() {
            let carried = usize::from(ip.total_len()).saturating_sub(ip.header_len());
            return Some(Extent::new(ip.fragment_offset(), carried));
        }
        let ip = packet.ipv6()?;
        let mut headers = 0;
        for extension in ip.extensions() {
            headers += extension.bytes.len();
            if let Some((offset, ..)) = extension.fragment() {
                return Some(Extent::new(offset, usize::from(ip.payload_len()).saturating_sub(headers)));
            }
        }
        None
    }

    fn new(begin: u16, carried: usize) -> Extent {
        Extent { begin, end: begin.saturating_add(u16::try_from(carried).unwrap_or(u16::MAX)) }
    }
}

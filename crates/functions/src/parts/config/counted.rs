//! Which bytes of a packet count against a byte rate: those of the frame, those of the IP packet in it, or all that a cable
//! carries for it.

use braid_nf::Packet;
use serde::Deserialize;

use crate::config::ConfigError;
use crate::parts::headers::lengths::ip_len;

/// The part of a packet that is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BytesOf {
    /// The frame as received: from its Ethernet header on, without the frame check sequence.
    #[default]
    Frame,
    /// The IP packet (RFC 2697 section 2, RFC 2698 section 2).
    Ip,
    /// What the frame occupies on Ethernet: preamble, check sequence and interpacket gap included (IEEE 802.3 sections 3.1 and
    /// 4.4.2), as well as the padding of a short frame.
    Line,
}

/// How bytes are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    of: BytesOf,
    /// Bytes added to each packet; may be negative.
    overhead: i16,
}

braid_nf::plain!(Counted);

/// Bytes after the link header of the shortest frame.
const SHORTEST: u32 = 46;
/// Preamble 8, check sequence 4, gap 12.
const AROUND: u32 = 24;
/// Bytes of the shortest frame, without the check sequence.
const FRAME_MIN: u32 = 60;
/// Bytes of the longest frame, without tags and the check sequence.
const FRAME_MAX: usize = 1514;
/// Bytes of the shortest IP packet, which may be the whole frame.
const HEADER_MIN: u32 = 20;

impl Counted {
    /// Checks what a plan gives under `bytes_of` and `overhead`.
    pub fn new(of: BytesOf, overhead: i64) -> Result<Counted, ConfigError> {
        match i16::try_from(overhead) {
            Ok(overhead @ -64..=256) => Ok(Counted { of, overhead }),
            _ => {
                let reason = format!("{overhead} bytes are no header's");
                Err(ConfigError::new("overhead", reason, "write -64 to 256"))
            }
        }
    }

    /// Whether the count equals [`Packet::wire_len`].
    pub fn is_plain(&self) -> bool {
        *self == Counted::default()
    }

    /// The bytes that a packet counts for; at least one.
    #[inline]
    pub fn cost(&self, packet: &Packet<'_>) -> u32 {
        let len = packet.wire_len();
        let counted = match self.of {
            BytesOf::Frame => len,
            BytesOf::Line => len.max(FRAME_MIN) + AROUND,
            BytesOf::Ip => {
                // The padding of a short frame does not count. For a longer frame the IP length is not trusted: a sender could
                // claim that most of it is padding.
                let carried = len.saturating_sub(u32::from(packet.record().l3));
                if carried <= SHORTEST { carried.min(ip_len(packet) as u32) } else { carried }
            }
        };
        counted.saturating_add_signed(self.overhead.into()).max(1)
    }

    /// The fewest bytes that any IP packet counts for.
    fn least(&self) -> u64 {
        let shortest = if self.of == BytesOf::Line { FRAME_MIN + AROUND } else { HEADER_MIN };
        shortest.saturating_add_signed(self.overhead.into()).max(1).into()
    }

    /// Checks that a burst of this many bytes lets some packet pass.
    pub fn check_burst(&self, key: &str, burst: u64) -> Result<(), ConfigError> {
        let least = self.least();
        if burst >= least {
            return Ok(());
        }
        let reason = format!("every packet is longer than a burst of {burst}, so none would pass");
        let instead = format!("write at least {least}, and {} for full frames of Ethernet", self.most(FRAME_MAX));
        Err(ConfigError::new(key, reason, instead))
    }

    /// The most bytes that a frame of `frame` bytes counts for.
    pub fn most(&self, frame: usize) -> u64 {
        let around = if self.of == BytesOf::Line { u64::from(AROUND) } else { 0 };
        (frame as u64 + around).saturating_add_signed(self.overhead.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overhead_is_that_of_headers() {
        for wrong in [-65, 257, i64::MAX] {
            let error = Counted::new(BytesOf::Frame, wrong).unwrap_err().to_string();
            assert!(error.contains("bytes are no header's; write -64 to 256"), "{error}");
        }
        let least = |of, overhead| Counted::new(of, overhead).unwrap().least();
        assert_eq!(
            [least(BytesOf::Frame, 0), least(BytesOf::Ip, -64), least(BytesOf::Line, 4)],
            [20, 1, 88],
            "an IP packet without anything, and what the line takes for it"
        );
        assert_eq!(Counted::new(BytesOf::Line, 8).map(|counted| counted.most(1514)).unwrap(), 1546);
        assert_eq!(Counted::new(BytesOf::Ip, -4).map(|counted| counted.most(1514)).unwrap(), 1510);
    }
}

//! What the detector wants of a DNS response (RFC 1035 section 4): the zone asked about, how much the name carries below it,
//! and the first address in the answer. Damaged messages are no responses.

use braid_nf::packet::IpAddress;
use braid_nf::state::hash::mixed;

/// Characters of a zone that a report shows.
pub(super) const ZONE_SHOWN: usize = 40;
const HEADER: usize = 12;
const A: usize = 1;
const AAAA: usize = 28;

/// A response with one question.
pub(super) struct Response<'a> {
    message: &'a [u8],
    /// Labels of the name asked about, the top one last.
    labels: [(usize, usize); LABELS],
    depth: usize,
    /// Where the answers begin.
    answers: usize,
}

/// Three labels and their lengths.
const ZONE_MOST: usize = 3 * 64;
/// Labels that are looked at; names have at most 127.
const LABELS: usize = 128;

/// The end of a name that somebody registered: the last two labels, or three below a short second one (`co.uk`).
pub(super) struct Zone<'a> {
    bytes: &'a [u8],
    /// Of its letters in lower case.
    pub(super) hash: u64,
}

fn be16(bytes: &[u8], at: usize) -> Option<usize> {
    Some(usize::from(*bytes.get(at)?) << 8 | usize::from(*bytes.get(at + 1)?))
}

impl<'a> Response<'a> {
    pub(super) fn parse(message: &'a [u8]) -> Option<Response<'a>> {
        let is_response = be16(message, 2)? & 0x8000 != 0;
        if !is_response || be16(message, 4)? != 1 {
            return None;
        }
        let (mut labels, mut depth, mut at) = ([(0, 0); LABELS], 0, HEADER);
        loop {
            let len = usize::from(*message.get(at)?);
            match len {
                0 => break,
                1..=63 => *labels.get_mut(depth)? = (at + 1, at + 1 + len),
                _ => return None,
            }
            depth += 1;
            at += 1 + len;
        }
        (message.len() >= at + 5).then_some(Response { message, labels, depth, answers: at + 5 })
    }

    /// None for names with no label below a zone, and for reverse look-ups, which seldom lead anywhere.
    pub(super) fn zone(&self) -> Option<Zone<'a>> {
        let labels = &self.labels[..self.depth];
        let label = |from_top: usize| labels.len().checked_sub(from_top + 1).map(|at| labels[at]);
        let (top, second) = (label(0)?, label(1)?);
        if self.message[top.0..top.1].eq_ignore_ascii_case(b"arpa") {
            return None;
        }
        let is_short = second.1 - second.0 <= 3 && top.1 - top.0 == 2;
        let first = if is_short { label(2)? } else { second };
        let bytes = &self.message[first.0..top.1];
        let mut lower = [0; ZONE_MOST];
        let lower = lower.get_mut(..bytes.len())?;
        lower.copy_from_slice(bytes);
        lower.make_ascii_lowercase();
        Some(Zone { bytes, hash: mixed(lower, 0) })
    }

    /// Bytes of the name below the zone, and of answers that are no addresses.
    pub(super) fn hidden_bytes(&self, zone: &Zone<'_>) -> u64 {
        let below = (self.answers - 5 - HEADER).saturating_sub(zone.bytes.len() + 1);
        let data = be16(self.message, 6).is_some_and(|answers| answers > 0) && self.address().is_none();
        let answers = if data { self.message.len() - self.answers } else { 0 };
        (below + answers) as u64
    }

    /// The name as 16 bytes that no host has as its address.
    pub(super) fn name_as_address(&self) -> IpAddress {
        let name = &self.message[HEADER..self.answers];
        let (high, low) = (mixed(name, 1) | 0xff << 56, mixed(name, 2));
        IpAddress::from_v6((u128::from(high) << 64 | u128::from(low)).to_be_bytes())
    }

    /// The address in the first answer that has one.
    pub(super) fn address(&self) -> Option<IpAddress> {
        let mut at = self.answers;
        for _ in 0..be16(self.message, 6)?.min(32) {
            at = skip_name(self.message, at)?;
            let (kind, len) = (be16(self.message, at)?, be16(self.message, at + 8)?);
            let data = self.message.get(at + 10..at + 10 + len)?;
            match kind {
                A => return data.try_into().ok().map(IpAddress::from_v4),
                AAAA => return data.try_into().ok().map(IpAddress::from_v6),
                _ => at += 10 + len,
            }
        }
        None
    }
}

fn skip_name(message: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match usize::from(*message.get(at)?) {
            0 => return Some(at + 1),
            len @ 1..=63 => at += 1 + len,
            192..=255 => return Some(at + 2),
            _ => return None,
        }
    }
}

impl Zone<'_> {
    /// As text for a report, cut to its length.
    pub(super) fn text(&self) -> [u8; ZONE_SHOWN] {
        let mut text = [0; ZONE_SHOWN];
        for (place, byte) in text.iter_mut().zip(self.bytes) {
            // Lengths of labels stand between them.
            *place = if byte.is_ascii_graphic() { byte.to_ascii_lowercase() } else { b'.' };
        }
        text
    }
}

/// A zone's text again.
pub(super) fn shown(text: &[u8; ZONE_SHOWN]) -> &str {
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    std::str::from_utf8(&text[..end]).unwrap_or("?")
}

//! What a DNS response may hide: the zone that it is about, and how much its name and answers carry below it.

use braid_nf::packet::IpAddress;
use braid_nf::state::hash::mixed;

use crate::parts::dns::{NAME_MOST, Response};

/// Characters of a zone that a report shows.
pub(super) const ZONE_SHOWN: usize = 40;
/// Three labels and their lengths.
const ZONE_MOST: usize = 3 * 64;

/// The end of a name that somebody registered: the last two labels, or three below a short second one (`co.uk`).
pub(super) struct Zone<'a> {
    bytes: &'a [u8],
    /// Of its letters in lower case.
    pub(super) hash: u64,
}

impl<'a> Zone<'a> {
    /// None for names with no label below a zone, and for reverse look-ups, which seldom lead anywhere.
    pub(super) fn of(response: &Response<'a>) -> Option<Zone<'a>> {
        let (top, two) = (response.name_from(0)?, response.name_from(1)?);
        if top.eq_ignore_ascii_case(b"arpa") {
            return None;
        }
        let is_short = two.len() - top.len() - 1 <= 3 && top.len() == 2;
        let bytes = if is_short { response.name_from(2)? } else { two };
        Some(Zone { bytes, hash: hash_of::<ZONE_MOST>(bytes)? })
    }

    /// Bytes of a name below the zone.
    pub(super) fn bytes_below(&self, name: &[u8]) -> u64 {
        name.len().saturating_sub(self.bytes.len() + 1) as u64
    }

    /// The name of the list that is asked about an address, if it is in the zone.
    pub(super) fn list_of(&self, response: &Response<'a>) -> Option<&'a [u8]> {
        response.behind_address().filter(|list| list.len() > self.bytes.len())
    }

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

/// The hash of some labels in lower case, never 0; none if they are too long.
fn hash_of<const MOST: usize>(labels: &[u8]) -> Option<u64> {
    let mut lower = [0; MOST];
    let lower = lower.get_mut(..labels.len())?;
    lower.copy_from_slice(labels);
    lower.make_ascii_lowercase();
    Some(mixed(lower, 0).max(1))
}

/// The hash of a name, such as a response is about, whatever was asked of it; never 0.
pub(super) fn name(name: &[u8]) -> Option<u64> {
    hash_of::<NAME_MOST>(name)
}

/// Bytes of answers that are no addresses.
pub(super) fn answer_bytes(response: &Response<'_>) -> u64 {
    if response.address().is_none() { response.answers().len() as u64 } else { 0 }
}

/// A name, by its hash, as 16 bytes that no host has as its address.
pub(super) fn as_address(name: u64) -> IpAddress {
    let (high, low) = (name | 0xff << 56, mixed(&name.to_le_bytes(), 2));
    IpAddress::from_v6((u128::from(high) << 64 | u128::from(low)).to_be_bytes())
}

/// A zone's text again.
pub(super) fn shown(text: &[u8; ZONE_SHOWN]) -> &str {
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    std::str::from_utf8(&text[..end]).unwrap_or("?")
}

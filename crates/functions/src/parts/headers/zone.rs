//! The registered part of a DNS name, which is that of one owner, and hashes of names.

use braid_nf::state::hash::mixed;

use super::dns::{NAME_MOST, Response};

/// The number of characters of a zone that a report shows.
pub(crate) const ZONE_SHOWN: usize = 40;
/// The maximum length of a zone in bytes: three labels with their length bytes.
const ZONE_MOST: usize = 3 * 64;

/// The registered part of a name: the last two labels, or three if the top one has two letters and the second is short
/// (`co.uk`).
pub(crate) struct Zone<'a> {
    bytes: &'a [u8],
    /// The hash of its labels in lower case.
    pub(crate) hash: u64,
}

impl<'a> Zone<'a> {
    /// The zone of a response. `None` for names with no label below a zone, and for reverse look-ups, which seldom lead
    /// to a contact.
    pub(crate) fn of(response: &Response<'a>) -> Option<Zone<'a>> {
        let (top, two) = (response.name_from(0)?, response.name_from(1)?);
        if top.eq_ignore_ascii_case(b"arpa") {
            return None;
        }
        let is_short = two.len() - top.len() - 1 <= 3 && top.len() == 2;
        let bytes = if is_short { response.name_from(2)? } else { two };
        Some(Zone { bytes, hash: hash_of::<ZONE_MOST>(bytes)? })
    }

    /// The bytes of a name below the zone.
    pub(crate) fn bytes_below(&self, name: &[u8]) -> u64 {
        name.len().saturating_sub(self.bytes.len() + 1) as u64
    }

    /// The name of the list that is queried about an address, if it is below the zone.
    pub(crate) fn list_of(&self, response: &Response<'a>) -> Option<&'a [u8]> {
        response.behind_address().filter(|list| list.len() > self.bytes.len())
    }

    /// The zone as text for a report, cut to fit.
    pub(crate) fn text(&self) -> [u8; ZONE_SHOWN] {
        let mut text = [0; ZONE_SHOWN];
        for (place, byte) in text.iter_mut().zip(self.bytes) {
            // Label lengths appear as dots.
            *place = if byte.is_ascii_graphic() { byte.to_ascii_lowercase() } else { b'.' };
        }
        text
    }
}

/// The hash of some labels in lower case, never 0; `None` if they are longer than `MOST`.
fn hash_of<const MOST: usize>(labels: &[u8]) -> Option<u64> {
    let mut lower = [0; MOST];
    let lower = lower.get_mut(..labels.len())?;
    lower.copy_from_slice(labels);
    lower.make_ascii_lowercase();
    Some(mixed(lower, 0).max(1))
}

/// The hash of a response's name, whatever the query type; never 0.
pub(crate) fn name(name: &[u8]) -> Option<u64> {
    hash_of::<NAME_MOST>(name)
}

/// Reads a zone's text back.
pub(crate) fn shown(text: &[u8; ZONE_SHOWN]) -> &str {
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    std::str::from_utf8(&text[..end]).unwrap_or("?")
}

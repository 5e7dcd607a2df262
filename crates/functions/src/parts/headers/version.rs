//! The IP version that a link header announces, which changes when one version is translated to, or encapsulated in, the other.

use braid_nf::packet::headers::ether_type;
use braid_nf::packet::{IpVersion, Link};

/// Writes into a link header which IP version follows. Returns false if the header has no known field for it.
pub fn write_version(link: &mut [u8], to: IpVersion, kind: Option<Link>) -> bool {
    let (old, new) = match to {
        IpVersion::V4 => (ether_type::IPV6, ether_type::IPV4),
        IpVersion::V6 => (ether_type::IPV4, ether_type::IPV6),
    };
    let at = if kind == Some(Link::Cooked2) && link.len() == 20 { 0 } else { link.len().saturating_sub(2) };
    match link.get_mut(at..at + 2) {
        Some(field) if *field == old.to_be_bytes() => {
            field.copy_from_slice(&new.to_be_bytes());
            true
        }
        Some(_) => false,
        None => true,
    }
}

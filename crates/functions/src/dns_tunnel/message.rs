//! What a DNS response may hide in its answers, and how names are kept beside addresses.

use braid_nf::packet::IpAddress;
use braid_nf::state::hash::mixed;

use crate::parts::headers::dns::Response;

/// The bytes of the answers, if they hold no address.
pub(super) fn answer_bytes(response: &Response<'_>) -> u64 {
    if response.address().is_none() { response.answers().len() as u64 } else { 0 }
}

/// Encodes a name's hash as an address that no host has.
pub(super) fn as_address(name: u64) -> IpAddress {
    let (high, low) = (name | 0xff << 56, mixed(&name.to_le_bytes(), 2));
    IpAddress::from_v6((u128::from(high) << 64 | u128::from(low)).to_be_bytes())
}

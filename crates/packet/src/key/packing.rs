//! Parts of the generic path: filling a key field by field, and the fields inside of UDP, ICMP and ARP.

use super::{Keys, protocol};
use crate::edit::Headers;
use crate::headers::{Arp, GtpU, Header, Vxlan};
use crate::parse::{LinkFields, be16};

/// Bytes of a key, filled from the front; the fields have been checked to fit.
pub(super) struct Packing {
    pub(super) bytes: [u8; Keys::WIDE_BYTES],
    pub(super) at: usize,
}

impl Packing {
    #[inline(always)]
    pub(super) fn push(&mut self, field: &[u8]) {
        if let Some(place) = self.bytes.get_mut(self.at..self.at + field.len()) {
            place.copy_from_slice(field);
        }
        self.at += field.len();
    }

    pub(super) fn words(&self) -> [u64; 5] {
        let (words, _) = self.bytes.as_chunks::<8>();
        std::array::from_fn(|i| u64::from_le_bytes(words[i]))
    }
}

pub(super) fn icmp_id(ip: Headers, frame: &[u8]) -> u16 {
    ip.icmp_id_at(frame).and_then(|at| be16(frame, at)).unwrap_or(0)
}

/// Returns the payload of a UDP packet to `port`.
pub(super) fn udp_payload(ip: Headers, frame: &[u8], port: u16) -> Option<&[u8]> {
    let to = ip.ports(frame)?.1;
    if ip.proto == protocol::UDP && to == port { frame.get(ip.transport()? + 8..) } else { None }
}

pub(super) fn gtp_teid(ip: Headers, frame: &[u8]) -> Option<u32> {
    Some(GtpU::parse(udp_payload(ip, frame, GtpU::PORT)?)?.teid())
}

pub(super) fn vxlan_vni(ip: Headers, frame: &[u8]) -> Option<u32> {
    Some(Vxlan::parse(udp_payload(ip, frame, Vxlan::PORT)?)?.vni())
}

pub(super) fn arp_target(link: LinkFields, frame: &[u8]) -> Option<[u8; 4]> {
    if link.ether_type != crate::headers::ether_type::ARP {
        return None;
    }
    Arp::parse(frame.get(link.at..)?)?.target_ip().v4()
}

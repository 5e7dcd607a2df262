//! The fields of a five-tuple key, for functions that get a key without a packet, as when a set has expired.

use super::extract::FIVE_TUPLE;
use super::keys::Keys;
use super::{KeyClass, SetKey};
use crate::address::IpAddress;
use crate::parse::be16;

/// Ends and protocol of a flow. In a symmetric key, it is unspecified which end is the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FiveTuple {
    /// Source address.
    pub src_ip: IpAddress,
    /// Destination address.
    pub dst_ip: IpAddress,
    /// Source port, 0 if there is none.
    pub src_port: u16,
    /// Destination port, 0 if there is none.
    pub dst_port: u16,
    /// IP protocol number.
    pub protocol: u8,
}

impl SetKey {
    /// Returns the five fields of a key that has them all, alone ([`SetDef::five_tuple`](super::SetDef::five_tuple)) or among others,
    /// symmetric or not; `None` for other keys.
    pub fn five_tuple(&self) -> Option<FiveTuple> {
        if self.shape.0 & FIVE_TUPLE != FIVE_TUPLE {
            return None;
        }
        // They are the first of all fields, so they begin every key that has them.
        let mut bytes = [0; Keys::WIDE_BYTES];
        for (place, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(self.words) {
            *place = word.to_le_bytes();
        }
        let wide = self.class() == KeyClass::Wide;
        let address = |number: usize| match wide {
            true => Some(IpAddress::from_v6(*bytes.get(number * 16..)?.first_chunk()?)),
            false => Some(IpAddress::from_v4(*bytes.get(number * 4..)?.first_chunk()?)),
        };
        let rest = if wide { 32 } else { 8 };
        Some(FiveTuple {
            src_ip: address(0)?,
            dst_ip: address(1)?,
            src_port: be16(&bytes, rest)?,
            dst_port: be16(&bytes, rest + 2)?,
            protocol: *bytes.get(rest + 4)?,
        })
    }
}

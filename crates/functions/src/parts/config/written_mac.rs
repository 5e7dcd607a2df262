//! A MAC address as a plan file has it: `02:00:00:00:00:01`.

use braid_nf::packet::MacAddress;
use serde::{Deserialize, Deserializer, de};

/// A MAC address that is read from its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrittenMac(pub MacAddress);

impl<'de> Deserialize<'de> for WrittenMac {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<WrittenMac, D::Error> {
        String::deserialize(deserializer)?.parse().map(WrittenMac).map_err(de::Error::custom)
    }
}

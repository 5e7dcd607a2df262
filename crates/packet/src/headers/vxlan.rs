//! VXLAN (RFC 7348 section 5).

use zerocopy::byteorder::network_endian::U32;

use super::{Header, header};

header! {
    /// The eight bytes before the inner Ethernet frame.
    Vxlan { flags: u8, reserved: [u8; 3], vni_reserved: U32 }
}

impl Header for Vxlan {
    /// Requires the flag that marks the network identifier as valid.
    #[inline(always)]
    fn variable_len(&self, _rest: &[u8]) -> Option<usize> {
        (self.flags & 0x08 != 0).then_some(0)
    }
}

impl Vxlan {
    /// UDP destination port.
    pub const PORT: u16 = 4789;

    /// Creates a header for a network identifier; its upper 8 bits are ignored.
    pub fn new(vni: u32) -> Vxlan {
        Vxlan { flags: 0x08, reserved: [0; 3], vni_reserved: (vni << 8).into() }
    }

    /// Network identifier, 24 bits.
    #[inline(always)]
    pub fn vni(&self) -> u32 {
        self.vni_reserved.get() >> 8
    }

    /// Sets the network identifier; its upper 8 bits are ignored.
    #[inline(always)]
    pub fn set_vni(&mut self, vni: u32) {
        self.vni_reserved = (self.vni_reserved.get() & 0xff | vni << 8).into();
    }
}

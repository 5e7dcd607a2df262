//! VLAN tags: 802.1Q, 802.1ad (QinQ) and its old type 0x9100 (IEEE 802.1Q section 9.6).

use zerocopy::byteorder::network_endian::U16;

use super::{Header, View, header};
use crate::parse::is_tag;

header! {
    /// The four bytes after the Ethernet type that announced the tag: control information and the next type.
    Vlan { control: U16, kind: U16 }
}

impl Header for Vlan {
    #[inline(always)]
    fn variable_len(&self, _rest: &[u8]) -> Option<usize> {
        Some(0)
    }
}

impl Vlan {
    /// VLAN number, 0 to 4095; 0 means that the tag carries only a priority.
    #[inline(always)]
    pub fn id(&self) -> u16 {
        self.control.get() & 0x0fff
    }

    /// Priority code point, 0 to 7.
    #[inline(always)]
    pub fn priority(&self) -> u8 {
        (self.control.get() >> 13) as u8
    }

    /// Drop eligible indicator.
    #[inline(always)]
    pub fn drop_eligible(&self) -> bool {
        self.control.get() & 0x1000 != 0
    }

    /// Type of what follows: another tag or the payload.
    #[inline(always)]
    pub fn ether_type(&self) -> u16 {
        self.kind.get()
    }

    /// Sets the VLAN number; its upper four bits are ignored.
    #[inline(always)]
    pub fn set_id(&mut self, id: u16) {
        self.control = (self.control.get() & 0xf000 | id & 0x0fff).into();
    }

    /// Sets the priority; its upper five bits are ignored.
    #[inline(always)]
    pub fn set_priority(&mut self, priority: u8) {
        self.control = (self.control.get() & 0x1fff | u16::from(priority & 7) << 13).into();
    }

    /// Sets the type of what follows.
    #[inline(always)]
    pub fn set_ether_type(&mut self, kind: u16) {
        self.kind = kind.into();
    }
}

/// The tags of a frame, outermost first.
#[derive(Clone, Copy, Debug)]
pub struct VlanTags<'a> {
    kind: u16,
    rest: &'a [u8],
}

impl<'a> VlanTags<'a> {
    /// Returns the tags at the beginning of `rest`, which follows a header that announced `kind`.
    pub fn new(kind: u16, rest: &'a [u8]) -> VlanTags<'a> {
        VlanTags { kind, rest }
    }
}

impl<'a> Iterator for VlanTags<'a> {
    type Item = View<'a, Vlan>;

    fn next(&mut self) -> Option<View<'a, Vlan>> {
        if !is_tag(self.kind) {
            return None;
        }
        let tag = Vlan::parse(self.rest)?;
        (self.kind, self.rest) = (tag.ether_type(), tag.payload());
        Some(tag)
    }
}

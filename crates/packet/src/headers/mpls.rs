//! MPLS label stack entries (RFC 3032 section 2.1, RFC 5462).

use zerocopy::byteorder::network_endian::U32;

use super::{Header, View, header};

header! {
    /// One label stack entry.
    Mpls { entry: U32 }
}

impl Header for Mpls {
    #[inline(always)]
    fn variable_len(&self, _rest: &[u8]) -> Option<usize> {
        Some(0)
    }
}

impl Mpls {
    /// Label, 20 bits.
    #[inline(always)]
    pub fn label(&self) -> u32 {
        self.entry.get() >> 12
    }

    /// Traffic class, 3 bits.
    #[inline(always)]
    pub fn traffic_class(&self) -> u8 {
        (self.entry.get() >> 9) as u8 & 7
    }

    /// Whether it is the last entry of the stack.
    #[inline(always)]
    pub fn is_bottom(&self) -> bool {
        self.entry.get() & 0x100 != 0
    }

    /// Time to live.
    #[inline(always)]
    pub fn ttl(&self) -> u8 {
        self.entry.get() as u8
    }

    /// Sets the label; its upper 12 bits are ignored.
    #[inline(always)]
    pub fn set_label(&mut self, label: u32) {
        self.entry = (self.entry.get() & 0xfff | label << 12).into();
    }

    /// Sets the traffic class; its upper five bits are ignored.
    #[inline(always)]
    pub fn set_traffic_class(&mut self, class: u8) {
        self.entry = (self.entry.get() & !0xe00 | u32::from(class & 7) << 9).into();
    }

    /// Sets whether it is the last entry.
    #[inline(always)]
    pub fn set_bottom(&mut self, bottom: bool) {
        self.entry = (self.entry.get() & !0x100 | u32::from(bottom) << 8).into();
    }

    /// Sets the time to live.
    #[inline(always)]
    pub fn set_ttl(&mut self, ttl: u8) {
        self.entry = (self.entry.get() & !0xff | u32::from(ttl)).into();
    }
}

/// Iterator over the entries of a label stack, outermost first; ends after the bottom entry or where the bytes end.
#[derive(Clone, Copy, Debug)]
pub struct Stack<'a> {
    rest: Option<&'a [u8]>,
}

impl<'a> Stack<'a> {
    /// Returns the stack at the beginning of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Stack<'a> {
        Stack { rest: Some(bytes) }
    }
}

impl<'a> Iterator for Stack<'a> {
    type Item = View<'a, Mpls>;

    fn next(&mut self) -> Option<View<'a, Mpls>> {
        let entry = Mpls::parse(self.rest?)?;
        self.rest = (!entry.is_bottom()).then_some(entry.payload());
        Some(entry)
    }
}

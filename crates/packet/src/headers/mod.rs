//! Header types: one file per protocol, all with the same structure.
//!
//! The fixed part of a header is a plain big-endian structure with checked accessors and setters; parts of variable length
//! (options, extension headers) follow it. [`Header::parse`] checks once that all of it is present and returns a [`View`],
//! [`Header::parse_mut`] a [`ViewMut`]; after that no accessor panics, whatever the bytes are. Setters change only their own
//! field: checksums are updated by the setters of [`Packet`](crate::Packet) or with [`checksum`](crate::checksum).

mod arp;
mod ethernet;
mod gre;
mod gtpu;
mod icmp;
mod icmpv6;
mod ipv4;
mod ipv6;
mod mpls;
mod pppoe;
mod sctp;
mod tcp;
mod udp;
mod vlan;
mod vxlan;

pub use arp::{Arp, ArpOperation};
pub use ethernet::{Ethernet, ether_type};
pub use gre::Gre;
pub use gtpu::{Extension as GtpExtension, Extensions as GtpExtensions, GtpU};
pub use icmp::{Icmp, icmp_type};
pub use icmpv6::{Icmpv6, icmpv6_type};
pub(crate) use ipv4::next_option;
pub use ipv4::{Ipv4, Ipv4Option, Ipv4Options};
pub use ipv6::{Extension as Ipv6Extension, Extensions as Ipv6Extensions, Ipv6};
pub use mpls::{Mpls, Stack as MplsStack};
pub use pppoe::Pppoe;
pub use sctp::Sctp;
pub use tcp::{Tcp, TcpOption, TcpOptions, tcp_flags};
pub use udp::Udp;
pub use vlan::{Vlan, VlanTags};
pub use vxlan::Vxlan;

use std::ops::{Deref, DerefMut};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The fixed header of a protocol.
pub trait Header: FromBytes + IntoBytes + Immutable + KnownLayout + Unaligned + Sized {
    /// Length of the fixed part in bytes.
    const LEN: usize = size_of::<Self>();

    /// Returns the length of the variable part in bytes, given everything after the fixed part; `None` if the header is
    /// malformed or cut.
    fn variable_len(&self, rest: &[u8]) -> Option<usize>;

    /// Parses the header at the beginning of `bytes`, if it is complete and well formed.
    #[inline(always)]
    fn parse(bytes: &[u8]) -> Option<View<'_, Self>> {
        let (fixed, rest) = Self::ref_from_prefix(bytes).ok()?;
        let (variable, payload) = rest.split_at_checked(fixed.variable_len(rest)?)?;
        Some(View { fixed, variable, payload })
    }

    /// Parses the header at the beginning of `bytes`, for modification.
    #[inline(always)]
    fn parse_mut(bytes: &mut [u8]) -> Option<ViewMut<'_, Self>> {
        let (fixed, rest) = Self::mut_from_prefix(bytes).ok()?;
        let variable = fixed.variable_len(rest)?;
        let (variable, payload) = rest.split_at_mut_checked(variable)?;
        Some(ViewMut { fixed, variable, payload })
    }

    /// Writes the fixed part to the beginning of `bytes`; returns `false` if there is no room.
    #[inline(always)]
    fn emit(&self, bytes: &mut [u8]) -> bool {
        self.write_to_prefix(bytes).is_ok()
    }
}

/// A complete header, read-only. The accessors of the fixed part are available through `Deref`.
#[derive(Debug)]
pub struct View<'a, H> {
    fixed: &'a H,
    variable: &'a [u8],
    payload: &'a [u8],
}

impl<H> Clone for View<'_, H> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<H> Copy for View<'_, H> {}

impl<'a, H: Header> View<'a, H> {
    /// Returns the length of the whole header in bytes.
    #[inline(always)]
    pub fn header_len(&self) -> usize {
        H::LEN + self.variable.len()
    }

    /// Returns the fixed part, for as long as the bytes live.
    #[inline(always)]
    pub fn fixed(&self) -> &'a H {
        self.fixed
    }

    /// Returns the variable part: options or extension headers.
    #[inline(always)]
    pub fn variable(&self) -> &'a [u8] {
        self.variable
    }

    /// Returns everything present after the header; not cut to a length field.
    #[inline(always)]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

impl<H> Deref for View<'_, H> {
    type Target = H;

    #[inline(always)]
    fn deref(&self) -> &H {
        self.fixed
    }
}

/// A complete header, for modification. The setters of the fixed part are available through `DerefMut`.
#[derive(Debug)]
pub struct ViewMut<'a, H> {
    fixed: &'a mut H,
    variable: &'a mut [u8],
    payload: &'a mut [u8],
}

impl<'a, H: Header> ViewMut<'a, H> {
    /// Returns the fixed part, for as long as the bytes live.
    #[inline(always)]
    pub fn into_fixed(self) -> &'a mut H {
        self.fixed
    }

    /// Returns the variable part: options or extension headers.
    #[inline(always)]
    pub fn variable_mut(&mut self) -> &mut [u8] {
        self.variable
    }

    /// Returns everything present after the header.
    #[inline(always)]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        self.payload
    }
}

impl<H> Deref for ViewMut<'_, H> {
    type Target = H;

    #[inline(always)]
    fn deref(&self) -> &H {
        self.fixed
    }
}

impl<H> DerefMut for ViewMut<'_, H> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut H {
        self.fixed
    }
}

/// Defines the structure of a header with its derives, including `Default`.
macro_rules! header {
    ($(#[$doc:meta])* $name:ident { $($field:ident: $kind:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout, zerocopy::Unaligned)]
        #[repr(C)]
        pub struct $name { $($field: $kind),* }
    };
}
pub(crate) use header;

#[cfg(test)]
mod tests;

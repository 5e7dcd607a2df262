//! Translates link-layer types of capture files (<https://www.tcpdump.org/linktypes.html>) to and from [`Link`].

use braid_packet::Link;

pub(crate) const LINKTYPE_NULL: u32 = 0;
pub(crate) const LINKTYPE_ETHERNET: u32 = 1;
pub(crate) const LINKTYPE_PPP: u32 = 9;
pub(crate) const LINKTYPE_RAW: u32 = 101;
pub(crate) const LINKTYPE_C_HDLC: u32 = 104;
pub(crate) const LINKTYPE_LINUX_SLL: u32 = 113;
pub(crate) const LINKTYPE_LINUX_SLL2: u32 = 276;
/// The type written for frames of [`Link::Other`], since their original number is not kept: `LINKTYPE_USER0`.
pub(crate) const LINKTYPE_USER0: u32 = 147;

/// Converts a file's link type to ours.
pub(crate) fn from_file(linktype: u32) -> Link {
    match linktype {
        LINKTYPE_ETHERNET => Link::Ethernet,
        // 12 and 14 are DLT_RAW on BSD systems, 228 and 229 are LINKTYPE_IPV4 and LINKTYPE_IPV6.
        12 | 14 | LINKTYPE_RAW | 228 | 229 => Link::RawIp,
        LINKTYPE_LINUX_SLL => Link::Cooked1,
        LINKTYPE_LINUX_SLL2 => Link::Cooked2,
        // 108 is LINKTYPE_LOOP.
        LINKTYPE_NULL | 108 => Link::Loopback,
        // 50 is LINKTYPE_PPP_HDLC.
        LINKTYPE_PPP | 50 => Link::Ppp,
        LINKTYPE_C_HDLC => Link::Hdlc,
        _ => Link::Other,
    }
}

/// Converts our link type to a file's.
pub(crate) fn to_file(link: Link) -> u32 {
    match link {
        Link::Ethernet => LINKTYPE_ETHERNET,
        Link::RawIp => LINKTYPE_RAW,
        Link::Cooked1 => LINKTYPE_LINUX_SLL,
        Link::Cooked2 => LINKTYPE_LINUX_SLL2,
        Link::Loopback => LINKTYPE_NULL,
        Link::Ppp => LINKTYPE_PPP,
        Link::Hdlc => LINKTYPE_C_HDLC,
        Link::Other => LINKTYPE_USER0,
    }
}

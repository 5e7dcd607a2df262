//! What is known of a fragmented datagram for the router itself, some of whose fragments have arrived.

use braid_nf::packet::headers::{Header, Ipv6};
use braid_nf::packet::parse::protocol;
use braid_nf::prelude::*;

use super::piece::Piece;
use crate::parts::SECOND;
use crate::parts::fragments::Datagram;

/// How long fragments wait for the others (RFC 1122 section 3.3.2, RFC 8200 section 4.5).
pub(in crate::router) const LIFETIME_NS: u64 = 60 * SECOND;
/// The longest link header and IP header that are kept for an answer: Ethernet with two tags, IPv4 with all options.
const LINK_MAX: usize = 22;
const HEAD_MAX: usize = LINK_MAX + 60;
/// The offset at which the IPv6 fixed header names what follows it.
pub(in crate::router) const NEXT: usize = 6;

/// What is known of a datagram, some of whose fragments have arrived.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(in crate::router) struct Gathered {
    /// When the first of them arrived.
    pub(in crate::router) since_ns: u64,
    /// Bytes that have arrived.
    pub(in crate::router) have: u32,
    /// Bytes of the whole datagram; 0 until the last fragment has arrived.
    pub(in crate::router) total: u32,
    /// The farthest offset that any fragment reaches, in bytes.
    pub(in crate::router) reached: u32,
    /// Bytes of the first fragment; 0 until it has arrived.
    pub(in crate::router) first: u16,
    /// Fragments that have arrived.
    pub(in crate::router) pieces: u16,
    /// 0, or why the datagram cannot be completed: [`OVERLAPS`] or [`FULL`].
    pub(in crate::router) ended: u8,
    pub(in crate::router) link_len: u8,
    header_len: u8,
    zero: u8,
    /// The VLAN on which the fragments arrive; 0: none.
    pub(in crate::router) vlan: u16,
    /// Link header and IP header of the first fragment.
    pub(in crate::router) head: [u8; HEAD_MAX],
}

/// A fragment contradicts another one.
pub(in crate::router) const OVERLAPS: u8 = 1;
/// There was no room for a fragment.
pub(in crate::router) const FULL: u8 = 2;

/// Whether the fragments have waited longer than allowed.
pub(in crate::router) fn is_old(gathered: &Gathered, now: u64) -> bool {
    now.saturating_sub(gathered.since_ns) > LIFETIME_NS
}

impl Gathered {
    pub(in crate::router) fn new(since_ns: u64, vlan: u16) -> Gathered {
        Gathered {
            since_ns,
            have: 0,
            total: 0,
            reached: 0,
            first: 0,
            pieces: 0,
            ended: 0,
            link_len: 0,
            header_len: 0,
            zero: 0,
            vlan,
            head: [0; HEAD_MAX],
        }
    }

    /// Whether a fragment disagrees with the others about where the datagram ends.
    pub(in crate::router) fn contradicts(&self, piece: &Piece<'_>) -> bool {
        let (end, total) = (piece.end() as u32, self.total);
        match piece.more {
            true => total > 0 && end >= total,
            false => self.reached > end || total > 0 && total != end,
        }
    }

    /// Counts a fragment, and keeps the headers of the first one.
    pub(in crate::router) fn take_in(&mut self, piece: &Piece<'_>, packet: &Packet<'_>) {
        self.have += piece.bytes.len() as u32;
        self.pieces = self.pieces.saturating_add(1);
        self.reached = self.reached.max(piece.end() as u32);
        if !piece.more {
            self.total = piece.end() as u32;
        }
        if piece.offset == 0 {
            let link = packet.bytes().get(..packet.record().l3.into()).filter(|link| link.len() <= LINK_MAX);
            let (link, header) = (link.unwrap_or_default(), piece.header);
            self.head[..link.len()].copy_from_slice(link);
            self.head[link.len()..][..header.len()].copy_from_slice(header);
            // The protocol that other fragments name is ignored (RFC 8200 section 4.5).
            if piece.is_v6() {
                self.head[link.len() + NEXT] = piece.next;
            }
            (self.link_len, self.header_len) = (link.len() as u8, header.len() as u8);
            self.first = if link.is_empty() { 0 } else { piece.bytes.len() as u16 };
        }
    }

    /// The IP header of the first fragment.
    pub(in crate::router) fn header(&self) -> &[u8] {
        &self.head[self.link_len.into()..][..self.header_len.into()]
    }

    /// Rebuilds the first fragment as received, up to the bytes that are quoted, without IPv6 headers before the fragment
    /// header.
    pub(in crate::router) fn first_piece(&self, datagram: &Datagram, bytes: &[u8]) -> Vec<u8> {
        let (header, first) = (self.header(), &bytes[..bytes.len().min(self.first.into())]);
        let mut piece = header.to_vec();
        if header.len() == Ipv6::LEN && header[0] >> 4 == 6 {
            let next = std::mem::replace(&mut piece[NEXT], protocol::FRAGMENT);
            piece[4..6].copy_from_slice(&(self.first + 8).to_be_bytes());
            piece.extend([next, 0, 0, 1]);
            piece.extend(datagram.identification().to_be_bytes());
        }
        piece.extend_from_slice(first);
        piece
    }
}

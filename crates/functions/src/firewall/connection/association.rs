//! Associations of SCTP: whether a packet has a tag that its receiver has chosen, and when an association ends (RFC 9260
//! section 8.5, as conntrack's `sctp_packet`).
//!
//! A tag allows packets only towards the end that has chosen it, so nobody who guesses ports gets anything in. Conntrack
//! takes the tag of any INIT for the association's; here it is an offer until the other end has used the answer, so a
//! forged INIT ends nothing.

use braid_nf::packet::Packet;
use braid_nf::prelude::*;

use super::states::Sender;

/// The tags of an association, by who sends the packets that carry them: the opener, the other end. 0: not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Association {
    agreed: [u32; 2],
    /// Those of the latest INIT and the answer to it.
    offered: [u32; 2],
    /// The one that an INIT ACK before the latest has offered, which its receiver may have taken; or the one of a HEARTBEAT that
    /// does not fit.
    other: u32,
    /// [`SEEN`], [`SHUT`], [`PROBED`].
    known: u8,
    zero: [u8; 3],
}

/// Its beginning was seen: no tag is learnt from just any packet.
const SEEN: u8 = 1;
/// One end has acknowledged the end of it.
const SHUT: u8 = 2;
/// The opener has sent a HEARTBEAT that does not fit; shifted by one, the other end.
const PROBED: u8 = 4;

/// Types of chunks (RFC 9260 section 3.2), and the bit that says that the tag is the one of the other direction.
const DATA: u8 = 0;
const INIT: u8 = 1;
const INIT_ACK: u8 = 2;
const HEARTBEAT: u8 = 4;
const HEARTBEAT_ACK: u8 = 5;
const ABORT: u8 = 6;
const SHUTDOWN_ACK: u8 = 8;
const COOKIE_ECHO: u8 = 10;
const COOKIE_ACK: u8 = 11;
const SHUTDOWN_COMPLETE: u8 = 14;
const REFLECTED: u8 = 1;

/// What a packet does to its association.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Course {
    GoesOn,
    Ends,
}

/// One chunk, and the tag of its packet.
struct Chunk<'a> {
    tag: u32,
    kind: u8,
    is_reflected: bool,
    value: &'a [u8],
    is_first: bool,
    is_last: bool,
}

impl Association {
    /// The association that a packet opens: by INIT without a tag; by HEARTBEAT or its answer, on a further path (section 8.3); or
    /// by SHUTDOWN ACK, which an end repeats to a peer that has forgotten it (section 8.4). All other chunks are of one that
    /// is known.
    pub(super) fn begin(packet: &Packet<'_>) -> Option<Association> {
        let first = chunks(packet)?.next()??;
        let mut association = Association { known: SEEN, ..Association::default() };
        match first.kind {
            HEARTBEAT | HEARTBEAT_ACK | SHUTDOWN_ACK => association.agreed[0] = first.tag,
            INIT => association.hear(packet, Sender::Opener).map(|_| ())?,
            _ => return None,
        }
        Some(association)
    }

    /// An association whose beginning was not seen, picked up by a packet of its opener.
    pub(super) fn picked_up(packet: &Packet<'_>) -> Association {
        let mut association = Association::default();
        let _ = association.hear(packet, Sender::Opener);
        association
    }

    /// Takes in what a packet says; `None`, with nothing changed, if it does not belong to the association.
    pub(super) fn hear(&mut self, packet: &Packet<'_>, sender: Sender) -> Option<Course> {
        let (mut after, mut course, mut is_empty) = (*self, Course::GoesOn, true);
        let has_data = || chunks(packet).is_some_and(|mut all| all.any(|one| one.is_some_and(|one| one.kind == DATA)));
        for chunk in chunks(packet)? {
            let chunk = chunk?;
            // Nothing stands beside these, and nothing before those.
            let is_alone = matches!(chunk.kind, INIT | INIT_ACK | SHUTDOWN_COMPLETE);
            let is_ahead = matches!(chunk.kind, COOKIE_ECHO | COOKIE_ACK);
            if (is_alone || is_ahead) && !chunk.is_first || is_alone && !chunk.is_last {
                return None;
            }
            if after.hear_chunk(&chunk, sender, has_data)? == Course::Ends {
                course = Course::Ends;
            }
            is_empty = false;
        }
        if is_empty && !packet.is_short() {
            return None;
        }
        *self = after;
        Some(course)
    }

    /// Does the same with one chunk. `has_data`: whether the packet has data.
    fn hear_chunk(&mut self, chunk: &Chunk<'_>, sender: Sender, has_data: impl Fn() -> bool) -> Option<Course> {
        let (tag, from, to) = (chunk.tag, sender as usize, sender as usize ^ 1);
        if self.known & SEEN == 0 && self.agreed[from] == 0 && tag != 0 && !chunk.is_reflected {
            self.agreed[from] = tag;
        }
        let fits = self.fits(from, tag);
        let of_either_end = if chunk.is_reflected { self.fits(to, tag) } else { fits };
        let of_this = self.agreed == [0; 2] || self.agreed[if chunk.is_reflected { to } else { from }] == tag;
        match chunk.kind {
            INIT => {
                self.offered[to] = chunk.initiate_tag().filter(|_| tag == 0)?;
                return Some(Course::GoesOn);
            }
            INIT_ACK => {
                let offer = chunk.initiate_tag().filter(|_| fits)?;
                if self.offered[to] != offer {
                    (self.other, self.offered[to]) = (self.offered[to], offer);
                }
                return Some(Course::GoesOn);
            }
            COOKIE_ECHO if !fits && tag != 0 && tag == self.other && self.known & (PROBED | PROBED << 1) == 0 => {
                self.offered[from] = tag;
                return Some(Course::GoesOn);
            }
            COOKIE_ECHO if fits => return Some(Course::GoesOn),
            ABORT if of_either_end => return Some(if of_this { Course::Ends } else { Course::GoesOn }),
            SHUTDOWN_COMPLETE if of_either_end => {
                return Some(if of_this && self.known & SHUT != 0 { Course::Ends } else { Course::GoesOn });
            }
            SHUTDOWN_ACK if fits || self.agreed == [0; 2] => self.known |= SHUT,
            HEARTBEAT | HEARTBEAT_ACK if !fits && self.agreed[from] == 0 && self.offered == [0; 2] => {
                self.agreed[from] = tag;
            }
            HEARTBEAT if !fits && !has_data() => {
                (self.other, self.known) = (tag, self.known & !(PROBED | PROBED << 1) | PROBED << from);
            }
            // Both ends know tags that are not known here: the association has begun anew on another path.
            HEARTBEAT_ACK if !fits && !has_data() && self.known & PROBED << to != 0 => {
                self.agreed[from] = tag;
                self.agreed[to] = self.other;
                self.known &= !(PROBED | PROBED << 1);
            }
            ABORT | SHUTDOWN_COMPLETE => return None,
            _ if fits => {}
            _ => return None,
        }
        if tag != self.agreed[from] && tag == self.offered[from] && self.offered[to] != 0 {
            // Who uses the tag of the answer to its INIT, or of the INIT that it has answered, has begun anew.
            *self = Association { agreed: self.offered, known: self.known & SEEN, ..Association::default() };
        }
        Some(Course::GoesOn)
    }

    fn fits(&self, from: usize, tag: u32) -> bool {
        tag != 0 && (tag == self.agreed[from] || tag == self.offered[from])
    }
}

impl Chunk<'_> {
    /// The tag that the sender of an INIT or INIT ACK wants to be sent; 0 is none (section 3.3.2).
    fn initiate_tag(&self) -> Option<u32> {
        let tag = self.value.first_chunk().map(|tag| u32::from_be_bytes(*tag));
        tag.filter(|tag| *tag != 0)
    }
}

/// Whether a packet begins a new association between its ends.
pub(super) fn is_init(packet: &Packet<'_>) -> bool {
    chunks(packet).and_then(|mut all| all.next()).flatten().is_some_and(|chunk| chunk.kind == INIT)
}

/// The chunks of a packet, as far as they are present. `None` for one whose length is wrong, which is the last.
fn chunks<'a>(packet: &'a Packet<'_>) -> Option<impl Iterator<Item = Option<Chunk<'a>>>> {
    let (head, mut rest) = packet.ip_payload().split_first_chunk::<12>()?;
    let tag = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
    let mut is_first = true;
    Some(std::iter::from_fn(move || {
        let [kind, flags, high, low] = *rest.first_chunk()?;
        let len = usize::from(u16::from_be_bytes([high, low]));
        let whole = rest;
        rest = whole.get(len.next_multiple_of(4)..).unwrap_or_default();
        if len < 4 {
            rest = &[];
            return Some(None);
        }
        let value = whole.get(4..len.min(whole.len())).unwrap_or_default();
        let chunk = Chunk {
            tag,
            kind,
            is_reflected: flags & REFLECTED != 0 && matches!(kind, ABORT | SHUTDOWN_COMPLETE),
            value,
            is_first: std::mem::take(&mut is_first),
            is_last: rest.is_empty(),
        };
        Some(Some(chunk))
    }))
}

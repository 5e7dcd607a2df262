//! Explicit congestion notification (RFC 3168): the two bits after the code point.

use braid_nf::packet::checksum::Change;

/// Both bits set: congestion experienced.
const EXPERIENCED: u8 = 3;

/// Marks a frame whose IP header begins at `ip` as having experienced congestion. Returns false if its endpoints do not support
/// ECN or it is already marked (RFC 3168 section 5).
pub fn mark(frame: &mut [u8], ip: usize) -> bool {
    let takes_part = |bits: u8| matches!(bits & EXPERIENCED, 1 | 2);
    match frame.get_mut(ip..).unwrap_or_default() {
        [lead, tos, _, _, _, _, _, _, _, _, high, low, ..] if *lead >> 4 == 4 && takes_part(*tos) => {
            let (before, after) = (u16::from_be_bytes([*lead, *tos]), u16::from_be_bytes([*lead, *tos | EXPERIENCED]));
            let sum = Change::NONE.u16(before, after).apply(u16::from_be_bytes([*high, *low]));
            (*tos, [*high, *low]) = (*tos | EXPERIENCED, sum.to_be_bytes());
            true
        }
        [first, second, ..] if *first >> 4 == 6 && takes_part(*second >> 4) => {
            *second |= EXPERIENCED << 4;
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use braid_testkit::{Frame, assert_checksums};

    use super::*;

    #[test]
    fn only_those_who_take_part_are_marked_and_checksums_stay_right() {
        for (tos, expected) in [(0b00, None), (0b01, Some(0b11)), (0b10, Some(0b11)), (0b11, None), (0xb9, Some(0xbb))]
        {
            for (from, to) in [("10.0.0.1:1", "10.0.0.2:2"), ("[2001:db8::1]:1", "[2001:db8::2]:2")] {
                let with = |tos| Frame::udp(from, to).tos(tos).bytes();
                let mut frame = with(tos);
                assert_eq!(mark(&mut frame, 14), expected.is_some(), "{tos} {from}");
                assert_eq!(frame, with(expected.unwrap_or(tos)));
                assert_checksums(&frame);
            }
        }
        let mut short = Frame::udp("10.0.0.1:1", "10.0.0.2:2").tos(1).bytes()[..20].to_vec();
        assert!(!mark(&mut short, 14) && !mark(&mut short, 50), "cut off");
    }
}

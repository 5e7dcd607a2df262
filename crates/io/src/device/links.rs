//! Asks the kernel over netlink (rtnetlink(7)) to what an interface of this network namespace belongs, which `ioctl(2)` does not tell.

use std::fs::File;
use std::io::{Read, Write};

use super::sys;

// include/uapi/linux/rtnetlink.h, netlink.h and if_link.h
const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const NLM_F_REQUEST: u16 = 1;
const IFLA_MASTER: u16 = 10;
/// Bytes of a message's header (`struct nlmsghdr`), and of what precedes the attributes of an interface (`struct ifinfomsg`).
const HEADER: usize = 16;
const INFO: usize = 16;
/// Room for one answer: a network card describes each of its virtual functions in it.
const ANSWER_MAX: usize = 64 << 10;

/// The index of the interface to which the interface with this index belongs: a bridge, bond or VRF. `None` if there is none, or
/// the kernel does not say.
pub(super) fn master(index: u32) -> Option<u32> {
    let socket = sys::socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE).ok()?;
    let (mut socket, mut answer) = (File::from(socket), vec![0; ANSWER_MAX]);
    socket.write_all(&request(index)).ok()?;
    let len = socket.read(&mut answer).ok()?;
    master_in(&answer[..len])
}

/// Asks for everything about one interface.
fn request(index: u32) -> [u8; HEADER + INFO] {
    let mut bytes = [0; HEADER + INFO];
    bytes[..4].copy_from_slice(&((HEADER + INFO) as u32).to_ne_bytes());
    bytes[4..6].copy_from_slice(&RTM_GETLINK.to_ne_bytes());
    bytes[6..8].copy_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    bytes[HEADER + 4..HEADER + 8].copy_from_slice(&index.to_ne_bytes());
    bytes
}

/// The master in the answer.
fn master_in(answer: &[u8]) -> Option<u32> {
    let half = |bytes: &[u8], at: usize| Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    if half(answer, 4)? != RTM_NEWLINK {
        return None;
    }
    let mut rest = answer.get(HEADER + INFO..)?;
    loop {
        // Length, which includes these four bytes, and kind; attributes begin at multiples of four bytes.
        let (len, kind) = (usize::from(half(rest, 0)?), half(rest, 2)?);
        if kind == IFLA_MASTER {
            return Some(u32::from_ne_bytes(rest.get(4..8)?.try_into().ok()?));
        }
        rest = rest.get(len.max(4).next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_master_is_found_among_other_attributes() {
        let attribute = |kind: u16, value: &[u8]| {
            let mut bytes = [(4 + value.len() as u16).to_ne_bytes(), kind.to_ne_bytes()].concat();
            bytes.extend(value);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        };
        let answer = |attributes: &[Vec<u8>]| {
            let mut bytes = vec![0; HEADER + INFO];
            bytes[4..6].copy_from_slice(&RTM_NEWLINK.to_ne_bytes());
            bytes.extend(attributes.concat());
            bytes
        };
        let (name, master) = (attribute(3, b"eth0\0"), attribute(IFLA_MASTER, &7u32.to_ne_bytes()));
        assert_eq!(master_in(&answer(&[name.clone(), master.clone()])), Some(7));
        assert_eq!(master_in(&answer(&[name])), None);
        let whole = answer(&[master]);
        assert!((0..whole.len()).all(|len| master_in(&whole[..len]).is_none()), "what is cut says nothing");
        assert_eq!(master_in(&[2; 36]), None, "an error");
    }

    #[test]
    fn loopback_belongs_to_nothing() {
        assert_eq!(master(1), None);
    }
}

//! QUIC connection identifiers that name their backend, in QUIC-LB's plaintext format (draft-ietf-quic-load-balancers,
//! section 4.1).
//!
//! An identifier begins with one byte, whose upper three bits select the format (7: it names no backend), then the server
//! identifier, then arbitrary bytes. A client that moves to another address or port thereby keeps its backend.
//!
//! Every packet is examined, in known flows too: behind a NAT, a client that moves may get a port that another client had
//! before. Identifiers that a client makes up for its first packets (Initial, 0-RTT) name no backend, and only the
//! version tells which packets those are. So long headers of unknown versions name no backend either, and follow their
//! flow.
//!
//! Out of scope: encrypted identifiers, and versions with other invariants than RFC 8999's.

use super::refusals::Wrong;

/// The upper three bits of an identifier that names no backend.
const NOBODY: u8 = 7;
const LONG: u8 = 0x80;
/// The bits of the packet type in a long header.
const TYPE: u8 = 0x30;
/// The Handshake type (RFC 9000 section 17.2; RFC 9369 section 3.2 for version 2), with which a client uses an identifier
/// that its server has made.
const HANDSHAKE: u8 = 0x20;
const HANDSHAKE_V2: u8 = 0x30;
/// Versions of QUIC; drafts differ in the last byte.
const V1: [u8; 4] = [0, 0, 0, 1];
const V2: [u8; 4] = [0x6b, 0x33, 0x43, 0xcf];
const DRAFT: [u8; 3] = [0xff, 0, 0];
const MOST: usize = 15;

/// The server identifier that a backend puts into its connection identifiers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerId(Vec<u8>);

impl std::str::FromStr for ServerId {
    type Err = Wrong;

    fn from_str(text: &str) -> Result<ServerId, Wrong> {
        let digits: Option<Vec<u8>> = text.chars().map(|digit| digit.to_digit(16).map(|digit| digit as u8)).collect();
        match digits {
            Some(digits) if digits.len() % 2 == 0 && (1..=MOST).contains(&(digits.len() / 2)) => {
                Ok(ServerId(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()))
            }
            _ => Err((
                format!("server_id `{text}` is not 1 to {MOST} bytes"),
                "write two hexadecimal digits for each byte",
            )),
        }
    }
}

/// The backends of a service by server identifier, all of one length, in order: every packet of a client is looked up.
#[derive(Clone, Debug, Default)]
pub(super) struct ServerIds(Vec<(ServerId, u32)>);

impl ServerIds {
    pub(super) fn add(&mut self, id: ServerId, backend: u32) -> Result<(), Wrong> {
        if self.0.first().is_some_and(|(other, _)| other.0.len() != id.0.len()) {
            return Err(("server_ids are of two lengths".into(), "write all with as many digits"));
        }
        match self.place(&id.0) {
            Ok(_) => Err(("two backends have one server_id".into(), "give each its own")),
            Err(at) => {
                self.0.insert(at, (id, backend));
                Ok(())
            }
        }
    }

    /// Whether there are no identifiers.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The backend that a UDP payload names.
    pub(super) fn named_by(&self, payload: &[u8]) -> Option<u32> {
        let (first, _) = self.0.first()?;
        let id = destination(payload)?;
        let (kind, rest) = id.split_first()?;
        let server = rest.get(..first.0.len()).filter(|_| kind >> 5 != NOBODY)?;
        self.place(server).ok().map(|at| self.0[at].1)
    }

    /// The place of an identifier, or the one where it would have to be.
    fn place(&self, server: &[u8]) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| (*known.0).cmp(server))
    }
}

/// The destination connection identifier (RFC 8999 section 5); in a short header, which gives no length, everything that
/// follows. `None` if the client may have made it up.
fn destination(payload: &[u8]) -> Option<&[u8]> {
    let (first, rest) = payload.split_first()?;
    if first & LONG == 0 {
        return Some(rest);
    }
    let (version, rest) = rest.split_first_chunk::<4>()?;
    let handshake = match *version {
        V1 => HANDSHAKE,
        V2 => HANDSHAKE_V2,
        _ if version.starts_with(&DRAFT) => HANDSHAKE,
        _ => return None,
    };
    if first & TYPE != handshake {
        return None;
    }
    let (len, rest) = rest.split_first()?;
    rest.get(..usize::from(*len))
}

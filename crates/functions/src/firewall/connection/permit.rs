//! The stored decision of the rules about a connection whose packets need no further check, and which rules made it: 23
//! bits beside other per-connection state, so that a packet in steady state is checked with one comparison.

use std::collections::HashMap;
use std::fmt::Write;
use std::hash::{Hash, Hasher};

use braid_nf::Port;

use super::states::Sender;
use super::{SIDES_OF_ENDS, WITHIN_SIDE};
use crate::firewall::conditions::values::Addresses;
use crate::firewall::rules::Rule;
use crate::parts::Sides;

/// The identity of a list of rules; the lowest bit says whether they have to be asked about each packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::firewall) struct Permit(u32);

/// The first value that does not fit into a [`Permit`].
const END: u32 = 1 << 23;

impl Permit {
    /// The permit of a list of rules; only the empty permit stands for no rules. Two lists have the same one with a
    /// probability of 1 in 4 million.
    pub(in crate::firewall) fn of(rules: &[Rule]) -> Permit {
        let mut text = Hashed(std::hash::DefaultHasher::new());
        // Long lists are the same of many rules.
        let mut lists: HashMap<*const Addresses, u64> = HashMap::new();
        for rule in rules {
            for list in [&rule.source, &rule.destination] {
                let known = lists.entry(list.0.as_ptr()).or_insert_with(|| hash_of(&list.0));
                text.0.write_u64(*known);
            }
            let (source, destination) = Default::default();
            // Writing to a hasher cannot fail.
            let _ = write!(text, "{:?}", Rule { source, destination, ..rule.clone() });
        }
        Permit(((text.0.finish() as u32 % END) & !1).max(2))
    }

    /// The permit of the same rules, if they have to be asked about each packet.
    pub(in crate::firewall) fn asked(self) -> Permit {
        Permit(self.0 | 1)
    }

    /// The permit as bytes, with the number of a side in the lowest bit of the last one.
    pub(in crate::firewall) fn beside(self, side: u8) -> [u8; 3] {
        let [low, high, rest, _] = self.0.to_le_bytes();
        [low, high, rest << 1 | side & 1]
    }

    /// Reads the permit from such bytes.
    pub(in crate::firewall) fn of_bytes([low, high, last]: [u8; 3]) -> Permit {
        Permit(u32::from_le_bytes([low, high, last >> 1, 0]))
    }

    /// Whether the same rules made it.
    pub(in crate::firewall) fn is_of(self, rules: Permit) -> bool {
        self.0 & !1 == rules.0
    }
}

fn hash_of(list: &[Addresses]) -> u64 {
    let mut hash = std::hash::DefaultHasher::new();
    list.iter().for_each(|range| (range.first, range.last).hash(&mut hash));
    hash.finish()
}

/// Hashes text as it is written.
struct Hashed(std::hash::DefaultHasher);

impl Write for Hashed {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

/// The side of each port, combined with the rules' permit: packets of connections that match both pass.
#[derive(Clone, Debug)]
pub(in crate::firewall) struct Ways([u32; 256]);

braid_nf::plain!(Ways);

impl Ways {
    pub(in crate::firewall) fn new(sides: Sides, permit: Permit) -> Ways {
        let way = |port: usize| match sides.of(port as Port) {
            Some(side) => {
                let [low, high, opener] = permit.beside(side as u8);
                u32::from_le_bytes([low, high, opener, 0])
            }
            None => u32::MAX,
        };
        Ways(std::array::from_fn(way))
    }

    /// Which end has sent a packet on a port, of the connection with this [word](super::Connection::word);
    /// `None` if more has to be asked: it does not arrive on its sender's side, or the rules have something to say. Plans have
    /// at most 256 ports.
    #[inline(always)]
    pub(in crate::firewall) fn lets(&self, port: Port, is_reversed: bool, word: u32) -> Option<Sender> {
        let (way, known) = (self.0[usize::from(port as u8)], word & (0x00ff_ffff | SIDES_OF_ENDS));
        let from_opener = u32::from(is_reversed) == word >> 24;
        if known ^ u32::from(!from_opener) << 16 == way {
            return Some(Sender::opener_if(from_opener));
        }
        // Both ends are on the side of this port.
        (known == way | WITHIN_SIDE).then_some(Sender::opener_if(u32::from(is_reversed) == word >> 24 & 1))
    }
}

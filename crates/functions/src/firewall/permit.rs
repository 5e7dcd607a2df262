//! What rules have said of a connection whose packets need not be asked about one by one, and which rules: in 23 bits beside what else
//! is remembered of it, so that a packet in steady state finds out by one comparison.

use std::fmt::Write;
use std::hash::Hasher;

use braid_nf::Port;

use super::rules::Rule;
use crate::parts::Sides;

/// The number of a list of rules, and in its lowest bit whether they have to be asked about each packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Permit(u32);

/// One bit above a [`Permit`] would be none of it.
const END: u32 = 1 << 23;

impl Permit {
    /// Of a list of rules: none but the empty permit is of no rules. Two lists have the same one by a chance of one in four millions.
    pub(super) fn of(rules: &[Rule]) -> Permit {
        let mut text = Hashed(std::hash::DefaultHasher::new());
        for rule in rules {
            // It cannot fail.
            let _ = write!(text, "{rule:?}");
        }
        Permit(((text.0.finish() as u32 % END) & !1).max(2))
    }

    /// The same rules, which have to be asked about each packet.
    pub(super) fn asked(self) -> Permit {
        Permit(self.0 | 1)
    }

    /// As bytes, in the lowest bit of the last one the number of a side.
    pub(super) fn beside(self, side: u8) -> [u8; 3] {
        let [low, high, rest, _] = self.0.to_le_bytes();
        [low, high, rest << 1 | side & 1]
    }

    /// Of such bytes.
    pub(super) fn of_bytes([low, high, last]: [u8; 3]) -> Permit {
        Permit(u32::from_le_bytes([low, high, last >> 1, 0]))
    }

    /// Whether it is of the same rules.
    pub(super) fn is_of(self, rules: Permit) -> bool {
        self.0 & !1 == rules.0
    }
}

/// Text that is hashed as it comes.
struct Hashed(std::hash::DefaultHasher);

impl Write for Hashed {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

/// For each port the side that it is on, with the permit of the rules: packets of connections that have both go on.
#[derive(Clone, Debug)]
pub(super) struct Ways([u32; 256]);

braid_nf::plain!(Ways);

impl Ways {
    pub(super) fn new(sides: Sides, permit: Permit) -> Ways {
        let way = |port: usize| match sides.of(port as Port) {
            Some(side) => {
                let [low, high, opener] = permit.beside(side as u8);
                u32::from_le_bytes([low, high, opener, 0])
            }
            None => u32::MAX,
        };
        Ways(std::array::from_fn(way))
    }

    /// Whether a packet by a port goes on with the connection of which this is the [word](super::connection::Connection::word): who sends it
    /// is on that port's side, and these rules have nothing to say. Plans have at most 256 ports.
    #[inline(always)]
    pub(super) fn lets(&self, port: Port, from_opener: bool, word: u32) -> bool {
        (word & 0x00ff_ffff) ^ u32::from(!from_opener) << 16 == self.0[usize::from(port as u8)]
    }
}

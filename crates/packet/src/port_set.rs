//! A set of ports, for example the ports outside of a chain, or those whose packets reach a function.

use crate::record::Port;

/// A set of ports below [`PortSet::LIMIT`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortSet([u64; 4]);

impl PortSet {
    /// Ports from this number on are in no set.
    pub const LIMIT: Port = 256;

    /// The odd ports: the outside ports by default.
    pub const ODD: PortSet = PortSet([u64::MAX / 3 * 2; 4]);

    /// Creates a set of the given ports.
    pub fn of(ports: impl IntoIterator<Item = Port>) -> PortSet {
        ports.into_iter().fold(PortSet::default(), |mut set, port| {
            if let Some(word) = set.0.get_mut(usize::from(port >> 6)) {
                *word |= 1 << (port & 63);
            }
            set
        })
    }

    /// Returns whether the set contains a port.
    #[inline(always)]
    pub fn has(&self, port: Port) -> bool {
        port < Self::LIMIT && self.0[usize::from(port >> 6) & 3] >> (port & 63) & 1 != 0
    }

    /// Returns the set's ports below `ports`, in order.
    pub fn iter(self, ports: u16) -> impl Iterator<Item = Port> {
        (0..ports.min(Self::LIMIT)).filter(move |&port| self.has(port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_what_was_put_in_and_nothing_else() {
        let set = PortSet::of([0, 63, 64, 255, 256, 9000]);
        assert_eq!(set.iter(u16::MAX).collect::<Vec<_>>(), [0, 63, 64, 255]);
        assert!(!set.has(256) && !set.has(9000));
        assert_eq!(PortSet::ODD.iter(6).collect::<Vec<_>>(), [1, 3, 5]);
    }
}

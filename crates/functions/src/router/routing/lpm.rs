//! Longest-prefix match: a compressed trie of 64-way nodes, as in Asai and Ohara, "Poptrie" (SIGCOMM 2015).
//!
//! A node examines six bits of the address. Two 64-bit words say which of its children are nodes, and where runs of equal
//! leaves begin; counting the ones below a bit gives a child's place in an array. IPv4 takes at most six steps, IPv6 at most
//! 22.

/// What a leaf holds: a value plus 1, or 0 for none.
type Leaf = u32;

/// Bits of the address that a node examines.
const STRIDE: u32 = 6;
const FANOUT: u32 = 1 << STRIDE;

#[derive(Clone, Copy, Debug, Default)]
struct Node {
    /// Bit *v*: child *v* is a node.
    nodes: u64,
    /// Bit *v*: child *v* is a leaf that differs from the leaf before it.
    leaves: u64,
    first_node: u32,
    first_leaf: u32,
}

/// A prefix, the first `len` bits from the highest on, and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefixed {
    /// The bits.
    pub bits: u128,
    /// How many of them count.
    pub len: u32,
    /// The value that a lookup returns.
    pub value: u32,
}

/// A table of prefixes, built once and then only read.
#[derive(Clone, Debug)]
pub struct Lpm {
    nodes: Vec<Node>,
    leaves: Vec<Leaf>,
}

braid_nf::plain!(Lpm);

impl Lpm {
    /// Builds a table of these prefixes; of two equal ones the later counts.
    pub fn new(prefixes: &[Prefixed]) -> Lpm {
        let mut lpm = Lpm { nodes: vec![Node::default()], leaves: Vec::new() };
        let mut sorted = prefixes.to_vec();
        sorted.sort_by_key(|prefix| prefix.len);
        lpm.fill(0, &sorted, 0, 0);
        lpm
    }

    /// Returns the value of the longest prefix of `address`.
    #[inline]
    pub fn get(&self, address: u128) -> Option<u32> {
        let (mut node, mut rest) = (&self.nodes[0], address);
        loop {
            let at = (rest >> (u128::BITS - STRIDE)) as u32;
            let up_to = u64::MAX >> (FANOUT - 1 - at);
            if node.nodes >> at & 1 == 0 {
                let leaf = node.first_leaf + (node.leaves & up_to).count_ones() - 1;
                return Some(self.leaves[leaf as usize]).filter(|value| *value != 0).map(|value| value - 1);
            }
            node = &self.nodes[(node.first_node + (node.nodes & up_to).count_ones() - 1) as usize];
            rest <<= STRIDE;
        }
    }

    /// Fills the node at `index`, at `depth` bits. `prefixes` are those that match the node's path, the shortest first;
    /// `inherited` applies where none of them does.
    fn fill(&mut self, index: usize, prefixes: &[Prefixed], depth: u32, inherited: Leaf) {
        let children: Vec<_> = (0..FANOUT).map(|at| below(prefixes, depth, at, inherited)).collect();
        let mut node =
            Node { first_node: self.nodes.len() as u32, first_leaf: self.leaves.len() as u32, ..Node::default() };
        let mut last = None;
        for (at, (longer, leaf)) in children.iter().enumerate() {
            if !longer.is_empty() {
                node.nodes |= 1 << at;
            } else if last != Some(*leaf) {
                node.leaves |= 1 << at;
                self.leaves.push(*leaf);
                last = Some(*leaf);
            }
        }
        let inner: Vec<_> = children.into_iter().filter(|(longer, _)| !longer.is_empty()).collect();
        self.nodes.resize(self.nodes.len() + inner.len(), Node::default());
        self.nodes[index] = node;
        for (child, (longer, leaf)) in (node.first_node as usize..).zip(inner) {
            self.fill(child, &longer, depth + STRIDE, leaf);
        }
    }
}

/// From the prefixes of a node, returns those that reach beyond child `at`, and the value of the longest one that ends at or
/// before it.
fn below(prefixes: &[Prefixed], depth: u32, at: u32, inherited: Leaf) -> (Vec<Prefixed>, Leaf) {
    let (mut longer, mut leaf) = (Vec::new(), inherited);
    for prefix in prefixes {
        let theirs = ((prefix.bits << depth) >> (u128::BITS - STRIDE)) as u32;
        let counts = prefix.len.saturating_sub(depth).min(STRIDE);
        if theirs >> (STRIDE - counts) != at >> (STRIDE - counts) {
            continue;
        }
        if prefix.len > depth + STRIDE {
            longer.push(*prefix);
        } else {
            leaf = prefix.value + 1;
        }
    }
    (longer, leaf)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The longest of all matching prefixes, found by examining them one by one.
    fn linear(prefixes: &[Prefixed], address: u128) -> Option<u32> {
        let matches = |prefix: &&Prefixed| {
            let mask = u128::MAX.checked_shl(128 - prefix.len).unwrap_or(0);
            address & mask == prefix.bits & mask
        };
        prefixes.iter().filter(matches).max_by_key(|prefix| prefix.len).map(|prefix| prefix.value)
    }

    fn prefixes() -> impl Strategy<Value = Vec<Prefixed>> {
        // Few distinct bits, so that prefixes contain each other.
        let bits = (any::<u128>(), 0u32..4).prop_map(|(bits, kind)| match kind {
            0 => bits,
            1 => bits & 0x3 << 120 | 0x2001_0db8 << 96,
            2 => (bits & 0xff) << 96 | 10 << 120,
            _ => bits & 0xffff | 0x2001_0db8 << 96,
        });
        let one = (bits, 0u32..=128, 0u32..1000).prop_map(|(bits, len, value)| Prefixed { bits, len, value });
        prop::collection::vec(one, 0..60)
    }

    proptest! {
        #[test]
        fn it_finds_what_a_look_at_every_prefix_finds(
            prefixes in prefixes(),
            addresses in prop::collection::vec(any::<u128>(), 20),
        ) {
            let lpm = Lpm::new(&prefixes);
            let ends = prefixes.iter().flat_map(|prefix| {
                let host = u128::MAX.checked_shr(prefix.len).unwrap_or(0);
                [prefix.bits, prefix.bits & !host, prefix.bits | host, (prefix.bits | host).wrapping_add(1)]
            });
            for address in addresses.into_iter().chain(ends) {
                prop_assert_eq!(lpm.get(address), linear(&prefixes, address), "{:x}", address);
            }
        }
    }

    #[test]
    fn nothing_is_found_in_an_empty_table_and_everything_by_a_default_route() {
        assert_eq!(Lpm::new(&[]).get(7), None);
        assert_eq!(Lpm::new(&[Prefixed { bits: 0, len: 0, value: 0 }]).get(7), Some(0));
    }
}

//! What common NICs can hash, per kind of packet, with the source of each fact.
//!
//! A NIC is described by what it can be *configured* to hash, not by its defaults. The tables err on the safe side: a capability that needs
//! special firmware or a special package is mentioned in the notes, and one that no public driver offers is left out. Nothing here accesses
//! a device.
//!
//! Two facts hold for all NICs. The IP protocol number itself is not hashed; within TCP, UDP and SCTP it is constant, so that costs nothing.
//! And **a fragment, including the first one, is hashed without ports**, even if it contains the whole transport header (Intel 82598 data
//! sheet, RSS: a packet counts as TCP only if it "is not fragmented (even if the fragment contains a complete TCP header)"; DPDK distinguishes
//! RTE_ETH_RSS_FRAG_* from RTE_ETH_RSS_NONFRAG_*; for NICs whose documents do not mention it the same is assumed, to be safe). So the first
//! fragment of a datagram leaves the queue of the other packets with its ports.

use braid_packet::FieldId;

use crate::fields::Fields;

/// The kinds of packets that NICs distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// TCP, not fragmented.
    Tcp,
    /// UDP, not fragmented.
    Udp,
    /// SCTP, not fragmented.
    Sctp,
    /// Any other IP packet, not fragmented.
    OtherIp,
    /// A fragment of an IP datagram, including the first one.
    Fragment,
    /// Not IP.
    NonIp,
}

impl Class {
    /// All kinds.
    pub const ALL: [Class; 6] = [Class::Tcp, Class::Udp, Class::Sctp, Class::OtherIp, Class::Fragment, Class::NonIp];

    /// The name in words.
    pub fn name(self) -> &'static str {
        match self {
            Class::Tcp => "TCP",
            Class::Udp => "UDP",
            Class::Sctp => "SCTP",
            Class::OtherIp => "other IP",
            Class::Fragment => "IP fragments",
            Class::NonIp => "not IP",
        }
    }
}

/// What can be selected for one kind of packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Any subset of these fields.
    AnyOf(Fields),
    /// Exactly one of these combinations.
    OneOf(&'static [Fields]),
    /// No hash: all such packets arrive in one queue.
    Nothing,
}

impl Choice {
    /// Every combination of at least one field that can be selected.
    pub fn combinations(self) -> Vec<Fields> {
        match self {
            Choice::AnyOf(fields) => fields.subsets().filter(|set| !set.is_empty()).collect(),
            Choice::OneOf(sets) => sets.to_vec(),
            Choice::Nothing => Vec::new(),
        }
    }

    /// Every field that is part of some combination.
    pub fn fields(self) -> Fields {
        match self {
            Choice::AnyOf(fields) => fields,
            Choice::OneOf(sets) => sets.iter().fold(Fields::NONE, |all, &set| all.and(set)),
            Choice::Nothing => Fields::NONE,
        }
    }
}

/// How a NIC makes both directions of a connection hash alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SymmetricMode {
    /// It hashes the exclusive or of each source and destination field (`ethtool -X … xfrm symmetric-xor`).
    Xor,
    /// It hashes their or and their exclusive or (`xfrm symmetric-or-xor`).
    OrXor,
    /// By a hardware mode for which ethtool has no name.
    Hardware,
    /// Not at all; where a key can be set, 0x6d5a repeated makes the hash symmetric.
    ByKeyOnly,
}

/// A kind of NIC.
#[derive(Clone, Copy, Debug)]
pub struct Nic {
    /// The name by which it is selected.
    pub name: &'static str,
    /// Other names: products and drivers.
    pub also: &'static [&'static str],
    /// The product.
    pub product: &'static str,
    classes: [Choice; 6],
    /// How it hashes symmetrically.
    pub symmetric: SymmetricMode,
    /// Length of the hash key in bytes; 0 if it has none.
    pub key_bytes: usize,
    /// Entries of the indirection table; 0 if there is none.
    pub reta_entries: usize,
    /// What an operator has to know.
    pub notes: &'static [&'static str],
    /// Where the facts come from.
    pub sources: &'static [&'static str],
}

impl Nic {
    /// What can be selected for a kind of packet.
    pub fn choice(&self, class: Class) -> Choice {
        self.classes[class as usize]
    }

    /// Whether it has receive queues selected by a hash.
    pub fn hashes(&self) -> bool {
        self.key_bytes != 0
    }
}

/// The NIC with this name, product or driver, ignoring case.
pub fn find(name: &str) -> Option<&'static Nic> {
    let is = |other: &&str| other.eq_ignore_ascii_case(name);
    NICS.iter().find(|nic| is(&nic.name) || nic.also.iter().any(is))
}

const FOUR: Choice = Choice::AnyOf(Fields::FOUR_TUPLE);
const TWO: Choice = Choice::AnyOf(Fields::ADDRESSES);
/// Microsoft's hash types: the addresses, alone or with both ports; each type is either on or off.
const MS_FOUR: Choice = Choice::OneOf(&[Fields::FOUR_TUPLE, Fields::ADDRESSES]);
const MS_TWO: Choice = Choice::OneOf(&[Fields::ADDRESSES]);

const TAGS: Fields = Fields::of(&[FieldId::EthSrc, FieldId::EthDst, FieldId::VlanId]);
const L2_AND_ADDRESSES: Choice = Choice::AnyOf(TAGS.and(Fields::ADDRESSES));
const L2_TO_PORTS: Choice = Choice::AnyOf(TAGS.and(Fields::FOUR_TUPLE));
const L2_TO_TUNNEL: Choice = Choice::AnyOf(TAGS.and(Fields::FOUR_TUPLE).and(Fields::of(&[FieldId::GtpTeid])));
const L2_TYPED: Choice = Choice::AnyOf(TAGS.and(Fields::of(&[FieldId::EtherType])));

/// All NICs known to this crate.
pub static NICS: [Nic; 7] = [
    Nic {
        name: "mlx5",
        also: &["connectx-4", "connectx-5", "connectx-6", "connectx-7", "connectx", "bluefield"],
        product: "NVIDIA ConnectX-4 to ConnectX-7, BlueField",
        classes: [FOUR, FOUR, TWO, TWO, TWO, Choice::Nothing],
        symmetric: SymmetricMode::OrXor,
        key_bytes: 40,
        reta_entries: 512,
        notes: &[
            "SCTP is hashed by addresses only",
            "the symmetric mode hashes other input than software does: queues differ, sets stay whole",
        ],
        sources: &[
            "DPDK drivers/net/mlx5/mlx5_defs.h: MLX5_RSS_HF_MASK (IP, TCP, UDP, L3/L4 source or destination only, ESP)",
            "DPDK drivers/net/mlx5: symmetric_hash_function of mlx5_flow_rss_desc",
            "Linux drivers/net/ethernet/mellanox/mlx5/core/en_ethtool.c: supported_input_xfrm = RXH_XFRM_SYM_OR_XOR",
        ],
    },
    Nic {
        name: "ice",
        also: &["e810", "e822", "e823", "e830"],
        product: "Intel E810 and the 800 series",
        classes: [L2_TO_PORTS, L2_TO_TUNNEL, L2_TO_PORTS, L2_AND_ADDRESSES, L2_AND_ADDRESSES, Choice::AnyOf(TAGS)],
        symmetric: SymmetricMode::Xor,
        key_bytes: 52,
        reta_entries: 512,
        notes: &[
            "GTP-U tunnel ids need the comms package; without it they are plain UDP",
            "the fields are those of the DPDK driver; ethtool -N … rx-flow-hash may offer fewer",
            "with RTE_ETH_RSS_FRAG_IPV4 it hashes the datagram's identification: do not ask for that",
            "symmetric hashing allows addresses and ports only",
        ],
        sources: &[
            "DPDK drivers/net/ice/ice_ethdev.h: ICE_RSS_OFFLOAD_ALL",
            "DPDK drivers/net/ice/ice_hash.c: ice_hash_type_list, VALID_RSS_ATTR, ice_refine_hash_cfg_l234, …_gtpu",
            "Linux commit \"ice: enable symmetric-xor RSS for Toeplitz hash function\" (GLQF_HSYMM)",
        ],
    },
    Nic {
        name: "i40e",
        also: &["x710", "xl710", "xxv710", "x722"],
        product: "Intel X710, XL710, XXV710",
        classes: [L2_TO_PORTS, L2_TO_PORTS, L2_TO_PORTS, L2_AND_ADDRESSES, L2_AND_ADDRESSES, L2_TYPED],
        symmetric: SymmetricMode::Hardware,
        key_bytes: 52,
        reta_entries: 512,
        notes: &[
            "symmetric hashing through DPDK only: the Linux driver has no symmetric-xor",
            "RTE_ETH_RSS_NONFRAG_IPV4_SCTP adds the verification tag, which differs within an association: ask for \
             RTE_ETH_RSS_IPV4 and RTE_ETH_RSS_PORT instead",
        ],
        sources: &[
            "DPDK drivers/net/i40e/i40e_hash.c: match_patterns, i40e_hash_rss_inset",
            "DPDK drivers/net/i40e/i40e_ethdev.h: I40E_RSS_OFFLOAD_ALL, I40E_INSET_*",
            "Linux patch \"iavf: enable symmetric-xor RSS\": not supported on the E700 series",
        ],
    },
    Nic {
        name: "ixgbe",
        also: &["82599", "x520", "x540", "x550"],
        product: "Intel 82599 (X520), X540, X550",
        classes: [MS_FOUR, MS_FOUR, MS_TWO, MS_TWO, MS_TWO, Choice::Nothing],
        symmetric: SymmetricMode::ByKeyOnly,
        key_bytes: 40,
        reta_entries: 128,
        notes: &["each hash type is on or off for the whole port", "X550 has 512 entries"],
        sources: &[
            "DPDK drivers/net/ixgbe/ixgbe_ethdev.h: IXGBE_RSS_OFFLOAD_ALL, IXGBE_HKEY_MAX_INDEX (10 words)",
            "Intel 82599 data sheet, receive-side scaling (hash types of MRQC; other packets go to queue 0)",
        ],
    },
    Nic {
        name: "ena",
        also: &["aws"],
        product: "Amazon Elastic Network Adapter",
        classes: [FOUR, FOUR, TWO, TWO, TWO, Choice::OneOf(&[Fields::of(&[FieldId::EthSrc, FieldId::EthDst])])],
        symmetric: SymmetricMode::ByKeyOnly,
        key_bytes: 40,
        reta_entries: 128,
        notes: &[
            "older devices let neither the key nor the fields be set: ena_com_fill_hash_function answers unsupported",
            "the hardware takes the key in reverse byte order (the drivers reorder it)",
        ],
        sources: &[
            "DPDK drivers/net/ena/ena_rss.c: ena_eth_hf_to_admin_hf, ENA_HF_RSS_*",
            "DPDK drivers/net/ena/ena_ethdev.h: ENA_HASH_KEY_SIZE, ENA_RX_RSS_TABLE_SIZE",
        ],
    },
    Nic {
        name: "virtio",
        also: &["virtio-net", "virtio_net"],
        product: "virtio-net with VIRTIO_NET_F_RSS",
        classes: [MS_FOUR, MS_FOUR, MS_TWO, MS_TWO, MS_TWO, Choice::Nothing],
        symmetric: SymmetricMode::ByKeyOnly,
        key_bytes: 40,
        reta_entries: 128,
        notes: &[
            "without VIRTIO_NET_F_RSS (bit 60) the queue is the device's choice: steer in software",
            "packets without a hash go to unclassified_queue",
            "turning addresses off for TCP turns them off for UDP too",
        ],
        sources: &[
            "virtio 1.2: \"Hash calculation for incoming packets\", \"Receive-side scaling (RSS)\"",
            "DPDK drivers/net/virtio/virtio.h: VIRTIO_NET_HASH_TYPE_MASK",
            "DPDK drivers/net/virtio/virtio_cvq.h: VIRTIO_NET_RSS_RETA_SIZE, VIRTIO_NET_RSS_KEY_SIZE",
            "Linux drivers/net/virtio_net.c: virtnet_set_hashflow",
        ],
    },
    Nic {
        name: "veth",
        also: &["tap", "af_packet", "none", "software"],
        product: "veth pairs and everything without receive-side scaling",
        classes: [Choice::Nothing; 6],
        symmetric: SymmetricMode::ByKeyOnly,
        key_bytes: 0,
        reta_entries: 0,
        notes: &["the receive queue of a veth is the sender's transmit queue: nothing is hashed"],
        sources: &["Linux drivers/net/veth.c: veth_xmit takes the queue from skb_get_queue_mapping"],
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reta::Reta;
    use crate::toeplitz::{KEY_MAX, KEY_MIN};

    #[test]
    fn nics_are_found_by_product_and_driver() {
        assert_eq!(find("E810").map(|nic| nic.name), Some("ice"));
        assert_eq!(find("ConnectX-5").map(|nic| nic.name), Some("mlx5"));
        assert_eq!(find("x540").map(|nic| nic.name), Some("ixgbe"));
        assert!(find("ne2000").is_none());
    }

    #[test]
    fn names_are_unique_and_every_table_is_possible() {
        let mut names: Vec<&str> =
            NICS.iter().flat_map(|nic| [nic.name].into_iter().chain(nic.also.iter().copied())).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
        for nic in NICS.iter().filter(|nic| nic.hashes()) {
            assert!(
                (KEY_MIN..=KEY_MAX).contains(&nic.key_bytes) && Reta::new(nic.reta_entries, 2).is_ok(),
                "{}",
                nic.name
            );
        }
    }

    #[test]
    fn no_nic_hashes_ports_of_fragments() {
        for nic in &NICS {
            assert!(nic.choice(Class::Fragment).fields().common(Fields::PORTS).is_empty(), "{}", nic.name);
        }
    }
}

//! The kernel as a router between two ports that translates, filters, polices, or protects servers as a proxy.

use std::net::Ipv4Addr;

use super::{KernelOracle, Namespace, Tracking, Unavailable};

impl KernelOracle {
    /// Source NAT of everything from inside (`inside`: prefixes such as `10.1.0.0/24`) to one outside address. IPv4.
    ///
    /// # Errors
    /// What this machine lacks.
    pub fn nat(inside: &[&str], outside: Ipv4Addr, tracking: Tracking) -> Result<KernelOracle, Unavailable> {
        let mut oracle = KernelOracle::router(inside, tracking)?;
        oracle.translate(outside)?;
        oracle.settle()?;
        Ok(oracle)
    }

    /// A home gateway: [`firewall`](Self::firewall) and [`nat`](Self::nat) combined.
    ///
    /// # Errors
    /// What this machine lacks.
    pub fn gateway(inside: &[&str], outside: Ipv4Addr, tracking: Tracking) -> Result<KernelOracle, Unavailable> {
        let mut oracle = KernelOracle::router(inside, tracking)?;
        oracle.translate(outside)?;
        oracle.rules(GUARD)?;
        oracle.settle()?;
        Ok(oracle)
    }

    fn translate(&self, outside: Ipv4Addr) -> Result<(), Unavailable> {
        self.namespace.run("ip", &format!("address add {outside}/32 dev outside"))?;
        self.rules(&format!(
            "table ip translate {{
                chain postrouting {{ type nat hook postrouting priority srcnat; oifname outside snat to {outside}; }}
                chain input {{ type filter hook input priority 0; policy drop; }}
            }}"
        ))
    }

    /// A stateful firewall: connections begin inside; replies and related errors may come back. IPv4 and
    /// IPv6; `inside` are prefixes of either family.
    ///
    /// # Errors
    /// What this machine lacks.
    pub fn firewall(inside: &[&str], tracking: Tracking) -> Result<KernelOracle, Unavailable> {
        let mut oracle = KernelOracle::router(inside, tracking)?;
        oracle.rules(GUARD)?;
        oracle.settle()?;
        Ok(oracle)
    }

    /// A router with a rule set of nftables; its interfaces are `inside` and `outside`.
    ///
    /// # Errors
    /// What this machine lacks, or the error message of nft about the rules.
    pub fn ruleset(inside: &[&str], rules: &str) -> Result<KernelOracle, Unavailable> {
        let mut oracle = KernelOracle::router(inside, Tracking::Liberal)?;
        oracle.rules(rules)?;
        // The rules may have flushed the rule set, so add these again.
        oracle.rules(SILENCE)?;
        oracle.rules("table inet own {\n chain input {\n type filter hook input priority 0; policy drop;\n }\n }")?;
        oracle.settle()?;
        Ok(oracle)
    }

    /// A plain router: `inside` prefixes of either family to port 0, everything else to port 1.
    ///
    /// # Errors
    /// What this machine lacks.
    pub fn forwarding(inside: &[&str]) -> Result<KernelOracle, Unavailable> {
        let mut oracle = KernelOracle::router(inside, Tracking::Liberal)?;
        oracle.settle()?;
        Ok(oracle)
    }

    /// A router on which each inside host may send `burst` packets and then practically none: nftables' limit by source address. IPv4.
    ///
    /// # Errors
    /// What this machine lacks.
    pub fn policer(inside: &[&str], burst: u32) -> Result<KernelOracle, Unavailable> {
        let mut oracle = KernelOracle::router(inside, Tracking::Liberal)?;
        oracle.rules(&format!(
            "table ip police {{
                set sources {{ type ipv4_addr; size 65535; flags dynamic; }}
                chain forward {{
                    type filter hook forward priority 0; policy accept;
                    iifname inside add @sources {{ ip saddr limit rate over 1/day burst {burst} packets }} drop
                }}
            }}"
        ))?;
        oracle.settle()?;
        Ok(oracle)
    }

    /// A SYN proxy in front of everything inside: for connections from outside, the handshake with the outside is completed first. IPv4.
    ///
    /// # Errors
    /// What this machine lacks: not every kernel supports this (CONFIG_NFT_SYNPROXY).
    pub fn syn_proxy(inside: &[&str]) -> Result<KernelOracle, Unavailable> {
        let mut oracle = KernelOracle::router(inside, Tracking::Strict)?;
        oracle.namespace.set("ipv4/tcp_syncookies", 2)?;
        oracle.namespace.set("ipv4/tcp_timestamps", 1)?;
        oracle.namespace.set("netfilter/nf_conntrack_tcp_loose", 0)?;
        oracle.rules(
            "table ip proxy {
                chain prerouting {
                    type filter hook prerouting priority raw; policy accept;
                    iifname outside tcp flags syn notrack
                }
                chain forward {
                    type filter hook forward priority 0; policy accept;
                    iifname outside ct state invalid,untracked synproxy mss 1460 wscale 7 timestamp sack-perm
                    ct state invalid drop
                }
            }",
        )?;
        oracle.settle()?;
        Ok(oracle)
    }

    /// Interface addresses and next hops of every routing oracle, as configuration for Braid's router.
    pub const ROUTES: &str = "promiscuous = true
        interface = [
            { port = 0, mac = '06:00:00:00:00:01', addresses = ['198.18.0.1/30', '2001:db8:ffff:1::1/64'] },
            { port = 1, mac = '06:00:00:00:00:02', addresses = ['198.18.0.5/30', '2001:db8:ffff:2::1/64'] },
        ]
        neighbour = [
            { address = '198.18.0.2', mac = '06:00:00:00:00:11', port = 0 },
            { address = '198.18.0.6', mac = '06:00:00:00:00:12', port = 1 },
            { address = '2001:db8:ffff:1::2', mac = '06:00:00:00:00:11', port = 0 },
            { address = '2001:db8:ffff:2::2', mac = '06:00:00:00:00:12', port = 1 },
        ]\n";

    /// Makes a router with two interfaces: `inside` prefixes to port 0, everything else to port 1, with static neighbours as next hops.
    fn router(inside: &[&str], tracking: Tracking) -> Result<KernelOracle, Unavailable> {
        let namespace = Namespace::new()?;
        for (parameter, value) in QUIET_ROUTER {
            namespace.set(parameter, value)?;
        }
        let ports = vec![namespace.tap("inside", "06:00:00:00:00:01")?, namespace.tap("outside", "06:00:00:00:00:02")?];
        namespace.run("ip", "address add 198.18.0.1/30 dev inside")?;
        namespace.run("ip", "address add 198.18.0.5/30 dev outside")?;
        namespace.run("ip", "address add 2001:db8:ffff:1::1/64 dev inside nodad")?;
        namespace.run("ip", "address add 2001:db8:ffff:2::1/64 dev outside nodad")?;
        for (device, next_hop, link_address) in NEXT_HOPS {
            namespace
                .run("ip", &format!("neighbour add {next_hop} lladdr {link_address} dev {device} nud permanent"))?;
        }
        for prefix in inside {
            let via = if prefix.contains(':') { "2001:db8:ffff:1::2" } else { "198.18.0.2" };
            namespace.run("ip", &format!("route add {prefix} via {via}"))?;
        }
        namespace.run("ip", "route add default via 198.18.0.6")?;
        namespace.run("ip", "route add default via 2001:db8:ffff:2::2")?;
        let addresses = vec![
            [6, 0, 0, 0, 0, 0x01, 6, 0, 0, 0, 0, 0x11], // destination: the router; source: the host before it
            [6, 0, 0, 0, 0, 0x02, 6, 0, 0, 0, 0, 0x12],
        ];
        let oracle = KernelOracle { namespace, ports, addresses: Some(addresses), noise: 0 };
        oracle.rules(SILENCE)?;
        let strict = u64::from(tracking == Tracking::Strict);
        oracle.namespace.set("netfilter/nf_conntrack_checksum", strict)?;
        oracle.namespace.set("netfilter/nf_conntrack_tcp_be_liberal", 1 - strict)?;
        Ok(oracle)
    }

    fn rules(&self, ruleset: &str) -> Result<(), Unavailable> {
        self.namespace.run_with_input("nft", "-f -", ruleset).map(drop)
    }
}

/// Lets connections out that begin inside, and lets in what belongs to them.
const GUARD: &str = "table inet guard {
    chain forward {
        type filter hook forward priority 0; policy drop;
        ct state invalid drop
        ct state established,related accept
        iifname inside accept
    }
    chain input { type filter hook input priority 0; policy drop; }
}";

/// Forwards everything, sends nothing of its own, and does not rate-limit ICMP errors.
const QUIET_ROUTER: [(&str, u64); 13] = [
    ("ipv4/ip_forward", 1),
    ("ipv4/icmp_ratelimit", 0),
    ("ipv4/icmp_msgs_per_sec", 1_000_000),
    ("ipv4/icmp_msgs_burst", 1_000_000),
    ("ipv4/conf/all/rp_filter", 0),
    ("ipv4/conf/default/rp_filter", 0),
    ("ipv4/conf/all/send_redirects", 0),
    ("ipv4/conf/default/send_redirects", 0),
    ("ipv6/conf/all/forwarding", 1),
    ("ipv6/conf/default/forwarding", 1),
    ("ipv6/conf/default/addr_gen_mode", 1),
    ("ipv6/conf/default/accept_dad", 0),
    ("ipv6/icmp/ratelimit", 0),
];

/// Device, next hop and its Ethernet address.
const NEXT_HOPS: [(&str, &str, &str); 4] = [
    ("inside", "198.18.0.2", "06:00:00:00:00:11"),
    ("outside", "198.18.0.6", "06:00:00:00:00:12"),
    ("inside", "2001:db8:ffff:1::2", "06:00:00:00:00:11"),
    ("outside", "2001:db8:ffff:2::2", "06:00:00:00:00:12"),
];

/// Keeps the router's own neighbour discovery and multicast reports from the ports.
const SILENCE: &str = "table inet silence {
    chain output {
        type filter hook output priority 0; policy accept;
        icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert, nd-router-solicit, nd-router-advert, nd-redirect } drop
        icmpv6 type { mld-listener-query, mld-listener-report, mld-listener-done, mld2-listener-report } drop
        ip protocol igmp drop
    }
}";

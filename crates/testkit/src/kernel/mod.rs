//! The Linux kernel as an oracle, packet by packet: what would it have sent?
//!
//! A [`KernelOracle`] is a network namespace with TAP devices as ports. A frame that is fed to a port has been processed by
//! the kernel when the write returns, so the frames read next are its consequence: inputs and outputs pair one to one.
//!
//! What makes such a comparison wrong, and what is done about it here:
//!
//! - *The kernel speaks by itself* (neighbour discovery, multicast reports). Interfaces have no link-local addresses, an output
//!   rule drops the rest, and what still arrives before a frame is fed is thrown away and counted ([`KernelOracle::noise`]).
//! - *A router's Ethernet addresses are its own.* [`KernelOracle::nat`] and [`KernelOracle::firewall`] write theirs into a frame
//!   before they feed it: compare what [`network_packet`] returns, not frames. The bridge changes nothing.
//! - *Wrong checksums and segments outside the window are INVALID* for connection tracking, hence not translated and dropped by
//!   a firewall. [`Tracking::Liberal`] accepts both; [`Tracking::Strict`] is the kernel's default.
//! - *A connection that is first seen by its FIN or RST is INVALID* under either. [`Screen`] finds these packets, and the others
//!   which cannot be compared, with the reason.
//! - *Fragments are reassembled, translated and cut again*: nothing leaves until the last fragment, and then several frames.
//!   [`Screen`] names them; compare whole datagrams.
//! - *Time-outs run on the real clock*, not on capture time. A capture fed in one go sees no expiry;
//!   [`KernelOracle::timeout`] sets them in seconds for tests of expiry that really wait.
//! - *Source NAT keeps the port while the five-tuple is unique*, so two inside hosts may share one outside port towards two
//!   servers. A NAT with endpoint-independent mapping cannot: compare modulo the port, learnt with [`Replies`].
//! - *Replies in a capture that was recorded inside name the inside host.* [`Replies`] readdresses them to what the NAT chose.

mod namespace;
mod replies;
mod screen;
mod sys;

use std::io;
use std::net::Ipv4Addr;
use std::thread::sleep;
use std::time::{Duration, Instant};

pub use self::namespace::Namespace;
use self::namespace::Tap;
pub use self::replies::Replies;
pub use self::screen::{Reason, Screen, network_packet};

/// The port of a NAT or firewall towards the inside.
pub const INSIDE: usize = 0;
/// The port of a NAT or firewall towards the outside.
pub const OUTSIDE: usize = 1;

/// Why there is no oracle on this machine.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// Not root, or namespaces are forbidden.
    #[error("no network namespace ({0}): needs root")]
    Namespace(#[source] io::Error),
    /// No TAP devices.
    #[error("no TAP device ({0}): needs /dev/net/tun")]
    Tun(#[source] io::Error),
    /// A program is not installed.
    #[error("no program {0}: needs iproute2 and nftables")]
    Program(&'static str),
    /// The kernel was built without a feature that the oracle needs.
    #[error("the kernel refused `{command}`: {complaint}")]
    Kernel {
        /// What was asked of it.
        command: String,
        /// What it, or the program that asked, said.
        complaint: String,
    },
}

/// How strictly connection tracking judges packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tracking {
    /// The kernel's default: checksums and TCP windows are verified.
    Strict,
    /// Checksums and windows are taken on trust, as most network functions do.
    Liberal,
}

/// The kernel at work between ports.
#[derive(Debug)]
pub struct KernelOracle {
    namespace: Namespace,
    ports: Vec<Tap>,
    /// Ethernet source and destination that a frame needs to be routed; `None` where frames go through unchanged.
    addresses: Option<Vec<[u8; 12]>>,
    noise: u64,
}

impl KernelOracle {
    /// Source NAT of everything that comes from inside (`inside`: prefixes such as `10.1.0.0/24`) to one outside address. IPv4.
    ///
    /// # Errors
    /// What this machine lacks.
    pub fn nat(inside: &[&str], outside: Ipv4Addr, tracking: Tracking) -> Result<KernelOracle, Unavailable> {
        let mut oracle = KernelOracle::router(inside, tracking)?;
        oracle.translate(outside)?;
        oracle.settle()?;
        Ok(oracle)
    }

    /// A home gateway: [`firewall`](Self::firewall) and [`nat`](Self::nat) together.
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

    /// A stateful firewall: connections begin inside, answers and related errors come back. IPv4 and IPv6; `inside` are prefixes
    /// of either family.
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
    /// What this machine lacks, or what nft has to say of the rules.
    pub fn ruleset(inside: &[&str], rules: &str) -> Result<KernelOracle, Unavailable> {
        let mut oracle = KernelOracle::router(inside, Tracking::Liberal)?;
        oracle.rules(rules)?;
        oracle.rules("table inet own {\n chain input {\n type filter hook input priority 0; policy drop;\n }\n }")?;
        oracle.settle()?;
        Ok(oracle)
    }

    /// A router and nothing else: `inside` prefixes of either family to port 0, everything else to port 1.
    ///
    /// # Errors
    /// What this machine lacks.
    pub fn forwarding(inside: &[&str]) -> Result<KernelOracle, Unavailable> {
        let mut oracle = KernelOracle::router(inside, Tracking::Liberal)?;
        oracle.settle()?;
        Ok(oracle)
    }

    /// The same, but that each inside host may send `burst` packets and then, for all that matters here, none: nftables' limit by
    /// source address. IPv4.
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

    /// A SYN proxy in front of everything inside: connections that begin outside are opened with the outside first. IPv4.
    ///
    /// # Errors
    /// What this machine lacks: not every kernel has it (CONFIG_NFT_SYNPROXY).
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

    /// Interface addresses and next hops of every oracle that routes, as Braid's router is told of them.
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

    /// A learning bridge with ports 0 to `ports` - 1; no spanning tree, no snooping, addresses age after 300 s of real time.
    ///
    /// # Errors
    /// What this machine lacks.
    pub fn bridge(ports: usize) -> Result<KernelOracle, Unavailable> {
        KernelOracle::bridge_with(ports, &[])
    }

    /// The same, with VLANs filtered: for each port what `bridge vlan add` is told, such as `vid 10 pvid untagged`. A port
    /// is in no other VLAN.
    ///
    /// # Errors
    /// What this machine lacks.
    pub fn vlan_bridge(vlans: &[&[&str]]) -> Result<KernelOracle, Unavailable> {
        KernelOracle::bridge_with(vlans.len(), vlans)
    }

    fn bridge_with(ports: usize, vlans: &[&[&str]]) -> Result<KernelOracle, Unavailable> {
        let namespace = Namespace::new()?;
        namespace.set("ipv6/conf/all/disable_ipv6", 1)?;
        namespace.set("ipv6/conf/default/disable_ipv6", 1)?;
        for family in ["arp", "ip", "ip6"] {
            // Only there if the module br_netfilter is loaded, and then it drops what it takes for malformed.
            let _ = namespace.set(&format!("bridge/bridge-nf-call-{family}tables"), 0);
        }
        namespace.run("ip", "link add name switch type bridge mcast_snooping 0 stp_state 0")?;
        namespace.run("ip", "link set switch address 06:00:00:00:00:ff up")?;
        let mut taps = Vec::new();
        for port in 0..ports {
            taps.push(namespace.tap(&format!("port{port}"), &format!("06:00:00:00:01:{port:02x}"))?);
            namespace.run("ip", &format!("link set port{port} master switch"))?;
        }
        if !vlans.is_empty() {
            namespace.run("ip", "link set switch type bridge vlan_filtering 1 vlan_default_pvid 0")?;
        }
        for (port, vlans) in vlans.iter().enumerate() {
            for vlan in *vlans {
                namespace.run("bridge", &format!("vlan add dev port{port} {vlan}"))?;
            }
        }
        let mut oracle = KernelOracle { namespace, ports: taps, addresses: None, noise: 0 };
        oracle.wait_until_forwarding(ports)?;
        oracle.settle()?;
        Ok(oracle)
    }

    /// Whether all three oracles work here: the reason if not.
    ///
    /// # Errors
    /// What this machine lacks.
    pub fn probe() -> Result<(), Unavailable> {
        KernelOracle::nat(&["10.0.0.0/8"], Ipv4Addr::new(192, 0, 2, 1), Tracking::Strict)?;
        KernelOracle::firewall(&["10.0.0.0/8", "fd00::/8"], Tracking::Strict)?;
        KernelOracle::bridge(2).map(drop)
    }

    /// Gives a frame to a port; returns what the kernel sent because of it, as (port, frame) in the order of ports.
    ///
    /// # Errors
    /// Reading from or writing to the TAP devices; a frame that the kernel does not take (shorter than an Ethernet header) is
    /// an error as well.
    ///
    /// # Panics
    /// If there is no such port.
    pub fn feed(&mut self, port: usize, frame: &[u8]) -> io::Result<Vec<(usize, Vec<u8>)>> {
        self.discard()?;
        match &self.addresses {
            Some(addresses) if frame.len() >= 14 => {
                let mut routed = frame.to_vec();
                routed[..12].copy_from_slice(&addresses[port]);
                self.ports[port].send(&routed)?;
            }
            _ => self.ports[port].send(frame)?,
        }
        let mut sent = Vec::new();
        for (number, tap) in self.ports.iter_mut().enumerate() {
            sent.extend(tap.drain()?.into_iter().map(|frame| (number, frame)));
        }
        Ok(sent)
    }

    /// Frames that the kernel sent without being fed: 0 unless the machine is configured in an unforeseen way.
    pub fn noise(&self) -> u64 {
        self.noise
    }

    /// Tracked connections, those included that have expired and wait for collection.
    ///
    /// # Errors
    /// If the kernel does not tell.
    pub fn connections(&self) -> io::Result<u64> {
        self.namespace.read("netfilter/nf_conntrack_count")
    }

    /// Sets a time-out of connection tracking, for example `udp_timeout` or `tcp_timeout_established`.
    ///
    /// # Errors
    /// If there is no such time-out.
    pub fn timeout(&self, name: &str, seconds: u64) -> Result<(), Unavailable> {
        self.namespace.set(&format!("netfilter/nf_conntrack_{name}"), seconds)
    }

    /// Two interfaces with routes: `inside` prefixes to port 0, everything else to port 1, next hops that are never asked for.
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

    /// A port forwards once the kernel has noticed its carrier, which happens in its own time.
    fn wait_until_forwarding(&self, ports: usize) -> Result<(), Unavailable> {
        let give_up = Instant::now() + Duration::from_secs(3);
        loop {
            let links = self.namespace.run("bridge", "link show")?;
            if links.matches("state forwarding").count() == ports {
                return Ok(());
            }
            if Instant::now() > give_up {
                return Err(Unavailable::Kernel { command: "bridge link show".into(), complaint: links });
            }
            sleep(Duration::from_millis(10));
        }
    }

    /// Lets what the kernel says at start pass by; it is not counted as noise.
    fn settle(&mut self) -> Result<(), Unavailable> {
        sleep(Duration::from_millis(50));
        self.discard().map_err(Unavailable::Tun)?;
        self.noise = 0;
        Ok(())
    }

    fn discard(&mut self) -> io::Result<()> {
        for tap in &mut self.ports {
            self.noise += tap.drain()?.len() as u64;
        }
        Ok(())
    }
}

/// Lets out what begins inside, and in what belongs to it.
const GUARD: &str = "table inet guard {
    chain forward {
        type filter hook forward priority 0; policy drop;
        ct state invalid drop
        ct state established,related accept
        iifname inside accept
    }
    chain input { type filter hook input priority 0; policy drop; }
}";

/// Forwards everything, answers nothing by itself, and is not slowed down by limits on ICMP errors.
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

/// The router's own neighbour discovery and multicast reports do not reach the ports.
const SILENCE: &str = "table inet silence {
    chain output {
        type filter hook output priority 0; policy accept;
        icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert, nd-router-solicit, nd-router-advert, nd-redirect } drop
        icmpv6 type { mld-listener-query, mld-listener-report, mld-listener-done, mld2-listener-report } drop
        ip protocol igmp drop
    }
}";

//! The kernel as a learning bridge.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::{KernelOracle, Namespace, Unavailable};

impl KernelOracle {
    /// Makes a learning bridge with ports 0 to `ports` - 1, without spanning tree or snooping; addresses age after 300 s of real time.
    ///
    /// # Errors
    /// What this machine lacks.
    pub fn bridge(ports: usize) -> Result<KernelOracle, Unavailable> {
        KernelOracle::bridge_with(ports, &[])
    }

    /// Makes a bridge that filters VLANs: for each port the arguments of `bridge vlan add`, such as
    /// `vid 10 pvid untagged`. A port belongs to no other VLANs.
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
            // Exists only if the module br_netfilter is loaded, which then drops what it considers malformed.
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

    /// Waits until all ports forward. A port forwards once the kernel has noticed its carrier, which takes some time.
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
}

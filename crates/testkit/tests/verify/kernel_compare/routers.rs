//! `router` and `policer` against the kernel as a router.

use super::*;

/// The router of the oracle, with its inside prefixes.
fn router(inside: &[&str]) -> Bench {
    let route = |to: &str, v4: &str, v6: &str| {
        let via = if to.contains(':') { v6 } else { v4 };
        format!("{{ to = '{to}', via = '{via}' }}")
    };
    let mut routes: Vec<_> = inside.iter().map(|to| route(to, "198.18.0.2", "2001:db8:ffff:1::2")).collect();
    routes.extend(["0.0.0.0/0", "::/0"].map(|to| route(to, "198.18.0.6", "2001:db8:ffff:2::2")));
    bench("router", &format!("{}route = [{}]", KernelOracle::ROUTES, routes.join(", ")), 2)
}

fn compare_routers(path: &Path, name: &str, inside: &[&str], comparison: &mut Comparison) {
    let mut kernel = KernelOracle::forwarding(inside).expect("probed");
    comparison.of_gateways(path, name, inside, (&mut kernel, &mut router(inside)), |_| true);
}

#[test]
fn the_router_forwards_as_the_kernel_does() {
    let test = "the_router_forwards_as_the_kernel_does";
    if skipped(test) {
        return;
    }
    let mut comparison = Comparison::default();
    on_captures(test, &["office.pcapng", "dns.pcap.gz", "scan.pcap", "gateway.pcapng"], |path, name, inside| {
        compare_routers(path, name, inside, &mut comparison);
    });
    comparison.check(4000);
}

/// Packets that one host may send.
const BURST: u32 = 20;

#[test]
fn the_policer_admits_as_many_packets_of_each_host_as_the_kernels_limit() {
    let test = "the_policer_admits_as_many_packets_of_each_host_as_the_kernels_limit";
    // Not every kernel has limits in nftables (CONFIG_NFT_LIMIT), or actions of tc.
    if KernelOracle::policer(&["10.1.0.0/24"], BURST).inspect_err(|reason| note(test, reason)).is_err() {
        return;
    }
    let (mut admitted, mut refused) = (0, 0);
    for name in RECORDED {
        let inside = &OFFICE[..1];
        let mut forwards = KernelOracle::forwarding(inside).expect("probed");
        let mut kernel = KernelOracle::policer(inside, BURST).expect("probed");
        let config = format!("by = 'source'\nfrom_port = 0\npackets_per_s = 1\nburst_packets = {BURST}");
        let (mut ours, prefixes) = (bench("policer", &config, 2), prefixes(inside));
        for (n, (_, frame)) in frames(&recorded(name), PortSplit::Single).iter().enumerate() {
            let Some(port) = way(frame, &prefixes) else { continue };
            if forwards.feed(port, frame).expect("the kernel takes it").is_empty() {
                continue; // It never comes to the limit.
            }
            let passes = !kernel.feed(port, frame).expect("the kernel takes it").is_empty();
            let outcome = ours.send(port as u16, 0, frame);
            assert_eq!(passes, outcome.dropped.is_none(), "{name} frame {n}: {:?} {}", outcome.dropped, hex(frame));
            *(if passes { &mut admitted } else { &mut refused }) += 1;
        }
    }
    assert!(admitted > 300 && refused > 300, "{admitted} admitted, {refused} refused");
}

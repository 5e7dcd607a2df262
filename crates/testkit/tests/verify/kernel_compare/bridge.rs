//! The bridge, with and without VLANs, against the kernel's.

use super::*;

fn compare_bridges(frames: &[(u16, Vec<u8>)], ports: u16, name: &str, comparison: &mut Comparison) {
    let mut kernel = KernelOracle::bridge(ports.into()).expect("probed");
    // The kernel's bridge knows no VLANs unless told to, and its clock stands still here.
    let mut ours = bench("bridge", "vlan_aware = false\nageing_s = 1000000", ports);
    for (n, (port, frame)) in frames.iter().enumerate() {
        let expected = kernel.feed((*port).into(), frame).expect("the kernel takes it");
        let outcome = ours.send(*port, 0, frame);
        comparison.note(&format!("{name} frame {n}"), &expected, &by_port(outcome.sent), outcome.dropped);
    }
    assert_eq!(kernel.noise(), 0);
}

#[test]
fn the_bridge_decides_as_the_kernel_does() {
    let test = "the_bridge_decides_as_the_kernel_does";
    if skipped(test) {
        return;
    }
    let mut comparison = Comparison::default();
    let mut reader = PcapNgReader::new(File::open(recorded("lan.pcapng")).expect("recorded")).expect("a capture");
    let mut lan = Vec::new();
    while let Some(block) = reader.next_block() {
        if let Some(packet) = block.expect("a block").into_enhanced_packet() {
            lan.push((packet.interface_id as u16, packet.data.into_owned()));
        }
    }
    compare_bridges(&lan, 7, "lan.pcapng", &mut comparison);
    for name in ["lan-vlan.pcap", "office.pcapng"] {
        compare_bridges(&frames(&recorded(name), PortSplit::MacHash(4)), 4, name, &mut comparison);
    }
    for capture in shared(test) {
        compare_bridges(&frames(&capture.path, PortSplit::MacHash(4)), 4, &capture.name, &mut comparison);
    }
    comparison.check(2500);
}

/// Two access ports and two trunks, as the kernel and as ours is told.
const VLANS: [&[&str]; 4] =
    [&["vid 10 pvid untagged"], &["vid 20 pvid untagged"], &["vid 10-20"], &["vid 10", "vid 20 pvid untagged"]];
const VLANS_OF_OURS: &str = "ageing_s = 1000000\n[[port]]\nport = 0\naccess = 10\n[[port]]\nport = 1\naccess = 20
    [[port]]\nport = 2\ntrunk = ['10-20']\n[[port]]\nport = 3\ntrunk = ['10']\nnative = 20";

/// Frames among few stations in every form, from a seed.
fn tagged_frames(seed: u64, frames: usize) -> Vec<(u16, Vec<u8>)> {
    let mut state = seed;
    let mut below = |n: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % n
    };
    let station = |n: u64| if n == 6 { [0xff; 6] } else { [2, 0, 0, 0, 0, n as u8 + 1] };
    let mut made = Vec::new();
    for _ in 0..frames {
        let (port, from, to) = (below(4) as u16, station(below(6)), station(below(7)));
        let vlan = [0, 10, 15, 20, 21][below(5) as usize] | below(16) << 12;
        let tag: Vec<u8> = match below(8) {
            0..4 => Vec::new(),
            4..7 => [&[0x81, 0][..], &(vlan as u16).to_be_bytes()].concat(),
            _ => [&[0x88, 0xa8][..], &(vlan as u16).to_be_bytes()].concat(),
        };
        made.push((port, [&to[..], &from, &tag, &[0x88, 0xb5], &[0x5a; 60]].concat()));
    }
    made
}

#[test]
fn the_bridge_filters_vlans_as_the_kernel_does() {
    let test = "the_bridge_filters_vlans_as_the_kernel_does";
    // Not every kernel is built with filtering of VLANs (CONFIG_BRIDGE_VLAN_FILTERING), and nothing can be installed to mend that.
    if KernelOracle::vlan_bridge(&VLANS).inspect_err(|reason| note(test, reason)).is_err() {
        return;
    }
    let mut comparison = Comparison::default();
    for seed in 1..=3 {
        let mut kernel = KernelOracle::vlan_bridge(&VLANS).expect("probed");
        let mut ours = bench("bridge", VLANS_OF_OURS, 4);
        for (n, (port, frame)) in tagged_frames(seed, 600).iter().enumerate() {
            let expected = kernel.feed((*port).into(), frame).expect("the kernel takes it");
            let outcome = ours.send(*port, 0, frame);
            let what = format!("seed {seed} frame {n} port {port}: {}", hex(&frame[..18]));
            comparison.note(&what, &expected, &by_port(outcome.sent), outcome.dropped);
        }
        assert_eq!(kernel.noise(), 0);
    }
    comparison.check(1800);
}

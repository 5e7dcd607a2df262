//! `router` and `policer` against the kernel as a router.

use braid_testkit::Frame;

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

/// An echo request in pieces of so many bytes, under this number, by the host next to the router.
fn echo_in_pieces(to: &str, identification: u16, len: usize, each: usize) -> Vec<Vec<u8>> {
    let is_v6 = to.contains(':');
    let (from, start, number) = if is_v6 { ("2001:db8:ffff:1::2", 54, 58) } else { ("198.18.0.2", 34, 1) };
    let payload: Vec<u8> = (0..len).map(|at| (at ^ at >> 8) as u8).collect();
    let whole = Frame::echo_request(from, to, 5, 6).payload(&payload).bytes().split_off(start);
    let pieces = whole.chunks(each).enumerate().map(|(nth, bytes)| {
        let (offset, more) = (nth * each, (nth + 1) * each < whole.len());
        let frame = if is_v6 {
            let [high, low] = (offset as u16 | u16::from(more)).to_be_bytes();
            let [a, b] = identification.to_be_bytes();
            Frame::ip(from, to, 44).payload(&[&[number, 0, high, low, 0, 0, a, b], bytes].concat())
        } else {
            Frame::ip(from, to, number).payload(bytes).fragment(identification, (offset / 8) as u16, more)
        };
        frame.mac([6, 0, 0, 0, 0, 0x11], [6, 0, 0, 0, 0, 0x01]).bytes()
    });
    pieces.collect()
}

/// What a piece of a reply carries, and where; identifications are each one's own.
fn carried(port: usize, frame: &[u8]) -> (usize, u16, Vec<u8>) {
    let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    match frame[12..14] {
        [0x08, 0] => (port, word(20), frame[34..14 + usize::from(word(16))].to_vec()),
        _ if frame[20] == 44 => (port, word(56), frame[62..].to_vec()),
        _ => (port, 0, frame[54..].to_vec()),
    }
}

#[test]
fn the_router_puts_pieces_for_itself_together_as_the_kernel_does() {
    if skipped("the_router_puts_pieces_for_itself_together_as_the_kernel_does") {
        return;
    }
    let inside = &OFFICE[..1];
    let (mut kernel, mut ours) = (KernelOracle::forwarding(inside).expect("probed"), router(inside));
    let mut check = |name: &str, pieces: &[Vec<u8>]| {
        let (mut theirs, mut own) = (Vec::new(), Vec::new());
        for piece in pieces {
            let sent = kernel.feed(0, piece).expect("the kernel takes it");
            theirs.extend(sent.iter().map(|(port, frame)| carried(*port, frame)));
            own.extend(ours.send(0, 0, piece).sent.iter().map(|(port, frame)| carried(usize::from(*port), frame)));
        }
        theirs.sort();
        own.sort();
        assert!(
            own == theirs,
            "{name}: {} pieces are answered by {}, by the kernel by {}",
            pieces.len(),
            own.len(),
            theirs.len()
        );
        own.len()
    };
    let (mut number, mut answered) = (0, 0);
    for to in ["198.18.0.1", "198.18.0.5", "2001:db8:ffff:1::1", "2001:db8:ffff:2::1"] {
        let mut cut = |len, each| {
            number += 1;
            echo_in_pieces(to, number, len, each)
        };
        for (len, each) in [(600, 256), (4000, 1448), (20_000, 1400), (65_000, 1448), (100, 8)] {
            let name = |what: &str| format!("{to}, {len} bytes by {each}, {what}");
            answered += check(&name("in order"), &cut(len, each));
            let reversed: Vec<_> = cut(len, each).into_iter().rev().collect();
            answered += check(&name("the last first"), &reversed);
            let twice: Vec<_> = cut(len, each).into_iter().flat_map(|piece| [piece.clone(), piece]).collect();
            answered += check(&name("each twice"), &twice);
            assert_eq!(check(&name("without the first"), &cut(len, each)[1..]), 0);
        }
        // Cut otherwise: pieces of both overlap.
        let even = cut(2000, 1000);
        number += 1;
        let (other, odd) = (echo_in_pieces(to, number, 2000, 1000), echo_in_pieces(to, number, 2000, 904));
        assert!(check(to, &even) > 0);
        assert_eq!(check(to, &[other[0].clone(), odd[1].clone(), odd[2].clone(), other[2].clone()]), 0);
    }
    assert!(answered > 600, "{answered} pieces of answers were compared");
}

//! Properties for any packets: mappings are injective, networks share only ports, damaged packets do no harm.

use super::*;
use crate::parts::testing::injective::{self, External};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever inside endpoints send in any order: no two share an external endpoint at the same time, each keeps its
    /// own, and a reply to it reaches the sender.
    #[test]
    fn mappings_are_injective_and_replies_come_back(sends in injective::sends()) {
        injective::check(&mut bench(small()), sends, |host, port, server| {
            let server = format!("192.0.2.{}:80", server + 1);
            [format!("10.0.0.{}:{}", host + 1, 1030 + port), server.clone(), server]
        })?;
    }

    /// Hosts of several networks with the same address: outside they are distinct, and each reply has the tags of its
    /// receiver.
    #[test]
    fn networks_share_the_external_ports_and_nothing_else(
        sends in prop::collection::vec((0usize..4, 0u8..3, 0u16..3, any::<bool>(), any::<bool>()), 1..80),
    ) {
        let vlans = ["untagged", "5", "5.6", "6.5"].map(|text| text.parse().unwrap()).to_vec();
        let config = Config { networks: Networks::ByVlan, vlans, outside_vlan: "9".parse().ok(), ..small() };
        let tags: [&[u16]; 4] = [&[], &[5], &[5, 6], &[6, 5]];
        let tagged = |frame: Frame, tags: &[u16]| tags.iter().fold(frame, |frame, tag| frame.vlan(*tag)).bytes();
        let mut nat = bench(config);
        let mut external = External::default();
        for (n, (network, host, port, tcp, again)) in sends.into_iter().enumerate() {
            let (inside, server) = (format!("10.0.0.{}:{}", host + 1, 1030 + port), "192.0.2.1:80");
            let make = |from: &str, to: &str| if tcp { Frame::tcp(from, to) } else { Frame::udp(from, to) };
            for at in 0..=u64::from(again) {
                let sent = nat.send(0, n as u64 * 10 + at, &tagged(make(&inside, server), tags[network]));
                let mapped = show::outcome(&sent).split(' ').nth(2).unwrap().to_owned();
                // Byte for byte what a host outside would have sent, except for the Ethernet addresses, which stay.
                prop_assert_eq!(&sent.sent[0].1[12..], &tagged(make(&mapped, server).ttl(63), &[9])[12..]);
                external.note((network, inside.clone()), tcp, &mapped)?;
                let back = nat.send(1, n as u64 * 10 + at, &tagged(make(server, &mapped), &[9]));
                prop_assert_eq!(&back.sent[0].1[12..], &tagged(make(server, &inside).ttl(63), tags[network])[12..]);
            }
        }
        external.check()?;
    }

    /// Bytes that are not packets, and packets that are altered or truncated, are forwarded or dropped; nothing panics.
    #[test]
    fn damaged_packets_do_no_harm(flips in prop::collection::vec((0usize..80, any::<u8>()), 0..6), cut in 0usize..90, port in 0u16..2) {
        let mut nat = bench(small());
        let quoted = Frame::udp(EXTERNAL, SERVER).bytes();
        let frames = [
            Frame::tcp(HOST, SERVER).flags("S").bytes(),
            Frame::udp(HOST, SERVER).payload(&[1; 20]).bytes(),
            Frame::udp(HOST, SERVER).payload(&[1; 8]).fragment(3, 0, true).bytes(),
            Frame::unreachable("192.0.2.9", "198.51.100.1", &quoted).bytes(),
            Frame::echo_request("10.0.0.1", "192.0.2.9", 5, 6).bytes(),
            Frame::udp("[2001:db8::1]:5", "[2001:db8:1::2]:6").bytes(),
        ];
        for mut frame in frames {
            for (at, value) in &flips {
                if let Some(byte) = frame.get_mut(*at) {
                    *byte = *value;
                }
            }
            frame.truncate(cut.max(1));
            let outcome = nat.send(port, 0, &frame);
            prop_assert!(outcome.dropped != Some("handler_panic"));
            prop_assert!(!outcome.sent.is_empty() || outcome.dropped.is_some());
        }
    }
}

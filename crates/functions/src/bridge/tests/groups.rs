//! Tests of IGMP and MLD snooping: frames for groups go to the ports that want them.

use braid_nf::packet::IpAddress;
use braid_nf::packet::checksum::{Sum, pseudo_header};

use super::*;

/// A frame to the Ethernet address of a group, from a station at a port.
fn to_group(port: u16, source: &str, group: &str, protocol: u8, content: &[u8]) -> Vec<u8> {
    let mac = match group.parse::<std::net::IpAddr>().unwrap() {
        std::net::IpAddr::V4(v4) => [1, 0, 0x5e, v4.octets()[1] & 0x7f, v4.octets()[2], v4.octets()[3]],
        std::net::IpAddr::V6(v6) => {
            let [.., a, b, c, d] = v6.octets();
            [0x33, 0x33, a, b, c, d]
        }
    };
    let mut content = content.to_vec();
    if let 2 | 58 = protocol {
        let [from, to] = [source, group].map(|address| address.parse::<IpAddress>().unwrap());
        let before = if protocol == 2 { Sum::default() } else { pseudo_header(from, to, 58, content.len() as u32) };
        let sum = before.add_bytes(&content).checksum();
        content[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    if protocol == 58 {
        // Messages of MLD stand behind a hop-by-hop header with a router alert, which is announced in place of "no next header".
        let content = [&[58, 0, 5, 2, 0, 0, 1, 0][..], &content].concat();
        let mut frame =
            Frame::ip(source, group, 59).ttl(1).payload(&content).mac([2, 0, 0, 0, 1, port as u8], mac).bytes();
        frame[20] = 0;
        return frame;
    }
    Frame::ip(source, group, protocol).payload(&content).mac([2, 0, 0, 0, 1, port as u8], mac).bytes()
}

const SNOOPS: &str = "snooping = { enabled = true }";
const G: &str = "239.1.2.3";

fn igmp(kind: u8, group: [u8; 4]) -> Vec<u8> {
    [&[kind, 0, 0, 0][..], &group].concat()
}

/// A bridge at port 3 queries; by 10 s all members have answered.
fn ask(bench: &mut Bench) {
    bench.send(3, 0, &to_group(3, "0.0.0.0", "224.0.0.1", 2, &igmp(0x11, [0; 4])));
    bench.send(3, 0, &to_group(3, "fe80::3", "ff02::1", 58, &[&[130, 0, 0, 0][..], &[0; 20]].concat()));
}

/// The ports by which a frame for the group leaves that arrives by port 3.
fn reach(bench: &mut Bench, ms: u64) -> Vec<u16> {
    let mut ports = bench.send(3, ms, &to_group(3, "10.0.0.3", G, 17, &[0; 20])).ports();
    ports.sort_unstable();
    ports
}

#[test]
fn a_group_reaches_members_and_routers() {
    let mut bench = bench(10, SNOOPS);
    assert_eq!(reach(&mut bench, 0), [0, 1, 2], "nobody has reported it");
    let query = to_group(0, "10.0.0.254", "224.0.0.1", 2, &igmp(0x11, [0; 4]));
    assert_eq!(bench.send(0, 0, &query).sent.len(), 3, "a query is for all");
    let report = to_group(1, "10.0.0.1", G, 2, &igmp(0x16, [239, 1, 2, 3]));
    assert_eq!(bench.send(1, 0, &report).ports(), [0], "a report is for routers");
    assert_eq!(reach(&mut bench, 9_999), [0, 1, 2], "others may still answer");
    assert_eq!(reach(&mut bench, 10_000), [0, 1]);
    let local = to_group(3, "10.0.0.3", "224.0.0.251", 17, &[0; 20]);
    assert_eq!(bench.send(3, 10_000, &local).sent.len(), 3, "what stays on the link is for all");
    let leave = to_group(1, "10.0.0.1", "224.0.0.2", 2, &igmp(0x17, [239, 1, 2, 3]));
    assert_eq!(bench.send(1, 11_000, &leave).ports(), [0]);
    assert_eq!([reach(&mut bench, 13_000), reach(&mut bench, 14_100)], [vec![0, 1], vec![0, 1, 2]]);
}

#[test]
fn a_port_without_a_link_wants_no_groups_and_has_no_routers() {
    let mut bench = bench(10, SNOOPS);
    ask(&mut bench);
    bench.send(0, 1, &to_group(0, "10.0.0.254", "224.0.0.1", 2, &igmp(0x11, [0; 4])));
    for port in [1, 2] {
        bench.send(port, 1, &to_group(port, "10.0.0.1", G, 2, &igmp(0x16, [239, 1, 2, 3])));
    }
    assert_eq!(reach(&mut bench, 10_000), [0, 1, 2], "members and a router");
    bench.link_down(1);
    assert_eq!(reach(&mut bench, 10_001), [0, 2]);
    bench.link_down(0);
    assert_eq!(reach(&mut bench, 10_002), [2]);
}

#[test]
fn a_member_that_does_not_repeat_itself_is_forgotten() {
    let mut bench = bench(10, "snooping = { enabled = true, membership_s = 10 }");
    ask(&mut bench);
    bench.send(1, 5_000, &to_group(1, "10.0.0.1", G, 2, &igmp(0x12, [239, 1, 2, 3])));
    bench.send(0, 9_000, &to_group(0, "0.0.0.0", "224.0.0.1", 2, &igmp(0x11, [0; 4])));
    assert_eq!([reach(&mut bench, 15_000), reach(&mut bench, 16_000)], [vec![1], vec![0, 1, 2]]);
}

/// Hosts report once, when they join: a host that reported long ago is silent until it is queried.
#[test]
fn where_nobody_asks_groups_go_everywhere() {
    let mut bench = bench(10, SNOOPS);
    let report = to_group(1, "10.0.0.1", G, 2, &igmp(0x16, [239, 1, 2, 3]));
    bench.send(1, 100_000, &report);
    assert_eq!(reach(&mut bench, 200_000), [0, 1, 2], "others may want it as well");
    let v6 = [&[131, 0, 0, 0, 0, 0, 0, 0][..], &"ff05::7".parse::<std::net::Ipv6Addr>().unwrap().octets()].concat();
    bench.send(1, 200_000, &to_group(1, "fe80::1", "ff05::7", 58, &v6));
    // IGMP queries do not concern IPv6 groups.
    bench.send(0, 200_000, &to_group(0, "0.0.0.0", "224.0.0.1", 2, &igmp(0x11, [0; 4])));
    assert_eq!(reach(&mut bench, 220_000), [1]);
    let to_v6 = to_group(3, "2001:db8::3", "ff05::7", 17, &[0; 20]);
    assert_eq!(bench.send(3, 220_000, &to_v6).sent.len(), 3);
    // The querier has expired.
    bench.send(1, 400_000, &report);
    assert_eq!([reach(&mut bench, 460_000), reach(&mut bench, 461_000)], [vec![1], vec![0, 1, 2]]);
}

#[test]
fn a_query_without_a_source_is_no_routers() {
    let mut bench = bench(10, "snooping = { enabled = true, unregistered = 'routers' }");
    let ask_from = |source: &str| to_group(0, source, "224.0.0.1", 2, &igmp(0x11, [0; 4]));
    bench.send(0, 0, &ask_from("0.0.0.0"));
    let outcome = bench.send(3, 0, &to_group(3, "10.0.0.3", G, 17, &[0; 20]));
    assert_eq!(outcome.dropped, Some("no_member"));
    for source in ["10.0.0.254", "0.0.0.0"] {
        bench.send(0, 0, &ask_from(source));
        assert_eq!(reach(&mut bench, 0), [0], "a router is there, and stays one beside a bridge");
    }
}

#[test]
fn unregistered_groups_go_as_configured() {
    let mut bench = bench(10, "snooping = { enabled = true, unregistered = 'routers' }");
    bench.send(2, 0, &to_group(2, "10.0.0.254", "224.0.0.1", 2, &igmp(0x11, [0; 4])));
    assert_eq!(reach(&mut bench, 0), [2]);
}

#[test]
fn records_of_igmpv3_and_mldv2_are_read() {
    let record = |kind: u8, sources: u16, group: &[u8]| {
        let sources_of = vec![9; usize::from(sources) * group.len()];
        [&[kind, 0, (sources >> 8) as u8, sources as u8][..], group, &sources_of].concat()
    };
    let mut bench = bench(10, SNOOPS);
    ask(&mut bench);
    let records = [record(4, 0, &[239, 9, 9, 9]), record(5, 2, &[239, 1, 2, 3])].concat();
    let v3 = [&[0x22, 0, 0, 0, 0, 0, 0, 2][..], &records].concat();
    bench.send(1, 10_000, &to_group(1, "10.0.0.1", "224.0.0.22", 2, &v3));
    assert_eq!(reach(&mut bench, 10_000), [1]);
    let blocks = [&[0x22, 0, 0, 0, 0, 0, 0, 1][..], &record(6, 1, &[239, 1, 2, 3])].concat();
    bench.send(1, 10_000, &to_group(1, "10.0.0.1", "224.0.0.22", 2, &blocks));
    assert_eq!(reach(&mut bench, 15_000), [1], "fewer sources are still some");
    let leaves = [&[0x22, 0, 0, 0, 0, 0, 0, 9][..], &record(3, 0, &[239, 1, 2, 3])].concat();
    bench.send(1, 15_000, &to_group(1, "10.0.0.1", "224.0.0.22", 2, &leaves));
    assert_eq!(reach(&mut bench, 19_000), [0, 1, 2], "a report that is cut short is read as far as it goes");

    let group: [u8; 16] = "ff05::7".parse::<std::net::Ipv6Addr>().unwrap().octets();
    let mld = [&[143, 0, 0, 0, 0, 0, 0, 1][..], &record(2, 0, &group)].concat();
    bench.send(2, 19_000, &to_group(2, "fe80::2", "ff02::16", 58, &mld));
    let to = |group: &str| to_group(3, "2001:db8::3", group, 17, &[0; 20]);
    assert_eq!(bench.send(3, 19_000, &to("ff05::7")).ports(), [2]);
    assert_eq!(bench.send(3, 19_000, &to("ff02::1:ff00:7")).sent.len(), 3, "neighbour discovery is for all");
}

#[test]
fn groups_stay_in_their_vlan_and_a_full_table_floods() {
    let ports =
        "[[port]]\nport = 0\ntrunk = ['10-20']\n[[port]]\nport = 1\naccess = 10\n[[port]]\nport = 2\naccess = 10
        [[port]]\nport = 3\naccess = 10\n";
    let mut bench = bench(10, &format!("snooping = {{ enabled = true, groups_max = 1 }}\n{ports}"));
    let tagged = |vlan: u16| {
        let mut frame = to_group(0, "10.0.0.9", G, 2, &igmp(0x16, [239, 1, 2, 3]));
        frame.splice(12..12, [0x81, 0, 0, vlan as u8]);
        frame
    };
    bench.send(3, 0, &to_group(3, "0.0.0.0", "224.0.0.1", 2, &igmp(0x11, [0; 4])));
    bench.send(0, 10_000, &tagged(20));
    assert_eq!(reach(&mut bench, 10_000), [0, 1, 2], "nobody in VLAN 10 has reported it");
    bench.send(0, 10_000, &tagged(10));
    assert_eq!(reach(&mut bench, 10_000), [0, 1, 2], "there was no room");
    let events = Events::read_from_bytes(&bench.object("br.events")).unwrap();
    assert_eq!(events.groups_full, 1);
}

#[test]
fn stations_groups_and_routers_are_listed_while_they_last() {
    let config = format!("{SNOOPS}\nageing_s = 20\nstatic = [{{ mac = '02:00:00:00:09:09', port = 2 }}]");
    let mut bench = bench(10, &config);
    ask(&mut bench);
    bench.send(1, 0, &to_group(1, "10.0.0.1", G, 2, &igmp(0x16, [239, 1, 2, 3])));
    bench.send(0, 9_000, &to_group(0, "10.0.0.9", G, 2, &igmp(0x16, [239, 1, 2, 3])));
    let mut listed = bench.entries();
    listed.sort();
    let expected = [
        "group 239.1.2.3 → ports 0, 1",
        "router  → port 3, MLD",
        "station 02:00:00:00:01:00 → port 0",
        "station 02:00:00:00:01:01 → port 1",
        "station 02:00:00:00:01:03 → port 3",
        "station 02:00:00:00:09:09 → port 2, static",
    ];
    assert_eq!(listed, expected, "the querier of IPv4 has the unspecified address, so it is a bridge");
    bench.send(0, 25_000, &to_group(0, "10.0.0.9", G, 2, &igmp(0x16, [239, 1, 2, 3])));
    let stations = bench.entries().into_iter().filter(|entry| entry.starts_with("station")).collect::<Vec<_>>();
    assert_eq!(stations.len(), 2, "those that are silent are gone: {stations:?}");
}

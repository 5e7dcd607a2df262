//! Captures as others make them: every link type that is known means the same packets, and what is odd about a file is said.

mod support;

use braid_cli::control::runtime::io::capture::CaptureReader;
use support::Braid;

/// Seconds since 1970 of the first packets.
const BEGUN_S: usize = 1_700_000_000;

/// A pcap file of these packets, one a second, each cut to so many bytes.
fn pcap(linktype: u32, packets: &[Vec<u8>], most: usize) -> Vec<u8> {
    pcap_at(linktype, packets.iter().enumerate().map(|(second, packet)| (second * 1_000_000, &packet[..])), most)
}

/// The same of packets with times in microseconds.
fn pcap_at<'a>(linktype: u32, packets: impl Iterator<Item = (usize, &'a [u8])>, most: usize) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4, 2 | 4 << 16, 0, 0, 262_144, linktype] {
        file.extend(u32::to_le_bytes(word));
    }
    for (us, packet) in packets {
        let present = &packet[..packet.len().min(most)];
        for word in [BEGUN_S + us / 1_000_000, us % 1_000_000, present.len(), packet.len()] {
            file.extend((word as u32).to_le_bytes());
        }
        file.extend(present);
    }
    file
}

fn udp(source: [u8; 4], destination: [u8; 4], ports: [u16; 2]) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 32, 0, 1, 0, 0, 64, 17, 0, 0];
    packet.extend(source.iter().chain(&destination));
    let sum = packet.chunks(2).fold(0u32, |sum, pair| sum + u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    packet[10..12].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
    packet.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
    packet.extend([0, 12, 0, 0, 1, 2, 3, 4]);
    packet
}

/// A question from inside and its answer to the NAT's address, behind these bytes.
fn both_ways(before: &[u8]) -> Vec<Vec<u8>> {
    let (inside, outside, external) = ([10, 0, 0, 1], [192, 0, 2, 9], [198, 51, 100, 1]);
    let packets = [udp(inside, outside, [40_000, 53]), udp(outside, external, [53, 40_000])];
    packets.iter().map(|packet| [before, packet].concat()).collect()
}

/// As of `cat a.gz b.gz`, of files that were padded, and of downloads with something behind them.
#[test]
fn what_stands_behind_a_compressed_capture_is_read_ignored_or_named() {
    let braid = Braid::new();
    braid.ok("gen uniform?packets=50&flows=5 --out whole.pcap.gz");
    let whole = std::fs::read(braid.path("whole.pcap.gz")).expect("readable");
    let write = |name: &str, rest: &[u8]| std::fs::write(braid.path(name), [&whole, rest].concat()).expect("room");
    write("padded.pcap.gz", &[0; 512]);
    assert_eq!(braid.json("run --nf forward --in padded.pcap.gz")["packets_in"], 50);
    write("more.pcap.gz", b"and more");
    let said = braid.fails(3, "run --nf forward --in more.pcap.gz --out out.pcap");
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("bytes that are no gzip stand behind the end of the compressed file"), "{said}");
    assert_eq!(braid.json("run --nf forward --in out.pcap")["packets_in"], 50, "all of them are sent");
}

#[test]
fn inside_and_outside_are_told_apart_on_every_link_and_behind_every_tag() {
    let braid = Braid::new();
    let ethernet = |rest: &[u8]| [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2][..], rest].concat();
    for (name, linktype, before) in [
        ("ethernet", 1, ethernet(&[8, 0])),
        ("vlan", 1, ethernet(&[0x81, 0, 0, 5, 8, 0])),
        ("two tags", 1, ethernet(&[0x88, 0xa8, 0, 7, 0x81, 0, 0, 5, 8, 0])),
        ("mpls", 1, ethernet(&[0x88, 0x47, 0, 0, 0x41, 64])),
        ("pppoe", 1, ethernet(&[0x88, 0x64, 0x11, 0, 0, 1, 0, 34, 0, 0x21])),
        ("snap", 1, ethernet(&[0, 40, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0])),
        ("null", 0, vec![2, 0, 0, 0]),
        ("loop", 108, vec![0, 0, 0, 2]),
        ("ppp", 9, vec![0xff, 3, 0, 0x21]),
        ("hdlc", 104, vec![0x0f, 0, 8, 0]),
        ("raw", 101, vec![]),
        ("ipv4", 228, vec![]),
        ("cooked", 113, [&[0; 14][..], &[8, 0]].concat()),
        ("cooked 2", 276, [&[8, 0][..], &[0; 18]].concat()),
    ] {
        std::fs::write(braid.path("in.pcap"), pcap(linktype, &both_ways(&before), usize::MAX)).expect("written");
        let report = braid.json("run --nf nat --in in.pcap --workers 1 --out out.pcapng");
        support::conserved(&report);
        assert_eq!(report["packets_out"].as_u64(), Some(2), "{name}: {report}");
    }
}

#[test]
fn what_is_odd_about_a_capture_is_said_before_it_is_read() {
    let braid = Braid::new();
    let note = |file: Vec<u8>, line: &str| {
        std::fs::write(braid.path("in.pcap"), file).expect("written");
        String::from_utf8_lossy(&braid.run(line).stderr).into_owned()
    };
    let said = note(pcap(105, &both_ways(&[8; 32]), usize::MAX), "run --nf nat --in in.pcap");
    assert!(said.contains("note: in.pcap: link type 105 is not known here"), "{said}");
    assert!(said.contains("and written as of link type 147"), "{said}");
    let whole = both_ways(&[2, 0, 0, 0]);
    let said = note(pcap(0, &whole, 20), "certify --nf nat --in in.pcap --runs 1");
    assert!(said.contains("note: in.pcap: 2 of the first 2 packets were cut"), "{said}");
    let said = note(pcap(0, &whole, usize::MAX), "sets --nf nat --in in.pcap");
    assert!(!said.contains("note"), "{said}");
}

#[test]
fn bytes_are_counted_as_on_the_wire_whoever_asks_for_them() {
    let braid = Braid::new();
    std::fs::write(braid.path("cut.pcap"), pcap(101, &both_ways(&[]), 24)).expect("written");
    for line in ["forward", "forward --out out.pcap", "flow_counter", "forward --workers 2 --distribution software"] {
        let report = braid.json(&format!("run --in cut.pcap --nf {line}"));
        assert_eq!([&report["packets_in"], &report["bytes_in"]], [2, 64], "{line}");
    }
}

#[test]
fn hosts_behind_a_carriers_translator_are_inside() {
    let braid = Braid::new();
    let packets = [udp([100, 64, 0, 5], [198, 18, 0, 7], [4000, 53])];
    std::fs::write(braid.path("in.pcap"), pcap(101, &packets, usize::MAX)).expect("written");
    let output = braid.run("run --nf nat --in in.pcap --out out.pcap");
    assert!(output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("inside"), "{said}");
    let out = std::fs::read(braid.path("out.pcap")).expect("written");
    assert!(!out.windows(4).any(|bytes| bytes == [100, 64, 0, 5]), "its address is translated");
}

#[test]
fn hosts_of_which_neither_is_inside_are_pointed_out() {
    let braid = Braid::new();
    let (client, server) = ([203, 0, 113, 5], [198, 18, 0, 7]);
    let mut packets = vec![udp([10, 0, 0, 1], server, [4000, 53])];
    for port in 5000..5005 {
        packets.extend([udp(client, server, [port, 53]), udp(server, client, [53, port])]);
    }
    std::fs::write(braid.path("in.pcap"), pcap(101, &packets, usize::MAX)).expect("written");
    let line = "run --nf firewall --set rules=[{action=\"allow\"}] --in in.pcap";
    let said = |line: &str| String::from_utf8_lossy(&braid.run(line).stderr).into_owned();
    let note = said(line);
    assert!(note.contains("9 of the first 11 packets go back between addresses of which neither is inside"), "{note}");
    assert!(note.contains("such as 203.0.113.5 and 198.18.0.7"), "{note}");
    assert!(note.contains("note: wrong_side: not by the port of their connection's side"), "{note}");
    let words: Vec<&str> = note.split_whitespace().collect();
    let (at, _) = words.iter().enumerate().find(|(_, word)| **word == "--inside").expect("an example");
    let line = format!("{line} --inside {}", words[at + 1]);
    let note = said(&line);
    assert!(!note.contains("inside"), "{note}");
    assert_eq!(braid.json(&line)["packets_out"].as_u64(), Some(11));
    // What comes for a translator's address comes from outside.
    std::fs::write(braid.path("nat.pcap"), pcap(101, &both_ways(&[]), usize::MAX)).expect("written");
    let note = said("run --nf nat --in nat.pcap --workers 1");
    assert!(!note.contains("inside"), "{note}");
}

#[test]
fn times_keep_their_nanoseconds() {
    let braid = Braid::new();
    let mut file = pcap(101, &both_ways(&[]), usize::MAX);
    file[..4].copy_from_slice(&0xa1b2_3c4d_u32.to_le_bytes());
    // Where microseconds stand in other files.
    file[28..32].copy_from_slice(&123_456_789_u32.to_le_bytes());
    std::fs::write(braid.path("in.pcap"), file).expect("written");
    for out in ["out.pcap", "out.pcapng"] {
        braid.ok(&format!("run --nf nat --workers 1 --in in.pcap --out {out}"));
        let mut reader = CaptureReader::open(&braid.path(out)).expect("a capture");
        assert!(reader.advance().expect("a packet"));
        assert_eq!(reader.captured().timestamp_ns, Some(BEGUN_S as u64 * 1_000_000_000 + 123_456_789), "{out}");
    }
}

#[test]
fn a_compression_that_is_not_read_is_named_with_what_reads_it() {
    let braid = Braid::new();
    for (name, magic, reader) in [
        ("in.pcap.lz4", &b"\x04\x22\x4d\x18   "[..], "lz4cat in.pcap.lz4 | braid run --in -"),
        ("in.pcap.xz", b"\xfd7zXZ\0  ", "xzcat in.pcap.xz"),
        ("in.pcap.bz2", b"BZh91AY&SY", "bzcat in.pcap.bz2"),
        ("in.pcap.zst", b"\x28\xb5\x2f\xfd   ", "zstdcat in.pcap.zst"),
    ] {
        std::fs::write(braid.path(name), magic).expect("written");
        let said = braid.fails(3, &format!("run --nf forward --in {name}")).replace("\n  │ ", " ");
        assert!(said.contains(reader), "{said}");
    }
    std::fs::write(braid.path("in.pcap"), &pcap(1, &[], 0)[..10]).expect("written");
    let said = braid.fails(3, "run --nf forward --in in.pcap");
    assert!(said.contains("it ends within its header"), "{said}");
}

#[test]
fn what_takes_its_time_says_so_before() {
    let braid = Braid::new();
    let said = |line: &str| String::from_utf8_lossy(&braid.run(line).stderr).into_owned();
    let model =
        said("model --nf forward --in gen:campus?packets=20 --packets 3000 --repeats 1 --measured 1 --workers 2");
    assert!(model.contains("forward: several runs of 3,000 packets each") && model.contains("--packets"), "{model}");
    let tune = said("tune --nf nat --in gen:campus?packets=20");
    assert!(tune.contains("allows nothing to be relaxed") && !tune.contains("several runs"), "{tune}");
}

/// Time of a capture passes between its packets too, and within a batch of them: what a shaper holds back leaves when it is due, not behind
/// the packet that comes next.
#[test]
fn a_shaper_in_a_replay_sends_each_packet_when_it_is_due() {
    const RAW: u32 = 101;
    let braid = Braid::new();
    let packet = udp([192, 0, 2, 1], [10, 0, 0, 1], [1, 2]);
    // Ten at once, each worth ten milliseconds, and two long after.
    let times_us = (0..10).chain([500_000, 500_001]);
    std::fs::write(braid.path("in.pcap"), pcap_at(RAW, times_us.map(|us| (us, &packet[..])), usize::MAX))
        .expect("written");
    // With many workers the one that had the packets is seldom the last to end.
    for workers in [1, 2, 8] {
        let config = "--set bytes_per_s=3200 --set burst_bytes=32";
        braid.ok(&format!("run --nf shaper {config} --workers {workers} --in in.pcap --out out.pcap"));
        let mut reader = CaptureReader::open(&braid.path("out.pcap")).expect("a capture");
        let mut left_us = Vec::new();
        while reader.advance().expect("the capture is whole") {
            let left_ns = reader.captured().timestamp_ns.expect("a time");
            left_us.push(left_ns / 1000 - BEGUN_S as u64 * 1_000_000);
        }
        let due_us = (0..10).map(|n| n * 10_000).chain([500_000, 510_000]);
        assert_eq!(left_us.len(), 12, "{left_us:?}");
        // Which worker was how far is not always the same: then some leave later, and not in the order of their times.
        if workers > 1 {
            left_us.sort_unstable();
        }
        let latest_us = |due: u64| if workers == 1 { due + 2_000 } else { 512_000 };
        for (left, due) in left_us.iter().zip(due_us) {
            assert!((due..latest_us(due)).contains(left), "{left} of {left_us:?}, {workers} workers");
        }
    }
}

/// tshark and libpcap take a file with a longer record for a damaged one.
#[test]
fn no_record_is_longer_than_readers_of_captures_take() {
    const MOST: usize = 262_144;
    let braid = Braid::new();
    let frame = |len: usize| [&[2; 12][..], &[0x88, 0xb5], &vec![0; len - 14]].concat();
    let frames = [60, MOST, MOST + 1, MOST + 192, MOST + 193].map(frame);
    std::fs::write(braid.path("long.pcap"), pcap(1, &frames, usize::MAX)).expect("room");
    for to in ["out.pcap", "out.pcapng"] {
        let report = braid.json(&format!("run --nf forward --in long.pcap --out {to}"));
        support::conserved(&report);
        assert_eq!((report["packets_in"].as_u64(), report["packets_out"].as_u64()), (Some(5), Some(2)), "{report}");
        assert_eq!(report["dropped"]["frame_too_long"], 3, "{report}");
        let dropped = &report["dropped_by_nf"];
        assert_eq!((&dropped["source"]["frame_too_long"], &dropped["sink"]["frame_too_long"]), (&1.into(), &2.into()));
        let mut reader = CaptureReader::open(&braid.path(to)).expect("a capture");
        let mut lengths = Vec::new();
        while reader.advance().expect("the capture is whole") {
            lengths.push(reader.captured().bytes.len());
        }
        assert_eq!(lengths, [60, MOST], "{to}");
    }
    // What is only shown is cut, as programs that capture do it, and its length is said.
    let mut trace = braid.command("trace --nf forward --in long.pcap --out traced.pcap -n 9");
    assert!(trace.arg("greater 262145").output().expect("the binary runs").status.success());
    let mut reader = CaptureReader::open(&braid.path("traced.pcap")).expect("a capture");
    let mut lengths = Vec::new();
    while reader.advance().expect("the capture is whole") {
        lengths.push((reader.captured().bytes.len(), reader.captured().wire_len as usize));
    }
    // As they came and as they left.
    assert_eq!(lengths, [(MOST, MOST + 1), (MOST, MOST + 1), (MOST, MOST + 192), (MOST, MOST + 192)]);
}

/// A pcapng file: the names and link types of its interfaces, and its packets with the numbers of their interfaces.
fn pcapng(interfaces: &[(&str, u16)], packets: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let block = |kind: u32, body: &[u8]| {
        let len = (12 + body.len() as u32).to_le_bytes();
        [&kind.to_le_bytes()[..], &len, body, &len].concat()
    };
    let padded = |bytes: &[u8]| [bytes, &[0; 3][..bytes.len().next_multiple_of(4) - bytes.len()]].concat();
    let mut file = block(0x0a0d_0d0a, &[&[0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0][..], &[0xff; 8]].concat());
    for (name, linktype) in interfaces {
        let option = [&[2, 0][..], &(name.len() as u16).to_le_bytes(), &padded(name.as_bytes()), &[0; 4]].concat();
        file.extend(block(1, &[&linktype.to_le_bytes()[..], &[0; 2], &262_144u32.to_le_bytes(), &option].concat()));
    }
    for (number, (interface, packet)) in packets.iter().enumerate() {
        let us = (BEGUN_S * 1_000_000 + number) as u64;
        let words = [*interface, (us >> 32) as u32, us as u32, packet.len() as u32, packet.len() as u32];
        let words: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        file.extend(block(6, &[words, padded(packet)].concat()));
    }
    file
}

/// Packets by the port by which they came in, from what a run writes for each.
fn came_by(braid: &Braid, line: &str) -> (serde_json::Value, Vec<Vec<u16>>) {
    let report = braid.json(&format!("run --nf forward --split interface {line}"));
    support::conserved(&report);
    let ports = |file: &str| {
        let mut reader = CaptureReader::open(&braid.path(file)).expect("a capture");
        let mut ports = Vec::new();
        while reader.advance().expect("the capture is whole") {
            let bytes = reader.captured().bytes;
            ports.push(u16::from_be_bytes([bytes[bytes.len() - 12], bytes[bytes.len() - 11]]));
        }
        ports
    };
    // A packet leaves by the other port of its pair.
    let files = if line.contains("--ports 4") {
        vec!["1.pcapng", "0.pcapng", "3.pcapng", "2.pcapng"]
    } else {
        vec!["1.pcapng", "0.pcapng"]
    };
    (report, files.into_iter().map(ports).collect())
}

#[test]
fn each_interface_of_a_capture_is_a_port() {
    let braid = Braid::new();
    let packet = |number: u16| [&[2; 12][..], &[8, 0], &udp([10, 0, 0, 1], [192, 0, 2, 9], [number, 53])].concat();
    let packets: Vec<(u32, Vec<u8>)> =
        [0, 1, 2, 1, 0].iter().zip(1..).map(|(by, number)| (*by, packet(number))).collect();
    let three = pcapng(&[("eth0", 1), ("eth1", 1), ("wlan0", 1)], &packets);
    std::fs::write(braid.path("three.pcapng"), three).expect("room");
    let refused = |line: &str| braid.fails(2, line).split_whitespace().collect::<Vec<_>>().join(" ");
    let said = refused("run --nf forward --split interface --in three.pcapng");
    assert!(said.contains("comes in by 3 ports, but the plan has 2") && said.contains("add --ports 3"), "{said}");
    let four = "--ports 4 --out 0=0.pcapng --out 1=1.pcapng --out 2=2.pcapng --out 3=3.pcapng";
    let (_, by_port) = came_by(&braid, &format!("--in three.pcapng {four}"));
    assert_eq!(by_port, [vec![1, 5], vec![2, 4], vec![3], vec![]]);
    // They keep their names.
    braid.ok("run --nf forward --split interface --ports 4 --in three.pcapng --out all.pcapng");
    let written = std::fs::read(braid.path("all.pcapng")).expect("readable");
    let has = |name: &[u8]| written.windows(name.len()).any(|part| part == name);
    assert!([&b"eth0"[..], b"eth1", b"port 3"].iter().all(|name| has(name)) && !has(b"port 0"));
    // A pipe cannot be looked at beforehand.
    let input = std::fs::File::open(braid.path("three.pcapng")).expect("readable");
    let line = "run --nf forward --split interface --in - --json -w 2";
    let output = braid.command(line).stdin(input).output().expect("it runs");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a report");
    support::conserved(&report);
    assert_eq!((&report["packets_in"], &report["dropped"]["no_port"]), (&5.into(), &1.into()), "{report}");
    let said = refused("run --nf forward --split interface --in gen:campus");
    assert!(said.contains("generated traffic comes by no interface"), "{said}");
}

#[test]
fn cooked_packets_come_by_the_ports_of_their_interfaces_in_the_order_in_which_these_appear() {
    let braid = Braid::new();
    let cooked = |index: u8, number: u16| {
        let header = [&[8, 0, 0, 0, 0, 0, 0, index, 0, 1, 0, 6][..], &[2; 8]].concat();
        [header, udp([10, 0, 0, 1], [192, 0, 2, 9], [number, 53])].concat()
    };
    let packets: Vec<Vec<u8>> = [7, 3, 7, 9, 3].iter().zip(1..).map(|(index, number)| cooked(*index, number)).collect();
    std::fs::write(braid.path("any.pcap"), pcap(276, &packets, usize::MAX)).expect("room");
    for workers in 1..3 {
        let line = format!("--in any.pcap --out 0=0.pcapng --out 1=1.pcapng -w {workers}");
        let (report, by_port) = came_by(&braid, &line);
        assert_eq!(by_port, [vec![1, 3], vec![2, 5]], "{workers} workers");
        assert_eq!(report["dropped_by_nf"]["source"]["no_port"], 1, "{report}");
    }
}

//! Certificates of chains that were once found to have none.

mod support;

use std::fmt::Write;

use braid_testkit::Frame;
use support::Braid;

/// A NAT whose sets workers share, with a table that is nearly always full: who registers a set meets others who do.
#[test]
fn full_tables_of_sets_that_workers_share_are_certified() {
    let braid = Braid::new();
    let campus = "--in gen:campus?packets=3000&flows=2000 --workers 4 --runs 12";
    for behind in ["nat64", "router"] {
        braid.write("plan.toml", &format!("sets = 64\n[[nf]]\nfunction = \"nat\"\n[[nf]]\nfunction = \"{behind}\"\n"));
        let said = braid.ok(&format!("certify plan.toml {campus}"));
        assert!(said.starts_with("CERTIFIED"), "{said}");
    }
}

/// A capture of hosts inside that connect to each other by external endpoints.
fn hairpins(addresses: u8) -> Vec<u8> {
    let mut capture =
        [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 0, 0, 0].to_vec();
    let mut chance = 1u64;
    for n in 0..600u32 {
        chance = chance.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(n.into());
        let [kind, host, server, port, ..] = (chance >> 24).to_be_bytes()[3..].try_into().unwrap_or([0; 5]);
        let (host, server, port) = (1 + host % 8, 1 + server % 8, u16::from(port % 3));
        let external = format!("198.51.100.{}", 1 + server % addresses);
        let frame = match kind % 3 {
            0 => Frame::tcp(
                &format!("10.0.0.{host}:{}", 1000 + port),
                &format!("{external}:{}", 8000 + u16::from(server)),
            )
            .flags("S"),
            1 => Frame::tcp(
                &format!("10.0.0.{server}:80"),
                &format!("198.51.100.{}:{}", 1 + host % addresses, 1000 + port),
            )
            .flags("SA"),
            _ => Frame::udp(&format!("10.0.0.{host}:{}", 1000 + port), "192.0.2.9:53"),
        };
        let frame = frame.bytes();
        let len = (frame.len() as u32).to_le_bytes();
        capture.extend([[n.to_le_bytes(), 0u32.to_le_bytes(), len, len].concat(), frame].concat());
    }
    capture
}

/// What a translator sends back inside meets the firewall before it once more: with one external address on the same worker, with several in sets
/// that workers share.
#[test]
fn hairpins_that_return_are_certified() {
    let braid = Braid::new();
    for (addresses, more) in [(1, ""), (8, "hairpins = 'through'"), (8, "")] {
        let mut forwarded = String::new();
        for server in 1..=8 {
            let external = format!("198.51.100.{}:{}", 1 + server % addresses, 8000 + server);
            let _ =
                write!(forwarded, "{{ protocol = 'tcp', external = '{external}', inside = '10.0.0.{server}:80' }}, ");
        }
        let external: Vec<String> = (1..=addresses).map(|address| format!("198.51.100.{address}")).collect();
        braid.write(
            "plan.toml",
            &format!(
                "[[nf]]\nfunction = 'firewall'\n[nf.config]\ninbound = 'allow'\n[[nf]]\nfunction = 'nat'\n[nf.config]\n\
                 external = {external:?}\nstatic = [{forwarded}]\n{more}\n"
            ),
        );
        std::fs::write(braid.path("hairpins.pcap"), hairpins(addresses as u8)).expect("a capture");
        let report = braid.json("run plan.toml --in hairpins.pcap --split single --ports 2 --workers 2");
        let returned = report["dropped_by_nf"]["nat"]["hairpin"].as_u64().unwrap_or(0);
        assert_eq!(returned > 100, addresses == 1 || !more.is_empty(), "{report}");
        let said = braid.ok("certify plan.toml --in hairpins.pcap --split single --ports 2 --workers 4 --runs 12");
        assert!(said.starts_with("CERTIFIED"), "{said}");
    }
}

#[test]
fn one_worker_and_one_run_are_one() {
    let said = Braid::new().ok("certify --nf forward --in gen:campus?packets=1 --workers 1 --runs 1");
    assert!(said.contains("on 1 worker, ") && said.contains(": 1 packet\n") && said.contains("  1 run ("), "{said}");
    let noted = |workers: &str| {
        let output = Braid::new().run(&format!("certify --nf forward --in gen:campus?packets=9 --runs 1 {workers}"));
        String::from_utf8_lossy(&output.stderr).contains("with one worker there is nothing to compare")
    };
    assert!(noted("--workers 1") && !noted("--workers 2") && !noted(""));
}

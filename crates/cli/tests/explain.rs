//! `braid plan`, `check-rss` and `nf`.

mod support;

use braid_cli::control::machine::Cache;
use serde_json::Value;
use support::Braid;

#[test]
fn a_plan_is_explained_before_it_runs() {
    let braid = Braid::new();
    let json = braid.json("plan --nf flow_counter,rate_limiter --workers 2 --nic mlx5");
    assert_eq!(json["groups"][0]["functions"], serde_json::json!(["flow_counter", "rate_limiter"]));
    assert_eq!(json["functions"][0]["state"][0]["placement"], "local");
    assert!(json["steering"]["fields"].as_array().unwrap().iter().any(|field| field == "ip.src"));
    assert!(json["metadata"]["cache_lines_per_batch"][0].as_u64().unwrap() > 0);
    assert_eq!(json["nic"].as_array().map(Vec::len), Some(1));
    let alone = braid.ok("plan --nf firewall,nat64 --workers 1");
    assert!(alone.starts_with("1 worker, 2 ports") && alone.contains("every packet comes to it"), "{alone}");
    assert!(!alone.contains("several workers") && !alone.contains("instead:"), "{alone}");
    braid.write("by_source.toml", "[[nf]]\nfunction = \"flow_counter\"\npacket_set = { fields = [\"ip.src\"] }\n");
    assert!(braid.ok("plan by_source.toml").contains("packet set plan's own (ip.src)"));
    let text = braid.ok("plan --nf bridge");
    assert!(text.contains("bridge.stations (Map") && text.contains("transactional"), "{text}");
}

/// A router behind a translator, with its external address among its own.
#[test]
fn a_router_that_would_take_what_is_for_the_translator_is_pointed_out() {
    let braid = Braid::new();
    let said = |order: &str, functions: [&str; 2], address: &str| {
        let plan = functions.map(|function| match function {
            "router" => format!(
                "[[nf]]\nfunction = \"router\"\n\
                 [[nf.config.interface]]\nport = 0\naddresses = [\"10.0.0.254/24\"]\n\
                 [[nf.config.interface]]\nport = 1\naddresses = [\"192.0.2.1/24\", \"{address}/32\"]\n"
            ),
            other => format!("[[nf]]\nfunction = \"{other}\"\nconfig.external = [\"198.51.100.0/30\"]\n"),
        });
        braid.write("plan.toml", &format!("{order}\n{}", plan.concat()));
        let of = |line: &str| String::from_utf8_lossy(&braid.run(line).stderr).into_owned();
        let (planned, run) = (of("plan plan.toml"), of("run plan.toml --in gen:campus?packets=10 --workers 1"));
        assert_eq!(
            planned.contains("note: packets from outside meet"),
            run.contains("note: packets from outside meet")
        );
        planned
    };
    for translator in ["nat", "nat64"] {
        let dead = said("", [translator, "router"], "198.51.100.2");
        let whose = format!("those to 198.51.100.2, which is external to `{translator}`, end there");
        assert!(dead.contains(&whose) && dead.contains("write order = \"same\" in [chain]"), "{dead}");
        assert_eq!(said("", [translator, "router"], "198.51.100.4"), "", "of nobody else");
        assert_eq!(said("[chain]\norder = \"same\"", [translator, "router"], "198.51.100.2"), "");
        assert_eq!(said("", ["router", translator], "198.51.100.2"), "", "the translator meets them first");
    }
}

#[test]
fn an_order_in_which_a_firewall_drops_answers_is_pointed_out() {
    let braid = Braid::new();
    let noted = |plan: &str| {
        braid.write("plan.toml", plan);
        String::from_utf8_lossy(&braid.run("plan plan.toml").stderr).into_owned()
    };
    let of = |order: &str, functions: [&str; 2]| {
        let functions = functions.map(|function| format!("[[nf]]\nfunction = \"{function}\"\n"));
        noted(&format!("[chain]\norder = \"{order}\"\n{}", functions.concat()))
    };
    for translator in ["nat", "nat64", "nptv6", "load_balancer"] {
        for functions in [["firewall", translator], [translator, "firewall"]] {
            let said = of("same", functions);
            let why = format!("because `{translator}` changes them, and drops the answers; write order = \"mirrored\"");
            assert!(said.contains(&why), "{said}");
            assert_eq!(of("mirrored", functions), "");
        }
        assert_eq!(of("same", ["flow_counter", translator]), "");
    }
    let between = "[[nf]]\nfunction = \"nat\"\n[[nf]]\nfunction = \"firewall\"\n[[nf]]\nfunction = \"router\"\n\
                   [[nf.config.interface]]\nport = 0\naddresses = [\"10.0.0.254/24\"]\n\
                   [[nf.config.interface]]\nport = 1\naddresses = [\"198.51.100.1/24\"]\n";
    let said = noted(between);
    assert!(said.contains("put `router` first, before the firewall and `nat`"), "{said}");
}

#[test]
fn defaults_that_are_examples_are_pointed_out_between_interfaces() {
    let braid = Braid::new();
    let noted = |function: &str, rest: &str, ports: &str| {
        braid.write("plan.toml", &format!("[[nf]]\nfunction = \"{function}\"\n{rest}\n{ports}"));
        String::from_utf8_lossy(&braid.run("plan plan.toml").stderr).into_owned()
    };
    let ports = "[[port]]\ndevice = \"tap:a\"\n[[port]]\ndevice = \"tap:b\"\n";
    let keys = [
        ("nat", "external"),
        ("nat64", "external"),
        ("nptv6", "outside"),
        ("load_balancer", "service"),
        ("router", "interface"),
    ];
    for (function, key) in keys {
        let said = noted(function, "", ports);
        assert!(said.contains(&format!("because `{key}` is left out")), "{said}");
        assert_eq!(noted(function, "", ""), "", "captures are to be tried with");
    }
    assert_eq!(noted("nat", "config.external = [\"192.0.2.7\"]", ports), "");
    assert_eq!(noted("firewall", "", ports), "");
}

#[test]
fn translators_with_the_same_addresses_are_pointed_out() {
    let braid = Braid::new();
    let noted = |options: &str| {
        String::from_utf8_lossy(&braid.run(&format!("plan --nf nat,nat {options}")).stderr).into_owned()
    };
    let said = noted("");
    assert!(said.contains("`nat` and `nat_2` have the same `external` addresses"), "{said}");
    assert_eq!(noted("--set nat_2.external=[192.0.2.7]"), "");
}

#[test]
fn an_address_that_is_left_to_no_translator_is_pointed_out() {
    let braid = Braid::new();
    let noted = |order: &str, behind: &str| {
        let router = "[[nf]]\nfunction = \"router\"\n[[nf.config.interface]]\nport = 0\naddresses = [\"10.0.0.254/24\"]\n\
                      [[nf.config.interface]]\nport = 1\naddresses = [\"198.51.100.1/24\"]\ntranslated = [\"198.51.100.1\"]\n";
        braid.write("plan.toml", &format!("[chain]\norder = \"{order}\"\n{router}{behind}"));
        String::from_utf8_lossy(&braid.run("plan plan.toml").stderr).contains("there is none in a mirrored chain")
    };
    let nat = "[[nf]]\nfunction = \"nat\"\n";
    assert!(noted("same", "") && noted("same", nat) && noted("mirrored", "[[nf]]\nfunction = \"forward\"\n"));
    assert!(!noted("mirrored", nat) && !noted("mirrored", "[[nf]]\nfunction = \"load_balancer\"\n"));
}

#[test]
fn generated_traffic_that_a_chain_must_drop_is_pointed_out() {
    let braid = Braid::new();
    let noted = |nf: &str, traffic: &str| {
        let output = braid.run(&format!("run --nf {nf} --in gen:{traffic}"));
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (said.contains("generated connections get no answers"), said.contains("generated answers go to"))
    };
    assert_eq!(noted("firewall", "campus?packets=100"), (true, false));
    assert_eq!(noted("firewall", "campus?packets=100&reverse=0.4"), (false, false));
    assert_eq!(noted("firewall,nat", "campus?packets=100&reverse=0.4"), (false, true));
    assert_eq!(noted("nat", "campus?packets=100"), (false, false));
    assert_eq!(noted("firewall", "syn_flood?packets=100"), (false, false));
}

#[test]
fn a_port_without_a_partner_is_pointed_out() {
    let braid = Braid::new();
    let noted = |line: &str| {
        let said = String::from_utf8_lossy(&braid.run(&format!("plan {line}")).stderr).into_owned();
        said.contains("what arrives by port 2 leaves by it again")
    };
    assert!(noted("--nf firewall --ports 3"));
    for right in ["--nf firewall --ports 4", "--nf firewall --ports 1", "--nf bridge,firewall --ports 3"] {
        assert!(!noted(right), "{right}");
    }
}

#[test]
fn heartbeats_that_end_at_a_router_are_pointed_out() {
    let braid = Braid::new();
    let noted = |order: &str, translated: &str, heartbeats: &str| {
        let router = format!(
            "[[nf]]\nfunction = \"router\"\n[[nf.config.interface]]\nport = 0\naddresses = [\"10.0.0.254/24\"]\n\
             [[nf.config.interface]]\nport = 1\naddresses = [\"192.0.2.254/24\", \"198.51.100.10/32\"]\n{translated}\n"
        );
        let balancer = format!("[[nf]]\nfunction = \"load_balancer\"\n[nf.config]\n{heartbeats}\n");
        braid.write("plan.toml", &format!("[chain]\norder = \"{order}\"\n{router}{balancer}"));
        let said = String::from_utf8_lossy(&braid.run("plan plan.toml").stderr).into_owned();
        said.contains(
            "sent to 198.51.100.10 end at `router`, which has this address too and meets them before `load_balancer`",
        )
    };
    let hears = "heartbeat_port = 7000";
    assert!(noted("mirrored", "", hears));
    assert!(!noted("mirrored", "translated = [\"198.51.100.10\"]", hears));
    assert!(!noted("mirrored", "", "") && !noted("same", "", hears));
}

#[test]
fn a_reverse_path_check_behind_a_translator_is_pointed_out() {
    let braid = Braid::new();
    let said = |order: &str, functions: [&str; 2], check: &str| {
        let plan = functions.map(|function| match function {
            "router" => format!(
                "[[nf]]\nfunction = \"router\"\n\
                 [[nf.config.interface]]\nport = 0\naddresses = [\"10.0.0.254/24\"]\nreverse_path = \"{check}\"\n\
                 [[nf.config.interface]]\nport = 1\naddresses = [\"192.0.2.1/24\"]\n"
            ),
            other => format!("[[nf]]\nfunction = \"{other}\"\n"),
        });
        braid.write("plan.toml", &format!("[chain]\norder = \"{order}\"\n{}", plan.concat()));
        let planned = String::from_utf8_lossy(&braid.run("plan plan.toml").stderr).into_owned();
        planned.contains("note: `router` stands behind `nat`, so `reverse_path` checks the sources")
    };
    assert!(said("same", ["nat", "router"], "strict"));
    assert!(!said("same", ["nat", "router"], "loose"), "some route leads to any source");
    assert!(!said("same", ["router", "nat"], "strict") && !said("mirrored", ["router", "nat"], "strict"));
}

#[test]
fn a_gateway_has_two_orders_and_keeps_connections_on_one_worker() {
    let braid = Braid::new();
    let json = braid.json("plan --nf firewall,nat --workers 2");
    assert_eq!(json["order"]["from_inside"], serde_json::json!(["firewall", "nat"]));
    assert_eq!(json["order"]["from_outside"], serde_json::json!(["nat", "firewall"]));
    assert_eq!(json["order"]["outside"], serde_json::json!([1]));
    assert_eq!(json["steering"]["by_sides"], true);
    assert!(json["groups"].as_array().unwrap().iter().all(|group| group["local"] == true), "{json}");
    let text = braid.ok("plan --nf firewall,nat --workers 2");
    assert!(text.contains("order from outside: nat → firewall (port 1)"), "{text}");
    let text = braid.ok("plan --nf flow_counter,policer --workers 2");
    assert!(text.contains("order: flow_counter → policer, for packets of all ports"), "{text}");
    // Who names no sides has the chain's, which is said where its own would be others.
    braid.write("two.toml", "[[nf]]\nfunction = 'nat'\nname = 'first'\n[[nf]]\nfunction = 'nat'\n[nf.config]\ninside_ports = [1]\noutside_ports = [0]\n");
    let text = braid.ok("plan two.toml");
    assert!(text.contains("sides of first: those of the chain"), "{text}");
    assert_eq!(braid.json("plan two.toml")["order"]["given_sides"], serde_json::json!(["first"]));
}

#[test]
fn what_becomes_of_the_ports_of_udp_is_explained() {
    let braid = Braid::new();
    let planned = |head: &str, functions: &str| {
        let functions: String = functions.split(',').map(|name| format!("[[nf]]\nfunction = \"{name}\"\n")).collect();
        braid.write("plan.toml", &format!("workers = 2\n{head}\n[chain]\norder = \"same\"\n{functions}"));
        let (json, text) = (braid.json("plan plan.toml"), braid.ok("plan plan.toml"));
        let first = text.lines().find(|line| line.starts_with("steering")).expect("a line").to_owned();
        (json["steering"]["udp_ports"].as_bool(), json["steering"]["udp_why"].as_str().map(str::to_owned), first, text)
    };
    let (ports, why, first, text) = planned("", "flow_counter,nat");
    let reason = "all fragments of a datagram reach one worker: nat follows fragments";
    assert!(ports == Some(false) && why.as_ref().is_some_and(|why| why.ends_with(reason)), "{why:?}");
    assert!(first.ends_with("UDP without its ports") && text.contains(reason), "{text}");
    let (ports, why, first, _) = planned("", "flow_counter");
    assert!(ports == Some(true) && why.is_none() && !first.contains("UDP"), "{why:?}, {first}");
    let (ports, why, ..) = planned("steer_udp_ports = true", "nat");
    assert!(
        ports == Some(true) && why.as_ref().is_some_and(|why| why.contains("are held until that has come")),
        "{why:?}"
    );
    let (ports, why, ..) = planned("steer_udp_ports = false", "flow_counter");
    assert!(ports == Some(false) && why.as_ref().is_some_and(|why| why.contains("as asked")), "{why:?}");
    let by_source =
        "steer_udp_ports = true\n[[nf]]\nfunction = \"flow_counter\"\npacket_set = { fields = [\"ip.src\"] }\n";
    braid.write("plan.toml", &format!("workers = 2\n{by_source}"));
    let idle = "`steer_udp_ports` has no effect: no ports are hashed";
    assert!(braid.ok("plan plan.toml").contains(idle));
    let output = braid.run("run plan.toml --in gen:uniform?packets=10");
    assert!(String::from_utf8_lossy(&output.stderr).contains(idle), "{output:?}");
    assert!(braid.ok("plan plan.toml --workers 1").contains("has no effect: there is one worker"));
}

#[test]
fn records_and_their_cost_are_explained() {
    let braid = Braid::new();
    braid.write(
        "plan.toml",
        "[chain]\norder = \"same\"\n[[nf]]\nfunction = \"flow_counter\"\n[[nf]]\nfunction = \"nat\"\n\
         [[nf]]\nfunction = \"flow_counter\"\nname = \"behind\"\nwhen = { in = [0], flooded = false }\n",
    );
    let json = braid.json("plan plan.toml --workers 2");
    let groups = json["groups"].as_array().unwrap();
    assert_eq!(groups[0]["functions"], serde_json::json!(["flow_counter", "nat"]));
    assert_eq!(
        (&groups[0]["record_bytes"], &groups[0]["lines"]),
        (&serde_json::json!([64, 96]), &serde_json::json!([2, 3]))
    );
    assert!(groups[1]["apart"].as_str().unwrap().contains("meets other packets"), "{json}");
    assert_eq!((&groups[0]["local"], &groups[1]["local"]), (&serde_json::json!(true), &serde_json::json!(false)));
    assert_eq!(json["functions"][2]["when"], "only packets that came by port 0 and are not flooded");
    assert!(
        json["accesses"]["packet"].as_f64().unwrap() > 1.0
            && json["metadata"]["batch_that_fits"].as_u64().unwrap() > 32
    );
    let uses = |function: &Value| -> u64 {
        function["state"].as_array().unwrap().iter().filter_map(|state| state["lines"].as_u64()).sum()
    };
    let of_nat = uses(&json["functions"][1]);
    assert!(of_nat > 2 && json["accesses"]["objects"].as_u64() == Some(of_nat), "{}", json["accesses"]);
    let steady = json["accesses"]["objects_steady"].as_u64();
    assert_eq!(steady, Some(1), "counters have no objects, the NAT takes one look: {}", json["accesses"]);
    // What `braid bench` names as the machine's.
    let text = braid.ok("plan plan.toml --workers 2");
    assert!(text.contains("if handlers use each once, 1 at most for most packets of live sets"), "{text}");
    match Cache::first_level() {
        Some(bytes) => {
            assert_eq!(json["metadata"]["first_level_bytes"].as_u64(), Some(bytes as u64));
            assert!(text.contains("half of this machine's first-level cache of"), "{text}");
        }
        None => assert!(text.contains("half of a usual first-level cache of 32.0 KiB"), "{text}"),
    }
}

#[test]
fn every_function_is_explained_and_has_a_page() {
    let braid = Braid::new();
    let list = braid.json("nf list");
    for function in list.as_array().unwrap() {
        let name = function["name"].as_str().unwrap();
        if name != "load_balancer" {
            braid.ok(&format!("plan --nf {name}"));
        }
        assert!(braid.ok(&format!("nf show {name}")).starts_with('#'), "{name}");
    }
}

#[test]
fn nics_are_judged_one_by_one() {
    let braid = Braid::new();
    let text = braid.ok("check-rss --fields ip.src,ip.dst,port.src,port.dst --symmetric");
    for nic in ["mlx5", "ice", "i40e", "ixgbe", "ena", "virtio", "veth"] {
        assert!(text.contains(nic), "{nic} is missing in\n{text}");
    }
    let rows = braid.json("check-rss --fields eth.src,eth.dst --nic e810");
    assert_eq!(rows.as_array().map(Vec::len), Some(1));
    braid.ok("check-rss --nf nat --nic mlx5");
    // What it cannot hash of some kinds of packets it can hash of others.
    let of_kinds = |torn: &str| {
        format!(
            "mlx5     does not fit  TCP, UDP whole; SCTP, other IP whole, several to a queue; IP fragments of {torn} torn"
        )
    };
    let text = braid.ok("check-rss --nf flow_counter");
    assert!(text.contains(&of_kinds("TCP, UDP")), "{text}");
    let text = braid.ok("check-rss --nf nat");
    assert!(text.contains(&of_kinds("TCP")) && text.contains("UDP without its ports"), "{text}");
}

#[test]
fn the_rule_that_decides_about_a_packet_is_named() {
    let braid = Braid::new();
    braid.write("edge.rules", "ip saddr 192.0.2.66 drop\ninbound tcp dport { 22, 80-90 } accept\n");
    let packet = "nf firewall explain tcp 192.0.2.9:7 > 10.0.0.5:85 --port 1 --set rules_file=edge.rules";
    let page = braid.ok(packet);
    assert!(page.starts_with("The packet is inbound by port 1 and passes"), "{page}");
    assert!(page.contains("line 2 of the rule file decides: inbound, protocol tcp"), "{page}");
    assert!(braid.ok("nf firewall explain udp 192.0.2.9:7 > 10.0.0.5:85 --port 1").contains("No rule fits"));
    assert!(braid.fails(2, "nf firewall explain upd 192.0.2.9:7").contains("`upd` is no kind of packet"));
    assert!(
        braid
            .fails(2, "nf firewall explain gre 10.0.0.5 > 192.0.2.9")
            .contains("write ip 10.0.0.5 > 192.0.2.9 proto 47")
    );
    let printed = braid.ok("nf firewall explain icmpv6 echo 2001:db8::9 > 2001:db8::5");
    assert!(printed.contains("The packet is outbound by port 0"), "{printed}");
    braid.write("edge.rules", "inbound meta hour \"08:00\"-\"18:00\" accept\n");
    let page = braid.ok(&format!("{packet} --at 2026-12-24"));
    assert!(page.contains("denied") && page.contains("It comes on Thursday, 2026-12-24 00:00:00"), "{page}");
    braid.write("edge.rules", "accept\ntcp port 80 drop\n");
    assert!(braid.fails(2, packet).contains("edge.rules:2:5: `port` is nothing of tcp"));
    braid.write("plan.toml", "[[nf]]\nfunction = \"firewall\"\n[nf.config]\nrules_file = \"none.rules\"\n");
    assert!(braid.fails(2, "plan plan.toml").contains("none.rules"));
}

#[test]
fn who_has_an_object_in_common_is_said() {
    let braid = Braid::new();
    let policer = |name: &str, line: &str| {
        let head = format!("[[nf]]\nfunction = \"policer\"\nname = \"{name}\"\nshare = {{ link = \"{line}\" }}\n");
        format!("{head}[nf.config]\nlink = {{ per_s = 1000, burst = 2000 }}\n")
    };
    braid.write("plan.toml", &[policer("up", "line"), policer("down", "line"), policer("aside", "lime")].concat());
    let said = braid.ok("plan plan.toml");
    for part in
        ["in common with down; shared by", "in common with up; shared by", "no other function names it; shared by"]
    {
        assert_eq!(said.matches(part).count(), 1, "`{part}` in\n{said}");
    }
}

#[test]
fn bursts_through_which_no_full_frame_fits_are_pointed_out() {
    let braid = Braid::new();
    let noted = |function: &str, config: &str| {
        braid.write("plan.toml", &format!("[[nf]]\nfunction = \"{function}\"\n[nf.config]\n{config}\n"));
        String::from_utf8_lossy(&braid.run("plan plan.toml").stderr).into_owned()
    };
    let small = [
        ("shaper", "link = { bytes_per_s = 1000, burst_bytes = 100 }", "link.burst_bytes"),
        ("shaper", "bytes_per_s = 100000\nburst_bytes = 1513", "burst_bytes"),
        ("policer", "bytes_per_s = 100000\nburst_bytes = 600", "burst_bytes"),
        ("rate_limiter", "bytes_per_s = 100000\nburst_bytes = 600", "burst_bytes"),
    ];
    for (function, config, key) in small {
        let said = noted(function, config);
        assert!(said.contains(&format!("`{function}`: no full frame of Ethernet fits into `{key}`")), "{said}");
    }
    assert_eq!(noted("shaper", "link = { bytes_per_s = 1000000, burst_bytes = 1514 }"), "");
    assert_eq!(noted("policer", "packets_per_s = 100\nburst_packets = 5"), "");
}

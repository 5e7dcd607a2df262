//! What is wrong is refused with its place and what to write instead.

mod support;

use support::Braid;

/// A plan file that is refused at a line, with words.
#[track_caller]
fn check(plan: &str, line: usize, words: &[&str]) {
    let braid = Braid::new();
    braid.write("plan.toml", plan);
    let text = braid.fails(2, "run plan.toml --in gen:uniform?packets=10");
    assert!(text.contains(&format!("plan.toml:{line}:")), "not at line {line}:\n{text}");
    // The renderer breaks lines where it likes.
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ").replace(" │ ", " ");
    for word in words {
        assert!(flat.contains(word), "`{word}` is missing in\n{text}");
    }
}

#[test]
fn misspelt_keys_functions_and_values_are_answered_with_the_right_ones() {
    check("wrokers = 2\n[[nf]]\nfunction = \"forward\"\n", 1, &["unknown field `wrokers`", "write `workers`"]);
    check("[[nf]]\nfunction = \"foward\"\n", 2, &["no function `foward`", "write `forward`"]);
    check("time = \"captured\"\n[[nf]]\nfunction = \"forward\"\n", 1, &["time = \"capture\""]);
    check("nic = \"mlx4\"\n[[nf]]\nfunction = \"forward\"\n", 1, &["nic = \"mlx5\""]);
    check("[[nf]]\nfunction = \"forward\"\n[nf.config]\nswap_mca = true\n", 4, &["`swap_mca`", "swap_mac"]);
}

#[test]
fn values_out_of_range_say_the_range() {
    check("workers = 0\n[[nf]]\nfunction = \"forward\"\n", 1, &["workers = 0", "from 1 to 256"]);
    check("batch = 1000\n[[nf]]\nfunction = \"forward\"\n", 1, &["from 1 to 256"]);
    let none = ["`inside` names no range", "leave it out: then private addresses are inside"];
    check("[input]\nsplit = \"inside\"\ninside = []\n[[nf]]\nfunction = \"forward\"\n", 3, &none);
    check("[input]\ninside = []\n[[nf]]\nfunction = \"nat\"\n", 2, &none);
    check("[input]\ninside = [\"10.0.0.0/33\"]\n[[nf]]\nfunction = \"forward\"\n", 2, &["10.0.0.0/33", "10.0.0.0/8"]);
}

#[test]
fn one_of_several_tables_is_refused_at_its_own_line() {
    let services = |second: &str| {
        format!(
            "[[nf]]\nfunction = \"load_balancer\"\n[[nf.config.service]]\naddress = \"203.0.113.10\"\nbackends = [{{ address = \"10.0.0.1\" }}]
[[nf.config.service]]\naddress = \"203.0.113.11\"\n{second}\n"
        )
    };
    check(&services("backends = []"), 8, &["`service[1].backends`: there is none"]);
    let third = "backends = [\n{ address = \"10.0.0.2\" },\n{ address = \"10.0.0.1\" },\n]";
    check(&services(third), 10, &["`service[1].backends[1]`: 10.0.0.1 with all ports is a backend twice"]);
    check(&services("port = \"htp\"\nbackends = []"), 8, &["`service[1].port`", "`htp` is no port"]);
    check(&services("prot = 80\nbackends = []"), 8, &["`service[1].prot`: no such key", "did you mean `protocol`?"]);
    check(&services("port = 80"), 6, &["`service[1].backends`: missing"]);
    check(&services("backends = [{ address = \"10.0.0.2:80\" }]"), 8, &["`service[1].backends[0].address`"]);
    let rules =
        "[[nf]]\nfunction = \"firewall\"\n[nf.config]\nrules = [\n{ action = \"allow\" },\n{ action = \"alow\" },\n]\n";
    check(rules, 6, &["`rules[1].action`", "`allow`"]);
    let router = |rest: &str| {
        let first = "addresses = [\"10.0.0.1/24\"]\n[[nf.config.interface]]\nport = 1";
        let routes = "[[nf.config.route]]\nto = \"192.0.2.0/24\"\nvia = \"10.0.0.2\"";
        format!("[[nf]]\nfunction = \"router\"\n[[nf.config.interface]]\nport = 0\n{first}\n{rest}\n{routes}\n")
    };
    check(&router("addresses = [\"10.1.0.1/24\", \"10.2.0.1\"]"), 8, &["`interface[1].addresses[1]`: `10.2.0.1`"]);
    check(&router("addresses = [\"10.0.0.9/24\"]"), 8, &["`interface[1].addresses`: 10.0.0.0/24 is at two interfaces"]);
    let second = "[[nf.config.route]]\nto = \"198.51.100.0/24\"\nvia = \"10.7.0.2\"";
    check(
        &format!("{}{second}\n", router("addresses = [\"10.1.0.1/24\"]")),
        14,
        &["`route[1].via`: 10.7.0.2 is in no network"],
    );
    let hops =
        "[[nf.config.route]]\nto = \"198.51.100.0/24\"\nhops = [\n{ via = \"10.0.0.2\" },\n{ via = \"10.7.0.2\" },\n]";
    check(
        &format!("{}{hops}\n", router("addresses = [\"10.1.0.1/24\"]")),
        16,
        &["`route[1].hops[1].via`: 10.7.0.2 is in no network"],
    );
    let bridge = "[[nf]]\nfunction = \"bridge\"\n[[nf.config.port]]\nport = 0\naccess = 1\n[[nf.config.port]]\nport = 1\naccess = 4095\n";
    check(bridge, 8, &["`port[1].access`: there is no VLAN 4095"]);
    let nat = "[[nf]]\nfunction = \"nat\"\n[nf.config]\nstatic = [\n{ protocol = \"tcp\", external = \"198.51.100.1:8080\", inside = \"10.0.0.5:80\" },\n{ protocol = \"tcp\", external = \"198.51.100.9:8080\", inside = \"10.0.0.5:80\" },\n]\n";
    check(nat, 6, &["`static[1]`: 198.51.100.9 is no external address"]);
}

/// A translator has an inside and an outside; a balancer or a firewall does with one port.
#[test]
fn a_plan_with_one_port_is_for_functions_that_do_with_one() {
    check(
        "ports = 1\n[[nf]]\nfunction = \"nat\"\n",
        1,
        &["comes in by 2 ports, but the plan has 1", "write ports = 2"],
    );
    let braid = Braid::new();
    for function in ["load_balancer", "firewall", "policer"] {
        braid.ok(&format!("run --nf {function} --ports 1 --in gen:uniform?packets=10"));
    }
}

#[test]
fn packet_sets_are_checked() {
    let set = |set: &str| format!("[[nf]]\nfunction = \"flow_counter\"\n[nf.packet_set]\n{set}\n");
    check(&set("fields = [\"ip.scr\"]"), 4, &["no header field `ip.scr`", "`ip.src`"]);
    check(&set("fields = [\"ip.src\"]\nsymmetric = true"), 4, &["ip.src without ip.dst", "add \"ip.dst\""]);
    check(&set("fields = [\"ip.src\", \"ip.src\"]"), 4, &["names ip.src twice"]);
    check(&set("fields = []"), 4, &["the packet set names no field", "fields = [\"ip.src\"]"]);
    check(&set("fields = [\"ip.src\"]\nprotocols = []"), 2, &["of no protocols"]);
    check(&set("fields = [\"ip.src\"]\nprotocols = [300]"), 5, &["300 is no IP protocol"]);
    check(&set("fields = [\"ip.src\"]\nprotocols = [6, 17, 6]"), 5, &["names protocol 6 twice", "name it once"]);
}

#[test]
fn what_a_function_keeps_of_a_connection_is_not_kept_of_a_host() {
    let set = |function: &str, set: &str| format!("[[nf]]\nfunction = \"{function}\"\n[nf.packet_set]\n{set}\n");
    let five = "\"ip.src\", \"ip.dst\", \"port.src\", \"port.dst\", \"ip.proto\"";
    for function in ["nat", "firewall", "load_balancer", "router"] {
        let own = ["what it keeps belongs to its own packet set", "name at least those fields"];
        check(&set(function, "fields = [\"ip.src\"]"), 4, &own);
    }
    check(&set("firewall", &format!("fields = [{five}]")), 4, &["both directions"]);
    check(&set("anti_ddos", &format!("fields = [{five}]\nprotocols = [6, 17]")), 4, &["protocols [6] only"]);
    check(&set("forward", "fields = [\"ip.src\"]"), 4, &["keeps nothing of packet sets", "leave it out"]);
    let braid = Braid::new();
    for (function, fields) in [("nat", format!("{five}, \"vlan\"")), ("rate_limiter", "\"ip.dst\"".to_owned())] {
        braid.write("plan.toml", &set(function, &format!("fields = [{fields}]")));
        braid.ok("run plan.toml --in gen:uniform?packets=10");
    }
}

#[test]
fn inputs_and_outputs_of_a_plan_are_refused_where_they_stand() {
    let input = |input: &str| format!("[input]\n{input}\n[[nf]]\nfunction = \"forward\"\n");
    let check = |plan: &str, line: usize, words: &[&str]| {
        let braid = Braid::new();
        braid.write("plan.toml", plan);
        let text = braid.fails(2, "run plan.toml");
        assert!(text.contains(&format!("plan.toml:{line}:")), "not at line {line}:\n{text}");
        assert!(words.iter().all(|word| text.contains(word)), "{words:?} are missing in\n{text}");
    };
    check(&input("from = [\"gen:campuss\"]"), 2, &["write gen:campus"]);
    check(&input("from = [\"gen:campus?packts=3\"]"), 2, &["write packets=3"]);
    check(&input("from = [\"gen:campus?size=1\"]"), 2, &["size is 1", "from 60 to 9018"]);
    check(&input("from = [\"gen:campus?flows=1&flows=2\"]"), 2, &["`flows` is given twice"]);
    check(&input("from = [\"a.pcap\", \"gen:campus\"]"), 2, &["cannot be mixed"]);
    check(&input("split = \"single\"\ninside = [\"10.0.0.0/8\"]"), 3, &["leave `inside` out"]);
    let output = |to: &str| format!("{}[output]\nto = {to}\n", input("from = [\"gen:campus?packets=10\"]"));
    check(&output("[\"out.txt\"]"), 6, &["does not say the format"]);
    check(&output("[\"a.pcap\", \"a.pcap\"]"), 6, &["written twice"]);
    check(&format!("ports = 2\n{}", input("from = [\"a\", \"b\", \"c\"]")), 1, &["by 3 ports", "write ports = 3"]);
}

#[test]
fn a_plan_that_is_no_text_is_refused_at_its_line() {
    let braid = Braid::new();
    std::fs::write(braid.path("plan.toml"), b"workers = 2\n# gr\xfc\xdfe\n").expect("a file");
    assert!(braid.fails(2, "plan plan.toml").contains("plan.toml:2: byte 0xfc is no UTF-8"));
}

#[test]
fn sets_that_are_too_large_to_be_shared_are_refused_at_their_function() {
    let balancer = "[[nf]]\nfunction = \"load_balancer\"\n[[nf.config.service]]\naddress = \"198.18.0.1\"\nbackends = [{ address = \"10.0.0.5\" }]\n";
    let plan = format!("workers = 2\n{balancer}[[nf]]\nfunction = \"abacus\"\n[[nf]]\nfunction = \"port_scan\"\n");
    check(&plan, 8, &["abacus keeps 320 bytes per packet set", "write workers = 1"]);
}

#[test]
fn a_record_has_room_for_sixteen_functions() {
    let counters: String = (0..17).map(|i| format!("[[nf]]\nfunction = \"flow_counter\"\nname = \"f{i}\"\n")).collect();
    check(&counters, 50, &["`f16` would be one more", "another packet set"]);
}

#[test]
fn load_moves_only_where_a_dispatcher_owns_the_table_and_sets_are_found_by_keys() {
    let plan = |head: &str, function: &str| format!("workers = 2\n{head}\n[[nf]]\nfunction = \"{function}\"\n");
    check(&plan("balance = true", "forward"), 2, &["cannot be moved", "distribution = \"software\""]);
    let software = "distribution = \"software\"\nbalance = true";
    check(&plan(&format!("{software}\nbalance_every = 0"), "forward"), 4, &["balance_every = 0"]);
    let tunnels = format!("{}[nf.packet_set]\nfields = [\"gtp.teid\"]\n", plan(software, "flow_counter"));
    check(&tunnels, 5, &["cannot be moved between workers by their keys", "leave `balance` out"]);
    check(&plan(&format!("{software}\nin_order = true"), "forward"), 4, &["hold packets back", "leave out `in_order`"]);
    check(&plan("gather_us = 5000", "forward"), 2, &["gather_us = 5000", "from 0 to 1000"]);
    check(&plan("balance_every = 50", "forward"), 2, &["nothing moves it", "balance = true besides"]);
    let braid = Braid::new();
    braid.write("plan.toml", &plan("balance = false\nbalance_every = 50", "forward"));
    braid.ok("plan plan.toml");
}

#[test]
fn ports_of_udp_are_left_out_only_where_no_set_is_torn() {
    let plan = |head: &str, set: &str| {
        format!("workers = 2\n{head}\n[[nf]]\nfunction = \"flow_counter\"\npacket_set = {{ fields = [{set}] }}\n")
    };
    let ports = r#""ip.src", "ip.dst", "port.src", "port.dst""#;
    let out = "steer_udp_ports = false";
    check(&plan(out, ports), 2, &["sets of `flow_counter` would be torn", "add \"ip.proto\""]);
    let services = r#""port.src", "port.dst", "ip.proto""#;
    check(&plan(out, services), 2, &["a few workers would get them all", "leave `steer_udp_ports` out"]);
    let braid = Braid::new();
    for (head, set) in [
        (out, format!("{ports}, \"ip.proto\"")),
        (out, "\"ip.src\"".to_owned()),
        ("steer_udp_ports = true", ports.to_owned()),
    ] {
        braid.write("plan.toml", &plan(head, &set));
        braid.ok("run plan.toml --in gen:uniform?packets=10");
    }
    // Which fields are hashed matters to several workers only.
    braid.write("plan.toml", &plan(out, ports));
    braid.ok("run plan.toml --workers 1 --in gen:uniform?packets=10");
}

#[test]
fn batches_are_not_gathered_up_by_workers_that_go_abreast() {
    let plan =
        |workers: u8| format!("workers = {workers}\nin_order = true\ngather_us = 20\n[[nf]]\nfunction = \"nat\"\n");
    check(&plan(2), 3, &["with `in_order` 2 workers wait for each other's packets", "leave out `gather_us`"]);
    let braid = Braid::new();
    braid.write("plan.toml", &plan(1));
    braid.ok("plan plan.toml");
}

#[test]
fn tables_that_there_are_not_do_not_get_full() {
    let plan = |function: &str| format!("[[nf]]\nfunction = \"{function}\"\nfull = \"evict_oldest\"\n");
    check(&plan("forward"), 3, &["`full`: it keeps nothing of packet sets", "leave it out"]);
    let braid = Braid::new();
    braid.write("plan.toml", &plan("flow_counter"));
    braid.ok("plan plan.toml");
    braid.ok("bench --chain forward+flow_counter --quick --full evict_oldest --packets 0.01 --flows 100 --workers 1");
}

#[test]
fn objects_are_shared_by_functions_that_have_them_alike() {
    let plan =
        |share: &str| format!("[[nf]]\nfunction = \"flow_counter\"\nshare = {share}\n[nf.config]\ntotals = true\n");
    check(&plan("{ sums = \"all\" }"), 3, &["no state object `sums`", "it has: totals"]);
    check(&plan("{ totals = \"a.b\" }"), 3, &["`a.b` is no name for a shared object"]);
    let other = "[[nf]]\nfunction = \"policer\"\nshare = { link = \"all\" }\n[nf.config]\nbytes_per_s = 1000\nlink = { per_s = 1000, burst = 2000 }\n";
    check(&format!("{}{other}", plan("{ totals = \"all\" }")), 8, &["differs from what the function before shares"]);
    check("[[nf]]\nfunction = \"forward\"\nname = \"shared\"\n", 3, &["cannot be called `shared`"]);
}

#[test]
fn mappings_are_shared_with_their_ports_or_not_at_all() {
    let nat = |name: &str, port: u8, share: &str| {
        let when = format!("when = {{ in = [{port}, 1] }}\nshare = {{ {share} }}\n");
        format!("[[nf]]\nfunction = \"nat\"\nname = \"{name}\"\n{when}")
    };
    let both = |share: &str| format!("ports = 4\n{}{}", nat("one", 0, share), nat("other", 2, share));
    let all = "mappings = \"m_mappings\", ports = \"m_ports\", full_ports = \"m_full_ports\", \
               spent_ports = \"m_spent_ports\", external = \"m_external\"";
    let said = [
        "`share.mappings`: it is shared with `one`, but `ports`, `full_ports`, `spent_ports`, `external` not",
        "in both, or share none of them",
        all,
    ];
    check(&both("mappings = \"m\""), 11, &said);
    check(&both("ports = \"m\", full_ports = \"f\""), 11, &["but `mappings`, `spent_ports`, `external` not"]);
    let braid = Braid::new();
    braid.write("plan.toml", &both(all));
    braid.ok("run plan.toml --in gen:uniform?packets=10");
}

#[test]
fn keys_that_say_nothing_beside_packet_sets_of_the_plan_are_refused() {
    let plan = |function: &str, set: &str, config: &str| {
        format!("[[nf]]\nfunction = \"{function}\"\n[nf.packet_set]\n{set}\n[nf.config]\n{config}\n")
    };
    let vlan = "fields = [\"vlan\"]";
    for key in ["by = \"destination\"", "by = \"source\"", "prefix = { v4 = 16 }"] {
        let said =
            ["sets of its own", "(vlan)", "beside which this says nothing", "leave it out, or leave out `packet_set`"];
        check(&plan("policer", vlan, key), 6, &said);
    }
    let five = "fields = [\"ip.src\", \"ip.dst\", \"port.src\", \"port.dst\", \"ip.proto\"]";
    check(&plan("flow_counter", five, "symmetric = true"), 6, &["`symmetric`", "leave it out"]);
    let braid = Braid::new();
    let some = "fields = [\"ip.src\"]\nprotocols = [6]";
    braid.write("plan.toml", &plan("policer", some, "by = \"source\"\nprefix = { v4 = 16 }"));
    braid.ok("run plan.toml --in gen:uniform?packets=10");
}

#[test]
fn ranges_that_end_before_they_begin_and_keys_that_stand_twice_say_what_to_write() {
    let rule = "[[nf]]\nfunction = \"firewall\"\n[nf.config]\nrules = [{ action = \"allow\", destination_ports = \"80-70\" }]\n";
    check(rule, 4, &["`80-70` ends before it begins", "write \"70-80\""]);
    let service = "[[nf]]\nfunction = \"load_balancer\"\n[[nf.config.service]]\naddress = \"203.0.113.10\"\nport = \"80-70\"\nbackends = [{ address = \"10.0.0.1\" }]\n";
    check(service, 5, &["`80-70` ends before it begins", "write \"70-80\""]);
    let link = |keys: &str| format!("[[nf]]\nfunction = \"policer\"\n[nf.config]\nlink = {{ {keys}, burst = 2000 }}\n");
    check(&link("per_s = 9, bytes_per_s = 9"), 4, &["two keys there mean `per_s`", "keep one of them"]);
    check(&link("per_s = 9, per_s = 9"), 4, &["duplicate key", "it stands there twice: keep one of them"]);
}

#[test]
fn one_bucket_has_one_rate() {
    let policer = |name: &str, config: &str| {
        let head = format!("[[nf]]\nfunction = \"policer\"\nname = \"{name}\"\nshare = {{ link = \"line\" }}\n");
        format!("{head}[nf.config]\nlink = {{ per_s = 1000, burst = 2000 }}\n{config}\n")
    };
    let first = policer("up", "");
    let slower = policer("down", "").replace("per_s = 1000", "per_s = 500");
    let said = "for `up` it is a policer's bucket of 1000 bytes a second, 2000 at once, here";
    check(&format!("{first}{slower}"), 11, &[said, "of 500 bytes a second, 2000 at once", "the same there and here"]);
    let packets = policer("down", "packets_per_s = 5");
    check(&format!("{first}{packets}"), 11, &[said, "of 1000 packets a second, 2000 at once"]);
    let shaper = "[[nf]]\nfunction = \"shaper\"\nshare = { link = \"line\" }\n[nf.config]\nlink = { bytes_per_s = 1000, burst_bytes = 2000 }\n";
    check(&format!("{first}{shaper}"), 10, &[said, "a shaper's bucket", "under another name"]);
    let ranges = |name: &str, length: u8| {
        format!(
            "[[nf]]\nfunction = \"policer\"\nname = \"{name}\"\nshare = {{ ranges = \"all\" }}\n[nf.config]\nprefix = {{ v4 = {length} }}\n"
        )
    };
    check(&format!("{}{}", ranges("up", 24), ranges("down", 16)), 10, &["meters of /24 and /64: single", "of /16"]);
    let owners = |name: &str, most: u8| {
        format!(
            "[[nf]]\nfunction = \"connection_limiter\"\nname = \"{name}\"\nshare = {{ owners = \"all\" }}\n[nf.config]\nconnections_max = {most}\n"
        )
    };
    check(&format!("{}{}", owners("up", 24), owners("down", 16)), 10, &["24 connections of each owner, here 16"]);
}

#[test]
fn courses_that_lead_nowhere_are_refused() {
    let chain =
        |chain: &str| format!("[chain]\n{chain}\n[[nf]]\nfunction = \"firewall\"\n[[nf]]\nfunction = \"nat\"\n");
    check(&chain("order = \"mirored\""), 2, &["write order = \"mirrored\""]);
    check(&chain("atomic = \"chian\""), 2, &["write atomic = \"chain\""]);
    check(&chain("outside = [2]"), 2, &["no port 2 in a plan with 2 ports", "from 0 to 1"]);
    check(&chain("outside = [0, 1]"), 2, &["2 of 2 ports are outside", "outside = [1]"]);
    check(&chain("outside = []"), 2, &["0 of 2 ports are outside", "outside = [1]"]);
    check(&chain("outside = [1, 1]"), 2, &["outside: port 1 is named twice", "name it once"]);
    check(&chain("order = \"same\"\noutside = [1]"), 3, &["leave `outside` out"]);
    check(&chain("order = \"same\"\noutside = []"), 3, &["leave `outside` out"]);
    check(&chain("sides = [1]"), 2, &["unknown field `sides`", "`outside`"]);
    let outside = format!("{}[nf.config]\ninside_ports = [1]\noutside_ports = [0]\n", chain("outside = [1]"));
    check(&outside, 9, &["for `nat` the ports outside are 0, for the chain 1", "outside = [0]"]);
    let when = |when: &str| format!("[[nf]]\nfunction = \"forward\"\nwhen = {when}\n");
    check(&when("{ in = [7] }"), 3, &["no port 7", "from 0 to 1"]);
    check(&when("{ in = [] }"), 3, &["lets no packet through"]);
    check(&when("{ out = [1], flooded = true }"), 2, &["write `out` or `flooded`, not both"]);
    check(&when("{ flooded = true }"), 2, &["nothing is flooded before the first function", "leave `flooded` out"]);
    check(&when("{ in = [0], out = [0] }"), 2, &["this one would meet none", "leave a condition out"]);
    check(&when("{ inn = [1] }"), 3, &["unknown field `inn`", "`in`"]);
    let named = |name: &str| format!("[[nf]]\nfunction = \"forward\"\nname = \"{name}\"\n");
    for name in ["", "a.b", "a b", "a\\\"b", "a\\nb", &"x".repeat(65)] {
        check(&named(name), 3, &["is no name for a function", "letters, digits"]);
    }
    for name in ["source", "sink", "runtime", "shared"] {
        check(&named(name), 3, &[&format!("a function cannot be called `{name}`"), "give it another one"]);
    }
    check(&format!("{}{}", named("one"), named("one")), 6, &["two functions are named `one`"]);
}

#[test]
fn the_command_line_is_answered_likewise() {
    let braid = Braid::new();
    let fails = |code, line: &str, word: &str| {
        let text = braid.fails(code, line);
        assert!(text.contains(word), "`{word}` is missing in\n{text}");
    };
    fails(2, "run --nf forward", "--in");
    fails(2, "run --in x.pcap", "nothing to run: no chain is named");
    fails(2, "run nat --in x.pcap", "write --nf nat");
    fails(2, "plan firewall,nat", "write --nf firewall,nat");
    fails(3, "plan firewall,net", "check the path");
    fails(2, "run --nf nat --in x.pcap --workers two", "write a whole number");
    fails(2, "run --nf nat --in x.pcap --sets 2M", "write a whole number");
    fails(2, "bench --batch 1e3", "write a whole number");
    fails(2, "sets --limit all", "write a number, at least 0");
    fails(2, "run --nf nat --in x.pcap --metrics foo", "write an address and a port: 127.0.0.1:9100");
    fails(2, "run --nf nat --in x.pcap --metrics 127.0.0.1", "write an address and a port: 127.0.0.1:9100");
    fails(2, "run --nf nat --in x.pcap --metrics 9101", "write 127.0.0.1:9101");
    fails(2, "run --nf nat --in x.pcap --web localhost:80", "write 127.0.0.1:80");
    fails(3, "run --nf forward --in missing.pcap", "missing.pcap");
    fails(2, "run --nf forward --in gen:bakcbone", "gen:backbone");
    fails(2, "run --nf forward --set ttl", "no `=`");
    fails(2, "run --nf forward,nat --set ttl=true --in gen:edge", "NAME.KEY=VALUE");
    fails(2, "run --nf forward --in gen:edge --duration soon", "30s");
    fails(2, "run --nf forward --in 0=a.pcap --in 2=b.pcap", "without gaps");
    fails(2, "run --nf forward --in 0=a.pcap --split inside", "by a port that an input names is not split");
    fails(2, "nf show foward", "forward");
    braid.ok("gen uniform?packets=10&flows=1 --out in.pcap");
    fails(2, "run in.pcap", "--nf forward --in in.pcap");
    fails(2, "certify in.pcap --in in.pcap", "this is a capture, and no plan file");
    braid.ok("run --nf nat --in in.pcap --set external=[203.0.113.7]");
    fails(2, "check-rss --fields ip.src --nic mlx55", "known are");
    fails(2, "study bridge -w 0", "write a number from 1 to 256");
    fails(3, "run missing.toml --in gen:edge", "missing.toml");
    braid.write("text.pcap", "no capture at all");
    fails(3, "run --nf forward --in text.pcap", "not a capture");
    braid.write("empty.pcap", "");
    fails(3, "run --nf forward --in empty.pcap", "nothing is in it");
    fails(3, "run --nf forward --in .", "name a file in it");
    fails(2, "run --nf forward --in - --out - --json", "standard output");
    // A file stands where the folder would have to be.
    fails(3, "gen edge?packets=10 --out text.pcap/out.pcap", "text.pcap");
}

#[test]
fn files_that_are_there_are_not_lost() {
    let braid = Braid::new();
    braid.ok("gen uniform?packets=100&flows=10 --out in.pcap");
    std::fs::hard_link(braid.path("in.pcap"), braid.path("other.pcap")).expect("another name");
    let before = std::fs::read(braid.path("in.pcap")).expect("readable");
    let refused = |line: &str, word: &str| {
        let text = braid.fails(2, line);
        assert!(text.contains(word), "`{word}` is missing in\n{text}");
        assert!(std::fs::read(braid.path("in.pcap")).expect("readable") == before, "{line} changed the input");
    };
    refused("run --nf forward --in in.pcap --out in.pcap", "read and written");
    refused("run --nf forward --in in.pcap --out ./other.pcap", "read and written");
    refused("run --nf forward --in 0=gone.pcap --in 1=in.pcap --out 0=a.pcap --out 1=in.pcap", "read and written");
    refused("run --nf forward --in in.pcap --out 0=a.pcap --out 1=a.pcap", "written twice");
    refused("run --nf forward --in in.pcap --out 0=a.pcap --out 1=./a.pcap", "written twice");
    refused("run --nf forward --in in.pcap --out a.pcap --snapshot ./a.pcap", "written twice");
    refused("trace tcp --nf forward --in in.pcap --out in.pcap", "read and written");
    refused("run --nf forward --in in.pcap --snapshot other.pcap", "is to be read, and the state");
    refused("run --nf forward --in 0=in.pcap --snapshot in.pcap", "is to be read, and the state");
    refused("run --nf forward --in in.pcap --out out.pcap --snapshot out.pcap", "written twice");
    let plan = "[[nf]]\nfunction = \"forward\"\n";
    braid.write("plan.toml", plan);
    refused("run plan.toml --in in.pcap --snapshot plan.toml", "is to be read, and the state");
    refused("tune plan.toml --in in.pcap --out plan.toml", "is to be read, and the tuned plan");
    refused("profile plan.toml --in in.pcap --html plan.toml", "is to be read, and the page");
    refused("bench plan.toml --quick --csv plan.toml", "to be read and written");
    refused("bench plan.toml --quick --csv a.csv --plot a.csv", "written twice");
    assert_eq!(std::fs::read_to_string(braid.path("plan.toml")).expect("readable"), plan);
    refused("study cost --svg in.pcap", "has no plot");
    assert!(braid.run("bench plan.toml --quick --csv plan.toml").stdout.is_empty(), "refused before anything is said");
    for late in ["tune plan.toml --in in.pcap --out", "profile plan.toml --in in.pcap --html", "study imbalance --svg"]
    {
        let begun = std::time::Instant::now();
        assert!(braid.fails(3, &format!("{late} in.pcap/inside")).contains("a file stands where a folder"), "{late}");
        assert!(begun.elapsed().as_secs() < 5, "{late}: found out only after the work");
    }
    // What would be written is created only when there is something to read.
    braid.fails(3, "run --nf forward --in missing.pcap --out in.pcap");
    assert!(std::fs::read(braid.path("in.pcap")).expect("readable") == before);
}

#[test]
fn a_run_and_a_chain_are_two_things() {
    let braid = Braid::new();
    for command in ["trace udp", "sets"] {
        let refused = |rest: &str| braid.fails(2, &format!("{command} {rest}"));
        assert!(refused("--in gen:campus?packets=10").contains("no chain for them to go through"));
        assert!(
            refused("--nf nat --in gen:campus?packets=10 --control a.sock")
                .contains("--control names a run, which has its own")
        );
        for option in
            ["--workers 2", "--batch 7", "--in-order", "--pages never", "--ports 9", "--nic mlx5", "--set a=1"]
        {
            let said = refused(&format!("--control a.sock {option}"));
            assert!(said.contains("has no effect on a run that is queried"), "{said}");
        }
    }
    for option in ["--batch 3", "--gather-us 50", "--pages never", "--in-order", "--balance"] {
        assert!(braid.fails(2, &format!("check-rss --nf nat {option}")).contains("has no effect"), "{option}");
    }
    assert!(braid.fails(2, "check-rss --fields ip.src --workers 2").contains("--workers has no effect"));
    assert!(braid.fails(2, "sets --end --control a.sock").contains("sets of a run that a filter names"));
    assert!(braid.fails(2, "sets --end --nf nat --in gen:campus --filter udp").contains("cannot be used with"));
}

#[test]
fn interfaces_on_the_command_line_take_the_place_of_what_a_plan_says_of_captures() {
    let braid = Braid::new();
    let of_captures = "time = \"capture\"\nin_order = true\n[input]\nfrom = [\"a.pcap\"]\nsplit = \"inside\"\ninside = [\"10.0.0.0/8\"]";
    braid.write("both.toml", &format!("{of_captures}\n[[nf]]\nfunction = \"nat\"\n"));
    let printed = braid.fails(3, "run both.toml --port nowhere0 --port nowhere1");
    assert!(printed.contains("nowhere0: there is no such interface"), "{printed}");
    let printed = braid.fails(2, "run both.toml --port nowhere0 --port nowhere1 --in-order");
    assert!(printed.contains("leave `in_order` out"), "{printed}");
}

#[test]
fn ports_that_are_interfaces_contradict_inputs_outputs_and_other_clocks() {
    let braid = Braid::new();
    let check = |text: &str, what: &str, help: &str| {
        braid.write("live.toml", &format!("{text}\n[[port]]\ndevice = \"m0\"\n[[nf]]\nfunction = \"forward\"\n"));
        let printed = braid.fails(2, "plan live.toml").replace('\n', " ");
        assert!(printed.contains(what) && printed.contains(help), "{printed}");
    };
    check("ports = 3", "1 interface is named, but ports = 3", "leave `ports` out");
    check("time = \"capture\"", "the time is the machine's", "time = \"live\"");
    check("[input]\nfrom = [\"a.pcap\"]", "no input and no output", "leave out `from`");
    check(
        "[input]\nsplit = \"inside\"",
        "`split` says by which port packets of a capture come in",
        "leave `split` out",
    );
    check("[input]\ninside = [\"10.0.0.0/8\"]", "`inside` says by which port", "leave `inside` out (--inside)");
    check("[[port]]\ndevice = \"m0\"", "two ports are the interface `m0`", "an interface of its own");
    check("[[port]]\ndevice = \"xdp:m1\"", "names no port", "af_xdp, af_packet");
    let memif = |ids: [&str; 2]| ids.map(|id| format!("[[port]]\ndevice = \"memif:/run/m.sock?{id}\"\n")).concat();
    check(&memif(["id=1", "id=1"]), "two ports are the interface", "an interface of its own");
    check(&memif(["role=server", "role=server&id=1"]), "two ports are the interface", "an interface of its own");
    braid.write("live.toml", &format!("{}[[nf]]\nfunction = \"forward\"\n", memif(["id=0", "id=1"])));
    braid.ok("plan live.toml");
    braid.write("live.toml", "[[port]]\ndevice = \"m0\"\n[[nf]]\nfunction = \"nat\"\n");
    let printed = braid.fails(2, "plan live.toml");
    assert!(printed.contains("live.toml:2:10: the chain has an inside and an outside"), "{printed}");
    assert!(printed.contains("name 2 interfaces, that of the inside first"), "{printed}");
}

#[test]
fn a_plan_is_not_explained_whose_input_is_none() {
    let braid = Braid::new();
    let check = |input: &str, what: &str| {
        braid.write("plan.toml", &format!("[input]\nfrom = [{input}]\n[[nf]]\nfunction = \"forward\"\n"));
        let printed = braid.fails(2, "plan plan.toml");
        assert!(printed.contains(&format!("plan.toml:2:9: {what}")), "{printed}");
    };
    check("\"gen:campsu\"", "there is no traffic profile `campsu`");
    check("\"gen:campus?packts=4\"", "generated traffic has no key `packts`");
    check("\"gen:campus\", \"a.pcap\"", "generated traffic cannot be mixed with other inputs");
}

#[test]
fn a_plan_is_not_explained_whose_packets_could_not_be_written() {
    let braid = Braid::new();
    let check = |head: &str, to: &str, what: &str| {
        let nf = "[[nf]]\nfunction = \"forward\"";
        braid.write("plan.toml", &format!("{head}\n[output]\nto = [{to}]\n{nf}\n"));
        let (explained, run) = (braid.fails(2, "plan plan.toml"), braid.fails(2, "run plan.toml --in gen:campus"));
        assert!(explained.contains("plan.toml:3:7: ") && explained.contains(what), "{explained}");
        assert_eq!(explained, run);
    };
    check("", "\"out.txt\"", "does not say the format");
    check("", "\"0=a.pcap\", \"0=b.pcap\"", "number them from 0 without gaps");
    check("", "\"a.pcap\", \"a.pcap\"", "written twice");
    check("ports = 2", "\"a.pcap\", \"b.pcap\", \"c.pcap\"", "the plan has 2 ports, and for them it names 3 files");
    braid.write("plan.toml", "ports = 2\n[input]\nfrom = [\"a\", \"b\", \"c\"]\n[[nf]]\nfunction = \"forward\"\n");
    assert!(braid.fails(2, "plan plan.toml").contains("plan.toml:1:9: the input comes in by 3 ports"));
}

#[test]
fn a_plan_for_which_there_is_no_address_space_is_refused_as_a_plan() {
    let braid = Braid::new();
    for command in ["run", "certify"] {
        let line = format!("ulimit -v 700000; exec {} {command} --nf nat --sets 8000000", env!("CARGO_BIN_EXE_braid"));
        let mut shell = std::process::Command::new("sh");
        let shell = shell.args(["-c", &format!("{line} --in 'gen:campus?packets=10'")]).current_dir(braid.path(""));
        let output = shell.output().expect("a shell");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("cannot map") && said.contains("(--sets)"), "{command}: {said}");
        assert_eq!(output.status.code(), Some(2), "{command}: {said}");
    }
}

#[test]
fn what_was_named_where_functions_are_is_recognized() {
    let braid = Braid::new();
    let input = "--in gen:uniform?packets=10";
    for (option, line) in [
        ("--nf", format!("run {input} --nf examples/plan.toml")),
        ("--chain", "bench --chain plan.toml".to_owned()),
        ("--chain", "bench --chain nat+plan.toml".to_owned()),
    ] {
        let said = braid.fails(2, &line);
        assert!(said.contains(&format!("is a plan file, and {option} names functions")), "{said}");
        assert!(said.contains(&format!("leave {option} out, and write the file alone")), "{said}");
    }
    for line in [format!("run {input} --nf nat,"), "bench --chain forward+".to_owned(), "bench --chain ,nat".to_owned()]
    {
        let said = braid.fails(2, &line);
        assert!(said.contains("is empty") && !said.contains("possible are"), "{said}");
    }
}

#[test]
fn what_is_repeated_of_a_plan_steers_no_terminal() {
    let braid = Braid::new();
    braid.write("plan.toml", "[[nf]]\nfunction = \"nat\"\nname = \"a\\u001b[31mb\"\n");
    let said = braid.fails(2, "plan plan.toml");
    assert!(said.contains("plan.toml:3:8: `a\\u{1b}[31mb` is no name") && !said.contains('\u{1b}'), "{said}");
}

#[test]
fn a_thread_that_cannot_be_made_is_told_without_a_panic() {
    let braid = Braid::new();
    // A stack for which no machine has room.
    let mut run = braid.command("run --nf forward --in gen:campus?packets=10 -w 1");
    let output = run.env("RUST_MIN_STACK", (1u64 << 62).to_string()).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("a thread for a worker cannot be made") && said.contains("fewer workers"), "{said}");
}

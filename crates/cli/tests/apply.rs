//! A chain changed while packets go through it: by `braid apply` and by SIGHUP.

mod support;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

use serde_json::Value;
use support::running::Running;
use support::{Braid, conserved};

const TRAFFIC: &str = "--in gen:campus?packets=4000000000&flows=300&seed=5 --workers 2 --time live";
const FIREWALL: &str = "[[nf]]\nfunction = \"firewall\"\n";
/// A function without packet sets, which goes with any number of workers.
const FORWARD: &str = "[[nf]]\nfunction = \"forward\"\n";
const COUNTER: &str = "[[nf]]\nfunction = \"flow_counter\"\nconfig = { symmetric = true }\n";
const POLICED: &str = "[[nf]]\nfunction = \"policer\"\n[nf.config]\nbytes_per_s = 1\nburst_bytes = 100\n";

fn names(list: &Value) -> Vec<&str> {
    list.as_array().expect("a list").iter().filter_map(Value::as_str).collect()
}

#[test]
fn a_functions_configuration_changes_and_its_state_stays() {
    let braid = Braid::new();
    braid.write("plan.toml", FIREWALL);
    let mut run = Running::start(&braid, &format!("plan.toml {TRAFFIC}"));
    let before = run.until("sets", |stats| stats["sets"]["live"].as_u64() > Some(50));
    // Nothing new may come in or go out any more; what is there goes on.
    braid.write("closed.toml", "[[nf]]\nfunction = \"firewall\"\nconfig = { outbound = \"deny\", inbound = \"deny\", connections_max = 200000 }\n");
    let applied = braid.json("apply closed.toml --control control.sock");
    assert_eq!((names(&applied["changed"]), names(&applied["kept"])), (vec!["firewall"], vec!["firewall"]));
    assert_eq!(
        names(&applied["copied"]),
        ["firewall.connections", "firewall.connections_v6"],
        "they have another size now"
    );
    let created = |stats: &Value| stats["sets"]["created"].as_u64().expect("a count");
    let now = run.until("packets", |stats| stats["packets_in"].as_u64() > before["packets_in"].as_u64());
    assert!(created(&now) >= created(&before));
    let later =
        run.until("more", |stats| stats["packets_in"].as_u64() > now["packets_in"].as_u64().map(|n| n + 10_000));
    assert_eq!(created(&later), created(&now), "no new connection");
    assert!(later["packets_out"].as_u64() > now["packets_out"].as_u64(), "the known ones go on");
    assert_eq!(later["missing"], 0);
    assert!(braid.ok("apply closed.toml --control control.sock").contains("nothing differs"));
    conserved(&run.stop());
}

/// What a rule has decided, as `braid stats` tells it.
fn decided(stats: &Value, comment: &str) -> Option<u64> {
    let found = stats["findings"]["firewall"]["found"].as_array()?;
    let rule = found.iter().find(|one| one["subject"].as_str().is_some_and(|subject| subject.contains(comment)))?;
    rule["number"].as_u64()
}

#[test]
fn what_waits_in_a_shaper_that_is_removed_goes_on_and_is_not_lost() {
    let braid = Braid::new();
    let shaper =
        "[[nf]]\nfunction = \"shaper\"\n[nf.config]\nbytes_per_s = 10000\nburst_bytes = 3000\nqueue_bytes = 60000\n";
    braid.write("shaped.toml", &format!("{shaper}{COUNTER}"));
    braid.write("plain.toml", COUNTER);
    let traffic = TRAFFIC.replace("--workers 2", "--workers 1");
    let mut run = Running::start(&braid, &format!("shaped.toml {traffic}"));
    let waited = |stats: &Value| stats["dropped"]["waits_for_credit"].as_u64();
    run.until("packets wait", |stats| waited(stats) > Some(1000));
    let applied = braid.json("apply plain.toml --control control.sock");
    assert_eq!(names(&applied["removed"]), ["shaper"]);
    assert!(applied["released"].as_u64() > Some(0), "{applied}");
    let now = run.until("figures", |_| true);
    assert_eq!(now["dropped_elsewhere"]["shaper"]["waits_for_credit"].as_u64(), waited(&now));
    assert_eq!((now["consumed"].as_u64(), now["packets_copied"].as_u64()), (waited(&now), waited(&now)), "{now}");
    assert_eq!(now["consumed_elsewhere"]["shaper"].as_u64(), waited(&now));
    let report = run.stop();
    assert_eq!((report["consumed"].as_u64(), report["packets_copied"].as_u64()), (waited(&report), waited(&report)));
    conserved(&report);
}

#[test]
fn a_rule_file_that_has_changed_is_read_again_and_rules_that_have_not_count_on() {
    let braid = Braid::new();
    let rules = |first: &str| {
        format!(
            "table inet filter {{\n{first}\nchain forward {{ type filter hook forward priority 0; policy drop;\n\
             iif 0 counter accept comment \"out\"\n}} }}\n"
        )
    };
    braid.write("edge.nft", &rules(""));
    braid.write("plan.toml", "[[nf]]\nfunction = \"firewall\"\nconfig = { rules_file = \"edge.nft\" }\n");
    let mut run = Running::start(&braid, &format!("plan.toml {TRAFFIC}"));
    let before = run.until("rule", |stats| decided(stats, "(out)") > Some(50));
    assert!(braid.ok("apply plan.toml --control control.sock").contains("nothing differs"));
    braid.write(
        "edge.nft",
        &rules("chain more { tcp dport 22 counter drop comment \"more\"; }").replace("iif 0", "jump more\niif 0"),
    );
    let applied = braid.json("apply plan.toml --control control.sock");
    assert_eq!(names(&applied["changed"]), ["firewall"]);
    let after = run.until("the new rule", |stats| decided(stats, "(more)").is_some());
    assert!(decided(&after, "(out)") >= decided(&before, "(out)"), "{:?}", after["findings"]);
    // A file that it includes is a part of it.
    braid.write("more.nft", "iif 1 tcp dport 23 counter drop comment \"telnet\"\n");
    braid.write("edge.nft", &rules("").replace("iif 0", "include \"mor?.nft\"\niif 0"));
    braid.ok("apply plan.toml --control control.sock");
    run.until("the included rule", |stats| decided(stats, "(telnet)").is_some());
    assert!(braid.ok("apply plan.toml --control control.sock").contains("nothing differs"));
    braid.write("more.nft", "iif 1 tcp dport 23 counter drop comment \"more telnet\"\n");
    assert_eq!(names(&braid.json("apply plan.toml --control control.sock")["changed"]), ["firewall"]);
    conserved(&run.stop());
}

#[test]
fn a_table_that_cannot_be_smaller_is_named_by_its_key() {
    let braid = Braid::new();
    let plan = |most: u32| format!("{FIREWALL}[nf.config]\nudp_s = 100\nconnections_max = {most}\n");
    braid.write("plan.toml", &plan(20_000));
    let mut run = Running::start(&braid, &format!("plan.toml {TRAFFIC}"));
    run.until("sets", |stats| stats["sets"]["live"].as_u64() > Some(50));
    braid.write("small.toml", &plan(5));
    let said = braid.fails(1, "apply small.toml --control control.sock");
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in
        ["small.toml:5:", "firewall.connections", "write a larger `connections_max`, so that there is room for"]
    {
        assert!(said.contains(words), "{words}: {said}");
    }
    conserved(&run.stop());
}

/// Functions with a change that their state survives, and one that it does not.
const CHANGES: [(&str, &str, &str); 10] = [
    ("port_scan", "answer_ms = 500", "false_alarms = 0.1"),
    ("dns_tunnel", "orphans = 20", ""),
    ("sidejacking", "by_agent = false", ""),
    ("protocol_classifier", "idle_timeout_s = 60", ""),
    ("asset_monitor", "refresh_ms = 2000", ""),
    ("abacus", "idle_timeout_s = 60", "subscribers = [\"10.9.0.0/16\"]"),
    ("heavy_hitters", "threshold = 5", "columns = 60"),
    ("connection_limiter", "connections_max = 5", "by = \"destination\""),
    ("shaper", "bytes_per_s = 5000000", "queue_packets = 10"),
    (
        "router",
        "icmp_errors_per_s = 5\nneighbour_lifetime_s = 9",
        "neighbour = [{ address = \"10.0.0.9\", mac = \"02:00:00:00:00:09\", port = 0 }]",
    ),
];

#[test]
fn a_nat_learns_of_more_networks_and_forgets_none() {
    let braid = Braid::new();
    let nat =
        |vlans: &str| format!("[[nf]]\nfunction = \"nat\"\n[nf.config]\nnetworks = \"by_vlan\"\nvlans = [{vlans}]\n");
    braid.write("plan.toml", &nat("\"untagged\", \"100.1-9\""));
    let mut run = Running::start(&braid, &format!("plan.toml {TRAFFIC}"));
    let before = run.until("sets", |stats| stats["sets"]["live"].as_u64() > Some(50));
    braid.write("more.toml", &nat("\"untagged\", \"100.1-9\", 10, \"200.1-9\""));
    let applied = braid.json("apply more.toml --control control.sock");
    assert_eq!(names(&applied["kept"]), ["nat"], "{applied}");
    let after = run.until("more", |stats| stats["packets_in"].as_u64() > before["packets_in"].as_u64());
    assert!(after["sets"]["live"].as_u64() >= before["sets"]["live"].as_u64(), "sets stay");
    for fewer in ["\"untagged\"", "\"200.1-9\", \"100.1-9\", \"untagged\", 10"] {
        braid.write("fewer.toml", &nat(fewer));
        let said = braid.fails(1, "apply fewer.toml --control control.sock");
        assert!(said.contains("`vlans` (but for more)"), "{said}");
    }
    conserved(&run.stop());
}

#[test]
fn detectors_limiters_and_the_router_go_on_with_their_state() {
    for (function, survives, ends) in CHANGES {
        let braid = Braid::new();
        let plan = |config: &str| format!("[[nf]]\nfunction = \"{function}\"\n[nf.config]\n{config}\n");
        braid.write("plan.toml", &plan(""));
        let mut run = Running::start(&braid, &format!("plan.toml {TRAFFIC}"));
        run.until("packets", |stats| stats["packets_in"].as_u64() > Some(1000));
        braid.write("survives.toml", &plan(survives));
        let applied = braid.json("apply survives.toml --control control.sock");
        assert_eq!(names(&applied["kept"]), [function], "{applied}");
        if !ends.is_empty() {
            braid.write("ends.toml", &plan(&format!("{survives}\n{ends}")));
            let said = braid.fails(1, "apply ends.toml --control control.sock");
            assert!(said.contains(" stay"), "{function}: {said}");
        }
        conserved(&run.stop());
    }
}

#[test]
fn a_router_takes_a_long_list_of_routes() {
    let braid = Braid::new();
    braid.write("plan.toml", "[[nf]]\nfunction = \"router\"\n");
    let run = Running::start(&braid, &format!("plan.toml {TRAFFIC}"));
    let route = |number: u32| {
        let (high, low) = (number / 256, number % 256);
        format!("{{ to = \"20.{high}.{low}.0/24\", refuse = \"blackhole\" }},\n")
    };
    let mut plan = "[[nf]]\nfunction = \"router\"\n[nf.config]\nroute = [\n".to_owned();
    plan.extend((0..24_000).map(route));
    plan.push_str("]\n");
    assert!(plan.len() > 1 << 20, "more than a mebibyte, as one control socket took it once");
    braid.write("long.toml", &plan);
    assert_eq!(names(&braid.json("apply long.toml --control control.sock")["changed"]), ["router"]);
    conserved(&run.stop());
}

#[test]
fn functions_come_and_go_and_the_others_keep_their_sets() {
    let braid = Braid::new();
    braid.write("plan.toml", COUNTER);
    let mut run = Running::start(&braid, &format!("plan.toml {TRAFFIC}"));
    run.until("sets", |stats| stats["sets"]["live"].as_u64() > Some(50));
    let packets = |run: &mut Running<'_>| {
        let stats = run.until("packets", |_| true);
        assert_eq!(stats["missing"], 0);
        stats["functions"][0]["packets"].as_u64().expect("a count")
    };
    let earlier = packets(&mut run);
    braid.write("more.toml", &format!("{COUNTER}{FIREWALL}[[nf]]\nfunction = \"flow_counter\"\nname = \"second\"\nconfig = {{ symmetric = true }}\n"));
    let applied = braid.json("apply more.toml --control control.sock");
    assert_eq!(names(&applied["added"]), ["firewall", "second"]);
    run.until("the new functions see packets", |stats| stats["functions"][2]["packets"].as_u64() > Some(1000));
    assert!(packets(&mut run) > earlier, "what the first has counted is not forgotten");
    // A set that has had no packet since knows the first function only.
    let listing = braid.json("sets --control control.sock --limit 1000");
    let sets = listing["sets"].as_array().expect("sets");
    let functions = |set: &serde_json::Value| set["functions"].as_array().map(Vec::len);
    assert!(sets.iter().any(|set| functions(set) == Some(3)), "one record for all three: {listing}");
    let applied = braid.json("apply plan.toml --control control.sock");
    assert_eq!(names(&applied["removed"]), ["firewall", "second"]);
    assert_eq!(run.until("packets", |_| true)["missing"], 0);
    conserved(&run.stop());
}

#[test]
fn what_cannot_change_is_refused_with_its_reason_and_changes_nothing() {
    let braid = Braid::new();
    braid.write("plan.toml", "[[nf]]\nfunction = \"nat\"\n");
    let mut run = Running::start(&braid, &format!("plan.toml {TRAFFIC}"));
    run.until("sets", |stats| stats["sets"]["live"].as_u64() > Some(50));
    let fails = |code, name: &str, text: &str, part: &str| {
        braid.write(name, text);
        let said = braid.fails(code, &format!("apply {name} --control control.sock"));
        assert!(said.contains(part), "{text}: {said}");
    };
    let refused = |name: &str, text: &str, part: &str| fails(1, name, text, part);
    refused("a.toml", "[[nf]]\nfunction = \"nat\"\nconfig = { first_port = 2000 }\n", "`first_port`");
    refused("j.toml", "steer_udp_ports = true\n[[nf]]\nfunction = \"nat\"\n", "`steer_udp_ports` cannot change");
    refused("c.toml", "[[nf]]\nfunction = \"firewall\"\nname = \"nat\"\n", "cannot become a firewall");
    // No run would take these.
    fails(2, "d.toml", "[[nf]]\nfunction = \"fierwall\"\n", "d.toml:2:12: there is no function");
    fails(2, "e.toml", "nonsense", "e.toml:1:");
    fails(2, "i.toml", "[[nf]]\nfunction = \"nat\"\nconfig = { udp_s = 0 }\n", "i.toml:3:");
    assert!(braid.fails(2, "upgrade e.toml --control control.sock").contains("e.toml:1:"));
    let before = "[[nf]]\nfunction = \"policer\"\n[[nf]]\nfunction = \"nat\"\n";
    refused("f.toml", &format!("[chain]\norder = \"same\"\n{before}"), "steered");
    let both = "[[nf]]\nfunction = \"firewall\"\n";
    refused("h.toml", both, "port.src, port.dst (both directions alike), UDP without its ports instead of ip.src");
    refused("g.toml", before, "another order");
    let stats = run.until("packets", |_| true);
    assert_eq!((stats["functions"].as_array().map(Vec::len), stats["missing"].as_i64()), (Some(1), Some(0)));
    assert!(braid.ok("apply plan.toml --control control.sock").contains("nothing differs"));
    conserved(&run.stop());
}

#[test]
fn which_packets_meet_a_function_and_what_full_tables_do_change_too() {
    let braid = Braid::new();
    let policer = |more: &str| format!("[[nf]]\nfunction = \"policer\"\n{more}\n");
    let plan = |more: &str| format!("{COUNTER}{}", policer(more));
    braid.write("plan.toml", &plan(""));
    let mut run = Running::start(&braid, &format!("plan.toml {TRAFFIC}"));
    run.until("sets", |stats| stats["sets"]["live"].as_u64() > Some(50));
    for more in ["when = { in = [0] }", "full = \"evict_oldest\"", "when = { in = [1] }\nfull = \"evict_oldest\"", ""] {
        braid.write("next.toml", &plan(more));
        let applied = braid.json("apply next.toml --control control.sock");
        assert_eq!(names(&applied["changed"]), ["policer"], "{more}");
        assert!(braid.ok("apply next.toml --control control.sock").contains("nothing differs"), "{more}");
    }
    braid.write("next.toml", &format!("[chain]\noutside = [0]\n{}", plan("")));
    let said = braid.fails(1, "apply next.toml --control control.sock");
    assert!(said.contains("another order"), "{said}");
    conserved(&run.stop());
}

#[test]
fn functions_that_have_one_record_cannot_part_while_packets_go_through() {
    let braid = Braid::new();
    let plan = |more: &str| format!("[[nf]]\nfunction = \"flow_counter\"\n[[nf]]\nfunction = \"rate_limiter\"\n{more}");
    braid.write("plan.toml", &plan(""));
    let mut run = Running::start(&braid, &format!("plan.toml {TRAFFIC}"));
    run.until("sets", |stats| stats["sets"]["live"].as_u64() > Some(50));
    braid.write("next.toml", &plan("full = \"evict_oldest\"\n"));
    let said = braid.fails(1, "apply next.toml --control control.sock");
    assert!(said.contains("it would keep its packet sets in one record with `rate_limiter` no more"), "{said}");
    conserved(&run.stop());
}

#[test]
fn a_service_reads_its_plan_again_on_sighup() {
    let braid = Braid::new();
    braid.write("plan.toml", COUNTER);
    let mut run = Running::start(&braid, &format!("--config plan.toml {TRAFFIC}"));
    braid.write("plan.toml", &format!("{COUNTER}{FIREWALL}"));
    run.signal("-HUP");
    run.until("the firewall is there", |stats| stats["functions"].as_array().map(Vec::len) == Some(2));
    braid.write("plan.toml", POLICED);
    run.signal("-HUP");
    std::thread::sleep(std::time::Duration::from_millis(300));
    let stats = run.until("packets", |_| true);
    assert_eq!(stats["functions"].as_array().map(Vec::len), Some(2), "a refused plan changes nothing: {stats}");
    conserved(&run.stop());
}

/// The configuration of a function, as its run has it.
fn configured(run: &Running<'_>, function: &str, key: &str) -> Option<i64> {
    let mut socket = UnixStream::connect(run.socket()).expect("the run answers");
    writeln!(socket, "{{\"ask\":\"configuration\",\"function\":\"{function}\"}}").expect("it is asked");
    let mut line = String::new();
    BufReader::new(socket).read_line(&mut line).expect("an answer");
    serde_json::from_str::<Value>(&line).expect("JSON")["ok"][0]["config"][key].as_i64()
}

/// In one order for all packets the firewall drops all answers.
#[test]
fn a_plan_that_is_possible_but_hardly_meant_is_applied_with_the_notes_of_a_start() {
    let braid = Braid::new();
    let plan = |first: &str| format!("[chain]\norder = \"same\"\n{first}[[nf]]\nfunction = \"nat\"\n");
    // It has the firewall's sets, so nothing is steered otherwise.
    let counter = "[[nf]]\nfunction = \"flow_counter\"\n[nf.packet_set]\n\
        fields = [\"ip.src\", \"ip.dst\", \"port.src\", \"port.dst\", \"ip.proto\"]\nsymmetric = true\n";
    braid.write("plan.toml", &plan(counter));
    let mut run = Running::start(&braid, &format!("--config plan.toml {TRAFFIC}"));
    let same = braid.json("apply plan.toml --control control.sock");
    assert!(!same["notes"].to_string().contains("drops the answers"), "{same}");
    braid.write("torn.toml", &plan(FIREWALL));
    let applied = braid.json("apply torn.toml --control control.sock");
    assert_eq!(names(&applied["added"]), ["firewall"]);
    let why = "because `nat` changes them, and drops the answers; write order = \"mirrored\"";
    let has_note = |applied: &Value| names(&applied["notes"]).iter().any(|note| note.contains(why));
    assert!(has_note(&applied), "{applied}");
    assert!(has_note(&braid.json("apply torn.toml --control control.sock")), "and if nothing differs");
    braid.ok("apply plan.toml --control control.sock");
    // The log of a service has it too.
    braid.write("plan.toml", &plan(FIREWALL));
    run.signal("-HUP");
    run.until("the firewall is there", |stats| stats["functions"][0]["name"] == "firewall");
    let (report, said) = run.stop_and_hear();
    conserved(&report);
    assert!(said.contains(why), "{said}");
}

#[test]
fn a_plan_that_is_read_again_stands_under_the_command_line_of_the_run() {
    let braid = Braid::new();
    let plan = |workers: u32, more: &str| {
        format!(
            "workers = {workers}\nsets = 300000\ntime = \"capture\"\n[input]\nfrom = [\"no.pcap\"]\n\
             [chain]\norder = \"same\"\n[[nf]]\nfunction = \"nat\"\nconfig = {{ udp_s = 100 }}\n{more}"
        )
    };
    let count = |stats: &Value, of: &str| stats[of].as_array().map(Vec::len);
    braid.write("plan.toml", &plan(1, ""));
    let mut run = Running::start(&braid, &format!("--config plan.toml {TRAFFIC} --sets 200000 --set nat.udp_s=50"));
    assert_eq!(configured(&run, "nat", "udp_s"), Some(50));
    braid.write("plan.toml", &plan(1, FORWARD));
    run.signal("-HUP");
    run.until("the second function is there", |stats| count(stats, "functions") == Some(2));
    assert_eq!(configured(&run, "nat", "udp_s"), Some(50), "--set counts as before");
    // The text of a plan that is applied has its way, except with what cannot change; and it is said what that means.
    let applied = braid.json("apply plan.toml --control control.sock");
    let notes = names(&applied["notes"]);
    let begins =
        ["`workers` stays 2,", "`time` stays live,", "`input.from` stays gen:", "`--sets 200000`,", "`--set nat."];
    assert_eq!(notes.len(), begins.len(), "{notes:?}");
    assert!(notes.iter().zip(begins).all(|(note, begin)| note.starts_with(begin)), "{notes:?}");
    assert_eq!((&applied["sets"], configured(&run, "nat", "udp_s")), (&serde_json::json!([200000, 300000]), Some(100)));
    // A plan with which another process goes on may have other workers, which then stay.
    braid.write("other.toml", &plan(1, FORWARD).replace("time = \"capture\"\n[input]\nfrom = [\"no.pcap\"]\n", ""));
    let stats = run.upgrade("other.toml");
    assert_eq!((count(&stats, "workers"), configured(&run, "nat", "udp_s")), (Some(1), Some(100)));
    braid.write("plan.toml", &plan(3, ""));
    run.signal("-HUP");
    let stats = run.until("the second function is gone", |stats| count(stats, "functions") == Some(1));
    assert_eq!((count(&stats, "workers"), configured(&run, "nat", "udp_s")), (Some(1), Some(50)));
    conserved(&run.stop());
}

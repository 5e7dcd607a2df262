//! Arguments at and beyond their bounds: each is refused before anything is begun or written, with the value and what to write instead.

mod support;

use braid_testkit::skip::skip;
use support::Braid;

/// Refused as a mistake of the command line, with nothing on standard output.
#[track_caller]
fn refused(braid: &Braid, line: &str, part: &str) {
    let output = braid.run(line);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "braid {line}\n{said}");
    assert!(said.contains(part), "braid {line}\n{said}");
    assert!(output.stdout.is_empty(), "braid {line}\n{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn numbers_out_of_range_are_refused_before_anything_is_said() {
    let braid = Braid::new();
    let bench = "bench --quick --chain forward --flows 10 --workers 1";
    for (line, part) in [
        ("bench --workers 0", "write a number from 1 to 256"),
        ("bench --workers 9223372036854775807", "write a number from 1 to 256"),
        ("bench --flows 0", "write a number from 1 to 134217728"),
        ("bench --flows 18446744073709551615", "write a number from 1 to 134217728"),
        ("bench --packets 0", "write a number from 0.000001 to 1000000"),
        ("bench --packets nan", "write a number from 0.000001 to 1000000"),
        ("bench --packets 1e300", "write a number from 0.000001 to 1000000"),
        ("bench --distribution random", "hardware, software, both"),
        ("certify --nf forward --in gen:campus --runs 0", "write a number, at least 1"),
        ("certify --nf forward --in gen:campus --packets 0", "write a number, at least 1"),
        ("trace tcp --nf forward --in gen:campus -n 0", "write a number from 1 to 10000"),
        ("trace tcp --nf forward --in gen:campus -n 10001", "write a number from 1 to 10000"),
        ("trace tcp --nf forward --in gen:campus --wait soon", "`soon` is no time"),
        ("profile --nf nat --in gen:campus --packets 0", "write a number, at least 1"),
        ("profile --nf nat --in gen:campus --virtual 257", "write a number from 1 to 256"),
        ("model --nf nat --in gen:campus --packets 0", "write a number, at least 1"),
        ("model --nf nat --in gen:campus --repeats 0", "write a number from 1 to 1000"),
        ("model --nf nat --in gen:campus --measured 0", "write a number from 1 to 256"),
        ("model --nf nat --in gen:campus --workers 0", "0 workers cannot be modelled"),
        ("tune --nf anti_ddos --in gen:campus --virtual 0", "write a number from 1 to 256"),
        ("study bridge --workers 0", "write a number from 1 to 256"),
        ("study bridge --packets 0", "write a number, at least 1"),
        ("study bridge --repeats 0", "write a number from 1 to 1000"),
        ("check-rss --nf nat --symmetric", "cannot be used with"),
    ] {
        refused(&braid, line, part);
    }
    for what in ["latency", "soak"] {
        refused(&braid, &format!("{bench} --what {what} --duration 0s"), "--duration above 0");
        refused(&braid, &format!("{bench} --what {what} --duration soon"), "`soon` is no time");
        refused(&braid, &format!("{bench} --what {what} --duration -5s"), "`-5s` is no time");
    }
    refused(&braid, "run --nf forward --in gen:campus --duration -5s", "`-5s` is no time");
    refused(&braid, "trace tcp --nf forward --in gen:campus --wait -1m", "`-1m` is no time");
}

#[test]
fn numbers_below_zero_are_values_that_do_not_fit_and_no_unknown_options() {
    let braid = Braid::new();
    for (line, part) in [
        ("bench --flows -1", "'-1' for '--flows"),
        ("bench --packets -1", "'-1' for '--packets"),
        ("certify --nf forward --in gen:campus --seed -1", "'-1' for '--seed"),
        ("sets --nf forward --in gen:campus --limit -1", "'-1' for '--limit"),
        ("trace tcp --nf forward --in gen:campus -n -1", "'-1' for '--count"),
        ("plan --nf forward --sets -1", "sets = -1 is out of range"),
        ("plan --nf forward --workers -1", "workers = -1 is out of range"),
    ] {
        refused(&braid, line, part);
    }
}

#[test]
fn a_table_that_gets_no_line_has_no_head() {
    let braid = Braid::new();
    refused(&braid, "bench --quick --chain nothing --flows 10 --packets 0.01 --workers 1", "no function `nothing`");
    let said = braid.ok("bench --quick --chain forward --flows 10 --packets 0.01 --workers 1");
    let line = |part: &str| said.lines().position(|line| line.contains(part)).unwrap_or_else(|| panic!("{said}"));
    assert_eq!(line("Mpps") + 1, line("forward "), "{said}");
}

#[test]
fn the_last_seed_is_followed_by_the_first() {
    let braid = Braid::new();
    let certificate =
        braid.json(&format!("certify --nf forward --in gen:campus?packets=50 --runs 3 --seed {}", u64::MAX));
    let runs = certificate["runs"].as_array().expect("runs");
    let seeds: Vec<_> = runs.iter().map(|run| run["seed"].as_u64()).collect();
    assert_eq!(seeds, [Some(u64::MAX), Some(0), Some(1)]);
}

#[test]
fn a_device_is_never_replaced_by_a_state_and_never_read_without_end() {
    let braid = Braid::new();
    let run = "run --nf nat --in gen:campus?packets=50";
    let made = std::process::Command::new("mkfifo").arg(braid.path("pipe")).status().expect("mkfifo");
    assert!(made.success());
    let said = braid.fails(3, &format!("{run} --snapshot pipe"));
    assert!(said.contains("something is there that is no file"), "{said}");
    assert!(!braid.path("pipe").is_file());
    let said = braid.fails(3, &format!("{run} --restore /dev/zero"));
    assert!(said.contains("not a snapshot"), "{said}");
}

/// Bytes that this program may use, as it says itself.
fn available(braid: &Braid) -> u64 {
    braid.json("plan --nf forward")["memory"]["available_bytes"].as_u64().expect("a number")
}

#[test]
fn tables_beyond_the_memory_are_refused_at_once_with_what_to_lower() {
    let braid = Braid::new();
    let explained = braid.json("plan --nf flow_counter --sets 100000");
    assert!(explained["memory"]["sets_bytes"].as_u64() > Some(100_000 * 64), "{explained}");
    let memory = &explained["memory"];
    let bytes = |key: &str| memory[key].as_u64().unwrap_or_else(|| panic!("no `{key}` in {explained}"));
    assert!(
        2 * bytes("sets_v6_bytes") >= bytes("sets_bytes") && bytes("sets_v6_bytes") < bytes("sets_bytes"),
        "{memory}"
    );
    assert!(bytes("buffers_bytes") > 8192 * 2048, "{memory}");
    let said = braid.ok("plan --nf flow_counter --sets 100000");
    for part in ["used by IPv6 alone", "packet buffers", "not counted: what functions make of their configuration"] {
        assert!(said.contains(part), "`{part}` is missing in\n{said}");
    }
    let available = available(&braid);
    // At least 64 bytes a set, and 90 a host.
    let (sets, hosts) = (available / 64, available / 90);
    if sets > 1 << 30 || hosts > 1 << 31 {
        let reason = format!("{available} bytes of memory, more than the largest tables take");
        return skip("tables_beyond_the_memory_are_refused_at_once_with_what_to_lower", &reason);
    }
    for command in ["plan", "run --in gen:campus"] {
        refused(&braid, &format!("{command} --nf flow_counter --sets {sets}"), "write a smaller `sets`");
        refused(&braid, &format!("{command} --nf asset_monitor --set hosts_max={hosts}"), "`hosts_max`");
    }
    let by_ipv4 = available * 3 / 4 * 100_000 / (bytes("sets_bytes") - bytes("sets_v6_bytes"));
    refused(&braid, &format!("plan --nf flow_counter --sets {by_ipv4}"), "no key leaves that out");
    braid.write("plan.toml", &format!("workers = 2\nsets = {sets}\n[[nf]]\nfunction = \"flow_counter\"\n"));
    refused(&braid, "plan plan.toml", "plan.toml:2:8");
    // Each fits alone, both together do not.
    let half = format!("hosts_max = {}", hosts * 6 / 10);
    let monitor =
        |name: &str| format!("[[nf]]\nfunction = \"asset_monitor\"\nname = \"{name}\"\n[nf.config]\n{half}\n");
    braid.write("two.toml", &format!("sets = 1000\n{}{}", monitor("one"), monitor("two")));
    refused(&braid, "plan two.toml", "with what was made before it");
}

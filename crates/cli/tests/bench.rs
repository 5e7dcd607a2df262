//! `braid bench` in its short form: nothing is lost, and every row is whole.

mod support;

use support::Braid;

#[test]
fn every_chain_is_measured_without_loss() {
    let braid = Braid::new();
    let json = braid.json("bench --quick --flows 1000 --packets 0.02 --workers 1,2 --distribution both");
    let rows = json["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 9 * 2 * 2, "nine chains, two numbers of workers, two distributions");
    for row in rows {
        assert_eq!(row["lost"], 0, "{row}");
        assert!(row["mpps"].as_f64().unwrap() > 0.0 && row["ns_per_packet"].as_f64().unwrap() > 0.0, "{row}");
        assert_eq!(row["trace"], "uniform");
    }
    assert!(json["machine"]["processor"].is_string());
}

#[test]
fn what_the_machine_can_do_at_all_stands_beside_rates() {
    let braid = Braid::new();
    let json = braid.json(
        "bench --quick --what bare,rates --chain forward --flows 1000 --packets 0.02 --workers 1,2 --csv rows.csv",
    );
    let rows = json["rows"].as_array().unwrap();
    let chains: Vec<_> = rows.iter().filter_map(|row| row["chain"].as_str()).collect();
    assert_eq!(chains, ["bare loop", "bare loop", "forward", "forward"]);
    assert!(
        rows.iter().all(|row| row["mpps"].as_f64() > Some(0.0) && row["packets"].as_u64() >= Some(20_000)),
        "{json}"
    );
    assert_eq!(std::fs::read_to_string(braid.path("rows.csv")).unwrap().lines().count(), 5);
}

#[test]
fn latencies_an_ablation_and_a_soak_are_measured_without_loss() {
    let braid = Braid::new();
    let common = "--quick --flows 1000 --packets 0.02 --workers 1 --duration 200ms --csv rows.csv --plot rows.svg";
    let json = braid.json(&format!("bench --what latency,ablation,soak {common}"));
    // In so short a run memory still grows, which is its exit code's.
    let line = "bench --what soak --chain nat --chain forward --quick --flows 100 --workers 1 --duration 100ms --json";
    let of_two: serde_json::Value = serde_json::from_slice(&braid.run(line).stdout).expect("one JSON value");
    let samples = of_two["soak"].as_array().unwrap();
    let mut chains: Vec<&str> = samples.iter().filter_map(|sample| sample["chain"].as_str()).collect();
    chains.dedup();
    assert_eq!(chains, ["nat", "forward"], "{of_two}");
    let latency = json["latency"].as_array().unwrap();
    assert_eq!(latency.len(), 2 * 4, "two chains, four loads");
    for row in latency {
        assert!(row["p50_us"].as_f64() <= row["p99_us"].as_f64(), "{row}");
        assert!(row["packets"].as_u64() > Some(0) && row["lost"] == 0, "{row}");
    }
    let variants: Vec<&str> =
        json["rows"].as_array().unwrap().iter().filter_map(|row| row["variant"].as_str()).collect();
    assert_eq!(variants.len(), 7 + 4);
    let sets: Vec<u64> = json["rows"].as_array().unwrap().iter().filter_map(|row| row["sets"].as_u64()).collect();
    assert_eq!(sets[..7], [3000, 3000, 3000, 1000, 1000, 1000, 1000], "a record for each function, or one for all");
    let last = json["soak"].as_array().unwrap().last().unwrap().clone();
    assert!(last["created"].as_u64() > Some(1000) && last["lost"] == 0 && last["dropped"] == 0, "{last}");
    for file in ["rows.csv", "rows-latency.csv", "rows-latency.svg"] {
        assert!(braid.path(file).metadata().is_ok_and(|file| file.len() > 0), "{file}");
    }
}

#[test]
fn small_tables_do_what_they_are_told_when_flows_come_and_go() {
    let braid = Braid::new();
    let run = |full: &str| {
        let args = "--quick --chain flow_counter --trace churn10 --flows 2000 --sets 1000 --packets 0.05 --workers 1";
        braid.run(&format!("bench {args} --full {full} --csv rows.csv"));
        let csv = std::fs::read_to_string(braid.path("rows.csv")).unwrap();
        let of = |name: &str| -> u64 {
            let mut lines = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
            let column = lines.next().and_then(|names| names.iter().position(|column| *column == name)).unwrap();
            lines.next().unwrap()[column].parse().unwrap()
        };
        (of("sets"), of("evicted"), of("refused"), of("lost"))
    };
    let (sets, evicted, refused, lost) = run("evict_oldest");
    assert!(sets == 1000 && evicted > 1000 && (refused, lost) == (0, 0), "{sets} {evicted} {refused} {lost}");
    let (sets, evicted, refused, _) = run("refuse");
    assert!(sets == 1000 && evicted == 0 && refused > 1000, "{sets} {evicted} {refused}");
}

/// What is wrong with the last chain is not found out behind the rows of the first.
#[test]
fn chains_and_plans_that_cannot_be_measured_are_refused_before_the_first_row() {
    let braid = Braid::new();
    let refused = |line: &str, words: &[&str]| {
        let output = braid.run(line);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && output.stdout.is_empty(), "braid {line}\n{output:?}");
        assert!(words.iter().all(|word| said.contains(word)), "braid {line}\n{said}");
    };
    let small = "--quick --flows 10 --packets 0.01 --workers 1";
    refused(&format!("bench {small} --chain forward,flow_counter+nta"), &["no function `nta`", "write `nat`"]);
    braid.write("plan.toml", "[[nf]]\nfunction = \"flow_counter\"\n[nf.config]\nsymetric = true\n");
    refused(&format!("bench plan.toml {small}"), &["plan.toml:4:1: ", "did you mean `symmetric`?"]);
    braid.write("plan.toml", "sets = 0\n[[nf]]\nfunction = \"flow_counter\"\n");
    refused("bench plan.toml --quick --flows 10 --workers 1 --what soak --duration 1s", &["plan.toml:1:8: sets = 0"]);
    refused(&format!("bench plan.toml --chain nat {small}"), &["cannot be used with"]);
}

#[test]
fn options_of_which_nothing_makes_use_are_refused() {
    let braid = Braid::new();
    for (line, option, what) in [
        ("--duration 1s", "--duration", "latency"),
        ("--duration 1s --what bare,ablation", "--duration", "latency"),
        ("--trace churn10 --what latency", "--trace", "rates"),
        ("--distribution software --what ablation", "--distribution", "rates"),
        ("--chain nat --what bare", "--chain", "rates"),
        ("--batch 32 --what ablation", "--batch", "rates"),
        ("--csv soak.csv --what soak", "--csv", "rates"),
        ("--plot steps.svg --what ablation", "--plot", "rates"),
    ] {
        let said = braid.fails(2, &format!("bench --quick --flows 10 --workers 1 {line}"));
        assert!(said.contains(&format!("{option} says nothing about what is measured here")), "{line}\n{said}");
        assert!(said.contains(&format!("add --what {what}")), "{line}\n{said}");
    }
}

#[test]
fn a_plan_is_distributed_as_it_says_and_its_name_is_one_field() {
    let braid = Braid::new();
    let plan = "distribution = \"software\"\nbalance = true\n[[nf]]\nfunction = \"flow_counter\"\n";
    braid.write("a,b.toml", plan);
    let said = braid.ok("bench a,b.toml --quick --flows 10 --packets 0.01 --workers 1 --csv rows.csv");
    assert!(said.contains("software"), "{said}");
    let csv = std::fs::read_to_string(braid.path("rows.csv")).expect("rows");
    assert!(csv.lines().nth(1).is_some_and(|row| row.starts_with("\"a,b.toml\",")), "{csv}");
}

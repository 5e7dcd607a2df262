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

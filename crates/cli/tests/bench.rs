//! `braid bench` in its short form: nothing is lost, and every row is whole.

mod support;

use support::Braid;

#[test]
fn every_chain_is_measured_without_loss() {
    let braid = Braid::new();
    let json = braid.json("bench --quick --flows 1000 --packets 0.02 --workers 1,2 --distribution both");
    let rows = json["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 8 * 2 * 2, "eight chains, two numbers of workers, two distributions");
    for row in rows {
        assert_eq!(row["lost"], 0, "{row}");
        assert!(row["mpps"].as_f64().unwrap() > 0.0 && row["ns_per_packet"].as_f64().unwrap() > 0.0, "{row}");
        assert_eq!(row["trace"], "uniform");
    }
    assert!(json["machine"]["processor"].is_string());
}

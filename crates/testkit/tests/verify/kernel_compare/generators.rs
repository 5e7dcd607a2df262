//! What generators of rule sets write of routes, the machine's own addresses and marks, against the kernel: also from addresses
//! that are not behind the port by which they come; compared is what becomes of each packet, and what each rule has counted.

use super::known::{counted, counted_by_us};
use super::rulesets::{Chance, Talk, passed};
use super::*;

/// The oracle's routes.
const NETWORKS: &str = "networks = [
    ['10.1.0.0/24', 'fd00:1::/64', '198.18.0.0/30', '2001:db8:ffff:1::/64'],
    ['0.0.0.0/0', '::/0', '198.18.0.4/30', '2001:db8:ffff:2::/64'],
]";

#[test]
fn rule_sets_of_generators_decide_as_in_the_kernel() {
    let test = "rule_sets_of_generators_decide_as_in_the_kernel";
    if skipped(test) {
        return;
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/verify/kernel_compare/rulesets/generated.nft");
    let rules = std::fs::read_to_string(&path).expect("a rule set");
    let mut kernel = match KernelOracle::ruleset(OFFICE, &rules) {
        Ok(kernel) => kernel,
        Err(reason) => return note(test, &reason),
    };
    let config = format!(
        "rules_file = {path:?}\ninterfaces = ['inside', 'outside']\nloose = true\nttl = 'decrement'\nwindows = 'liberal'
         icmp_errors_per_s = 1000000\nforwards = []\n{NETWORKS}"
    );
    let (mut ours, mut comparison, mut chance) =
        (bench("firewall", &config, 2), Comparison::default(), Chance(0x2545_f491_4f6c_dd1d));
    let mut talks: Vec<Talk> = (0..200).map(|number| Talk::new(&mut chance, number)).collect();
    for number in 0..3000 {
        let at = chance.below(talks.len());
        let (who, frame) = talks[at].says(&mut chance);
        // Of a connection that is known, what comes from the wrong side is dropped before the rules are asked.
        let is_strange = chance.below(8) == 0 && talks[at].come == 0;
        let (port, bytes) = (talks[at].from ^ who ^ usize::from(is_strange), frame.bytes());
        let (expected, _) = passed(packets(kernel.feed(port, &bytes).expect("the kernel takes it")), port);
        let outcome = ours.send(port as u16, 0, &bytes);
        let (sent, _) = passed(packets(by_port(outcome.sent)), port);
        comparison.note(&format!("packet {number} by {port}: {}", hex(&bytes)), &expected, &sent, outcome.dropped);
        if !expected.is_empty() {
            talks[at].comes(who);
        }
    }
    comparison.check(3000);
    let (by_us, mut by_kernel) = (counted_by_us(ours), counted(&kernel.listing().expect("nft lists")));
    by_kernel.retain(|(comment, (packets, _))| *packets > 0 || by_us.iter().any(|(known, _)| known == comment));
    assert_eq!(by_kernel, by_us);
    assert!(by_us.iter().filter(|(_, (packets, _))| *packets > 0).count() >= 9, "{by_us:?}");
}

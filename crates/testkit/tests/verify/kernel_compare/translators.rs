//! `nat`, alone and behind `firewall`, against the kernel's source NAT.

use super::*;

/// A translator alone, or behind a firewall.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Translator {
    Alone,
    BehindFirewall,
}

impl Translator {
    fn of_kernel(self, inside: &[&str]) -> KernelOracle {
        let oracle = match self {
            Translator::Alone => KernelOracle::nat(inside, NAT_ADDRESS, Tracking::Liberal),
            Translator::BehindFirewall => KernelOracle::gateway(inside, NAT_ADDRESS, Tracking::Liberal),
        };
        oracle.expect("probed")
    }

    fn of_ours(self, inside: &[&str]) -> Bench {
        let config = format!("external = ['{NAT_ADDRESS}']\ninside = {inside:?}\nfirst_port = 1");
        if self == Translator::Alone {
            return bench("nat", &config, 2);
        }
        let order = Order::Mirrored { outside: PortSet::of([OUTSIDE as u16]) };
        let course = Course { order, ..Course::default() };
        Bench::on_course(2, 1 << 16, &course, |builder| {
            let functions = [("firewall", "loose = true".to_owned()), ("nat", config)];
            let build = |(name, config): (&str, String)| {
                let entry = find(name).expect("a function of the catalogue");
                (entry.build)(name, config.parse().expect("TOML"), builder, 2).expect("a configuration of the tests")
            };
            functions.into_iter().map(build).collect()
        })
    }
}

fn compare_nats(path: &Path, name: &str, inside: &[&str], translator: Translator, comparison: &mut Comparison) {
    let inside: Vec<&str> = inside.iter().copied().filter(|prefix| !prefix.contains(':')).collect();
    let (mut kernel, mut ours) = (translator.of_kernel(&inside), translator.of_ours(&inside));
    let (mut screen, inside) = (Screen::default(), prefixes(&inside));
    let (mut of_kernel, mut of_ours) = (Replies::default(), Replies::default());
    for (n, (_, frame)) in frames(path, PortSplit::Single).iter().enumerate() {
        let (None, Some(port)) = (screen.objection(frame), way(frame, &inside)) else { continue };
        let what = format!("{name} frame {n}: {}", hex(frame));
        if port == INSIDE {
            let expected = kernel.feed(INSIDE, frame).expect("the kernel takes it");
            let outcome = ours.send(INSIDE as u16, 0, frame);
            let sent = by_port(outcome.sent);
            let leaked = |sent: &(usize, Vec<u8>)| way(&sent.1, &inside).is_some();
            if outcome.dropped == Some("no_mapping") && expected.iter().all(leaked) {
                continue; // What is invalid leaves the kernel untranslated, with an inside address; ours drops it.
            }
            if let ([(_, translated)], [(_, by_us)]) = (&expected[..], &sent[..]) {
                of_kernel.learn(frame, translated);
                of_ours.learn(frame, by_us);
            }
            // Endpoint-independent mapping: one port for all destinations, so not always the port that the kernel finds free.
            if of_kernel.chosen_for(frame) == of_ours.chosen_for(frame) {
                comparison.note(&what, &packets(expected), &packets(sent), outcome.dropped);
            } else {
                let ports = |sent: &[(usize, Vec<u8>)]| sent.iter().map(|(port, _)| *port).collect::<Vec<_>>();
                assert_eq!(ports(&expected), ports(&sent), "{what}");
            }
        } else if let (Some(to_kernel), Some(to_us)) = (of_kernel.readdress(frame), of_ours.readdress(frame)) {
            let expected = kernel.feed(OUTSIDE, &to_kernel).expect("the kernel takes it");
            let outcome = ours.send(OUTSIDE as u16, 0, &to_us);
            comparison.note(&what, &packets(expected), &packets(by_port(outcome.sent)), outcome.dropped);
        }
    }
    assert_eq!(kernel.noise(), 0);
}

#[test]
fn the_nat_translates_as_the_kernel_does() {
    let test = "the_nat_translates_as_the_kernel_does";
    if skipped(test) {
        return;
    }
    let mut comparison = Comparison::default();
    on_captures(test, &RECORDED, |path, name, inside| {
        compare_nats(path, name, inside, Translator::Alone, &mut comparison);
    });
    comparison.check(3000);
}

#[test]
fn a_firewall_before_a_nat_decides_as_the_kernels_gateway_does() {
    let test = "a_firewall_before_a_nat_decides_as_the_kernels_gateway_does";
    if skipped(test) {
        return;
    }
    let mut comparison = Comparison::default();
    on_captures(test, &RECORDED, |path, name, inside| {
        compare_nats(path, name, inside, Translator::BehindFirewall, &mut comparison);
    });
    comparison.check(3000);
}

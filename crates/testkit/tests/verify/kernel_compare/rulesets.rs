//! Rule sets as operators have them, against the kernel: conversations of few hosts, so that packets are repeated before they are answered
//! and after. How the sender of a refused packet is told is not compared (the kernel answers in its own name), but that he is.

use braid_testkit::Frame;

use super::*;

/// So many prefixes stand in the carrier's list.
const PREFIXES: u32 = 5000;
const PORTS: [u16; 16] = [22, 23, 25, 53, 80, 110, 123, 143, 443, 445, 465, 587, 993, 5060, 6881, 51820];

/// Chance from a seed.
pub(super) struct Chance(pub(super) u64);

impl Chance {
    pub(super) fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) % n as u64) as usize
    }

    pub(super) fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }
}

/// Two hosts that want to speak.
pub(super) struct Talk {
    /// The port by which the first packet comes.
    pub(super) from: usize,
    pub(super) kind: usize,
    /// Who asks, and whom.
    pub(super) hosts: [&'static str; 2],
    ports: [u16; 2],
    /// What has come through: the question, the answer, the confirmation.
    pub(super) come: usize,
}

/// A packet and who sends it: 0 for who asks.
pub(super) type Said = (usize, Frame);

impl Talk {
    pub(super) fn new(chance: &mut Chance, number: usize) -> Talk {
        let v6 = chance.below(4) == 0;
        let inside = if v6 { chance.of(&["fd00:1::9", "fd00:1::5"]) } else { chance.of(&INSIDE_V4) };
        let outside = if v6 { chance.of(&["2001:db8::10", "2001:db8:bad::7"]) } else { chance.of(&OUTSIDE_V4) };
        let from = chance.below(2);
        let hosts = if from == INSIDE { [inside, outside] } else { [outside, inside] };
        let source = if chance.below(6) == 0 { chance.of(&[19, 123, 1900]) } else { 2000 + number as u16 };
        Talk { from, kind: chance.below(5), hosts, ports: [source, chance.of(&PORTS)], come: 0 }
    }

    /// Address and port of one of them.
    fn end(&self, who: usize) -> String {
        match self.hosts[who] {
            host if host.contains(':') => format!("[{host}]:{}", self.ports[who]),
            host => format!("{host}:{}", self.ports[who]),
        }
    }

    /// A segment that ends the connection.
    pub(super) fn ends(&self, who: usize, flags: &str) -> Frame {
        let numbers = if who == 0 { (1001, 5001) } else { (5001, 1001) };
        Frame::tcp(&self.end(who), &self.end(1 - who)).flags(flags).numbers(numbers.0, numbers.1)
    }

    pub(super) fn says(&self, chance: &mut Chance) -> Said {
        let (asker, asked) = (self.end(0), self.end(1));
        let answers = self.come > 0 && chance.below(2) == 0;
        let (who, from, to) = if answers { (1, asked, asker) } else { (0, asker, asked) };
        let frame = match (self.kind, self.come, who) {
            (0 | 1, _, _) => Frame::udp(&from, &to).payload(&vec![1; chance.of(&[0, 20, 300, 900])]),
            (2, _, 0) => Frame::echo_request(self.hosts[0], self.hosts[1], self.ports[0], 1),
            (2, ..) => Frame::echo_reply(self.hosts[1], self.hosts[0], self.ports[0], 1),
            (_, 0, _) | (_, 1, 0) => Frame::tcp(&from, &to).flags("S").numbers(1000, 0),
            (_, 1, _) => Frame::tcp(&from, &to).flags("SA").numbers(5000, 1001),
            (_, 2, 0) => Frame::tcp(&from, &to).flags("A").numbers(1001, 5001),
            (_, 2, _) => Frame::tcp(&from, &to).flags("SA").numbers(5000, 1001),
            (_, _, 0) => Frame::tcp(&from, &to).flags("PA").numbers(1001, 5001).payload(&[2; 10]),
            _ => Frame::tcp(&from, &to).flags("A").numbers(5001, 1001),
        };
        (who, frame.tos(chance.of(&[0, 46 << 2])))
    }

    /// What has come through counts on.
    pub(super) fn comes(&mut self, who: usize) {
        self.come = match (self.kind, self.come, who) {
            (0..=2, ..) => 1,
            (_, 0, 0) => 1,
            (_, 1, 1) => 2,
            (_, 2, 0) => 3,
            (_, come, _) => come,
        };
    }
}

const INSIDE_V4: [&str; 6] = ["10.1.0.5", "10.1.0.9", "10.1.0.11", "10.1.0.66", "10.1.0.67", "10.1.0.200"];
const OUTSIDE_V4: [&str; 7] =
    ["203.0.113.10", "203.0.113.66", "198.51.100.7", "198.51.100.70", "192.0.2.5", "192.0.2.200", "198.19.7.7"];

/// Packets that pass, and whether somebody is told.
pub(super) fn passed(sent: Vec<(usize, Vec<u8>)>, came_by: usize) -> (Vec<(usize, Vec<u8>)>, bool) {
    let count = sent.len();
    let passed: Vec<_> = sent.into_iter().filter(|(port, _)| *port != came_by).collect();
    let told = passed.len() < count;
    (passed, told)
}

pub(super) fn compare(test: &str, path: &Path) {
    let rules = std::fs::read_to_string(path).expect("a rule set");
    let config = format!(
        "rules_file = {path:?}\ninterfaces = ['inside', 'outside']\nloose = true\nttl = 'decrement'\nwindows = 'liberal'
         icmp_errors_per_s = 1000000"
    );
    let mut kernel = match KernelOracle::ruleset(OFFICE, &rules) {
        Ok(kernel) => kernel,
        Err(reason) => return note(test, &reason),
    };
    let (mut ours, mut comparison, mut through) = (bench("firewall", &config, 2), Comparison::default(), 0);
    let mut chance = Chance(0x2545_f491_4f6c_dd1d);
    let mut talks: Vec<Talk> = (0..300).map(|number| Talk::new(&mut chance, number)).collect();
    for number in 0..4000 {
        let at = chance.below(talks.len());
        let (who, frame) = talks[at].says(&mut chance);
        let (port, bytes) = (talks[at].from ^ who, frame.bytes());
        let (expected, is_told) = passed(packets(kernel.feed(port, &bytes).expect("the kernel takes it")), port);
        let outcome = ours.send(port as u16, 0, &bytes);
        let (sent, told) = passed(packets(by_port(outcome.sent)), port);
        let what = format!("{} packet {number}: {}", path.display(), hex(&bytes));
        comparison.note(&what, &expected, &sent, outcome.dropped);
        assert_eq!(told, is_told, "told: {what}, {:?}", outcome.dropped);
        if !expected.is_empty() {
            through += 1;
            talks[at].comes(who);
        }
    }
    assert!((400..3800).contains(&through), "{through} came through: the rules tell too few apart");
    comparison.check(4000);
}

#[test]
fn rule_sets_as_operators_have_them_decide_as_in_the_kernel() {
    let test = "rule_sets_as_operators_have_them_decide_as_in_the_kernel";
    if skipped(test) {
        return;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/verify/kernel_compare/rulesets");
    for name in ["home", "web", "mail", "office", "amounts", "early", "ingress"] {
        compare(test, &folder.join(format!("{name}.nft")));
    }
}

#[test]
fn a_carriers_list_of_prefixes_decides_as_in_the_kernel() {
    let test = "a_carriers_list_of_prefixes_decides_as_in_the_kernel";
    if skipped(test) {
        return;
    }
    let mut rules = include_str!("rulesets/carrier.nft").to_owned();
    rules += "\tset prefixes {\n\t\ttype ipv4_addr\n\t\tflags interval\n\t\telements = { 203.0.113.64/27, 198.51.100.0/26,\n";
    // Every other /24 from 198.19.0.0 downwards, none of which touches another.
    let prefixes: Vec<String> = (0..PREFIXES - 2)
        .map(|n| (0xc613_0700 - n * 512).to_be_bytes())
        .map(|[a, b, c, _]| format!("{a}.{b}.{c}.0/{}", if c % 4 == 1 { 25 } else { 24 }))
        .collect();
    rules += &format!("{} }}\n\t}}\n}}\n", prefixes.join(",\n"));
    let path = std::env::temp_dir().join(format!("braid-carrier-{}.nft", std::process::id()));
    std::fs::write(&path, rules).expect("a file");
    compare(test, &path);
    std::fs::remove_file(&path).expect("it is there");
}

//! TCP as nobody means it, against connection tracking: conversations that begin as they should and go on by chance. Ends ask again, answer a SYN with
//! one, begin anew, finish twice, reset what was not said, acknowledge what was never sent, shift windows or forget that they do.
//!
//! Each conversation ends at its first difference: from there on each side speaks of a state of its own.

use std::fmt::Write;

use braid_testkit::Frame;

use super::rulesets::Chance;
use super::*;

/// Lets everything begin but what is invalid.
const OPEN: &str = "ct state invalid drop\n\t\tct state new,established,related accept";
/// Lets begin only what comes from inside.
const GUARDED: &str = "ct state invalid drop\n\t\tct state established,related accept\n\t\tiifname inside accept";
/// Segments behind a conversation's beginning.
const SEGMENTS: usize = 14;
/// How conversations begin: who speaks, and by which flags.
#[rustfmt::skip]
const BEGINNINGS: &[&[(usize, &str)]] = &[
    &[],
    &[(0, "S")],
    &[(0, "S"), (1, "SA")],
    &[(0, "S"), (1, "SA"), (0, "A")],
    &[(0, "S"), (1, "SA"), (0, "A"), (0, "PA"), (1, "PA"), (0, "A")],
    &[(0, "S"), (1, "SA"), (0, "A"), (0, "FA")],
    &[(0, "S"), (1, "SA"), (0, "A"), (1, "FA"), (0, "A")],
    &[(0, "S"), (1, "SA"), (0, "A"), (0, "FA"), (1, "A"), (1, "FA"), (0, "A")],
    &[(0, "S"), (1, "SA"), (0, "A"), (0, "FA"), (1, "FA"), (0, "A"), (1, "A")],
    &[(0, "A"), (1, "A")],
    &[(0, "PA"), (1, "PA"), (0, "PA"), (1, "A")],
];
/// Flags, as often as they are said.
#[rustfmt::skip]
const FLAGS: &[&str] = &[
    "A", "A", "A", "A", "A", "PA", "PA", "PA", "PA", "S", "S", "S", "SA", "SA", "SA", "FA", "FA", "FA",
    "F", "SF", "", "SR", "U", "SAF", "AU", "PAU", "SEC", "SU", "FR", "SRA", "FPU",
];
/// How far from what they should be numbers are.
const OFF: &[u32] = &[1, 2, 100, 1460, 65_535, 66_000, 66_001, 131_072, 1 << 22, 1 << 31];

/// One end of a conversation.
#[derive(Clone, Copy)]
struct End {
    /// The number that it says next.
    next: u32,
    /// The one that it said first.
    first: u32,
}

/// What has passed of a conversation.
#[derive(Clone, Copy, Default)]
struct Passed {
    /// Who spoke first, and whether by a SYN.
    opener: Option<(usize, bool)>,
    /// The other end has accepted its SYN.
    is_answered: bool,
    /// The opener has begun anew and waits for an answer.
    asks_anew: bool,
    /// Who has sent a FIN.
    finished: [bool; 2],
}

impl Passed {
    fn note(&mut self, who: usize, flags: &str) {
        let &mut (opener, _) = self.opener.get_or_insert((who, is_syn(flags)));
        if who != opener && flags == "SA" {
            (self.is_answered, self.asks_anew) = (true, false);
        }
        self.finished[who] |= flags.contains('F');
    }

    fn may_begin_anew(&self, who: usize) -> bool {
        self.opener == Some((who, true)) && self.is_answered
    }

    /// Whether both decide alike about a segment that may come now. Where they do not is in the firewall's README: a SYN in a connection
    /// that was met in its middle or that is closing, SYNs of both ends, a SYN ACK of the opener, a second FIN.
    fn is_comparable(&self, who: usize, flags: &str) -> bool {
        let Some((opener, by_syn)) = self.opener else { return true };
        let is_opening = by_syn && self.finished != [true; 2];
        match flags {
            _ if is_syn(flags) => is_opening && (who == opener || self.is_answered),
            "SA" => is_opening && who != opener && (!self.is_answered || self.asks_anew),
            "FA" => !self.finished[who],
            _ => true,
        }
    }
}

/// Whether a segment is a SYN and no answer to one.
fn is_syn(flags: &str) -> bool {
    matches!(flags, "S" | "SU" | "SEC")
}

struct Conversation {
    chance: Chance,
    hosts: [String; 2],
    /// The port by which its first segment comes.
    from: usize,
    ends: [End; 2],
    /// Behind its IPv6 header stands another one.
    has_extension: bool,
    /// What of it has passed.
    passed: Passed,
    said: String,
}

impl Conversation {
    fn new(mut chance: Chance, number: usize) -> Conversation {
        let (v6, from) = (chance.below(4) == 0, chance.below(3) / 2);
        let port = 1024 + number % 60_000;
        let [inside, outside] = match v6 {
            true => [format!("[fd00:1::9]:{port}"), "[2001:db8::5]:80".to_owned()],
            false => [format!("10.1.0.9:{port}"), format!("203.0.113.{}:80", 1 + number / 60_000)],
        };
        let hosts = if from == INSIDE { [inside, outside] } else { [outside, inside] };
        let ends = [0, 1].map(|_| {
            let first = chance.below(1 << 32) as u32;
            End { next: first, first }
        });
        let has_extension = v6 && chance.below(2) == 0;
        Conversation { chance, hosts, from, ends, has_extension, passed: Passed::default(), said: String::new() }
    }

    /// A number, that of whoever means it or another one.
    fn number(&mut self, meant: u32) -> u32 {
        let off = self.chance.of(OFF);
        match self.chance.below(12) {
            0 => meant.wrapping_add(off),
            1 | 2 => meant.wrapping_sub(off),
            _ => meant,
        }
    }

    /// Options: of a SYN what it offers, of others what they have by chance.
    fn options(&mut self, is_syn: bool) -> Vec<u8> {
        let shift = self.chance.of(&[0, 2, 7, 14, 15]);
        match (is_syn, self.chance.below(4)) {
            (true, 0) => vec![2, 4, 5, 180, 1, 3, 3, shift],
            (true, 1) => vec![2, 4, 5, 180, 4, 2, 1, 1, 1, 3, 3, shift],
            (true, 2) => vec![2, 4, 5, 180],
            _ => Vec::new(),
        }
    }

    /// A segment of one of them: as it should be, or with what chance makes of it.
    fn say(&mut self, who: usize, flags: &str, is_meant: bool) -> (usize, Vec<u8>) {
        let is_syn = flags.contains('S');
        let (own, other) = (self.ends[who], self.ends[1 - who]);
        let begins_anew = !is_meant && flags == "S" && self.passed.may_begin_anew(who) && self.chance.below(2) == 0;
        self.passed.asks_anew |= begins_anew;
        let sequence = match is_syn {
            true if begins_anew => self.chance.below(1 << 32) as u32,
            true => own.first,
            false => own.next,
        };
        let has_ack = flags.contains('A');
        let (sequence, acknowledgement) = match is_meant {
            true => (sequence, if has_ack { other.next } else { 0 }),
            false if is_syn => (sequence, if has_ack { other.next } else { self.chance.of(&[0, 0, other.next]) }),
            false if has_ack => (self.number(sequence), self.number(other.next)),
            false => (self.number(sequence), self.chance.of(&[0, 0, other.next])),
        };
        let window = self.chance.of(if is_meant { &[8192, 65_535] } else { &[0, 1, 500, 8192, 65_535] });
        let len = if is_syn || flags == "A" || !is_meant && self.chance.below(2) == 0 {
            0
        } else {
            self.chance.of(&[1, 100, 1400])
        };
        let options = self.options(is_syn);
        let _ = write!(
            self.said,
            "\n    {who} {flags:<3} seq {sequence:#x} ack {acknowledgement:#x} win {window} len {len} options {options:?}"
        );
        let frame = Frame::tcp(&self.hosts[who], &self.hosts[1 - who])
            .flags(flags)
            .numbers(sequence, acknowledgement)
            .window(window)
            .payload(&vec![1; len]);
        let bytes = if options.is_empty() { frame.bytes() } else { frame.options(&options).bytes() };
        let end = sequence.wrapping_add(len as u32 + u32::from(is_syn) + u32::from(flags.contains('F')));
        let own = &mut self.ends[who];
        if is_syn && (is_meant || begins_anew) {
            *own = End { next: end, first: sequence };
        } else if own.next == sequence {
            own.next = end;
        }
        (self.from ^ who, if self.has_extension { with_extension(bytes) } else { bytes })
    }
}

/// An IPv6 packet with a header of destination options before its transport header.
fn with_extension(mut frame: Vec<u8>) -> Vec<u8> {
    let next = std::mem::replace(&mut frame[14 + 6], 60);
    let len = u16::from_be_bytes([frame[14 + 4], frame[14 + 5]]) + 8;
    frame[14 + 4..14 + 6].copy_from_slice(&len.to_be_bytes());
    frame.splice(54..54, [next, 0, 1, 4, 0, 0, 0, 0]);
    frame
}

/// How both decide.
#[derive(Clone, Copy, Debug)]
struct Setting {
    tracking: Tracking,
    is_loose: bool,
}

impl Setting {
    fn kernel(self, rules: &str) -> Result<KernelOracle, braid_testkit::kernel::Unavailable> {
        let kernel = KernelOracle::ruleset(OFFICE, rules)?;
        kernel.track("tcp_be_liberal", u64::from(self.tracking == Tracking::Liberal))?;
        kernel.track("tcp_loose", u64::from(self.is_loose))?;
        Ok(kernel)
    }

    fn ours(self, rules: &str) -> Bench {
        let path = std::env::temp_dir().join(format!("braid-segments-{}.nft", std::process::id()));
        std::fs::write(&path, rules).expect("a file");
        let windows = if self.tracking == Tracking::Strict { "strict" } else { "liberal" };
        let config = format!(
            "rules_file = {path:?}\ninterfaces = ['inside', 'outside']\nloose = {}\nttl = 'decrement'\nwindows = '{windows}'",
            self.is_loose
        );
        let ours = bench("firewall", &config, 2);
        std::fs::remove_file(&path).expect("it is there");
        ours
    }
}

/// Has a conversation come to both until they differ; says how many segments they agreed about.
fn converse(mut talk: Conversation, kernel: &mut KernelOracle, ours: &mut Bench) -> Result<usize, String> {
    let beginning = talk.chance.of(BEGINNINGS);
    for number in 0..beginning.len() + SEGMENTS {
        let (who, flags) = match beginning.get(number) {
            Some(meant) => *meant,
            None => {
                let (passed, chance) = (talk.passed, &mut talk.chance);
                let drawn = std::iter::repeat_with(|| (chance.below(2), chance.of(FLAGS)));
                let mut comparable = drawn.filter(|(who, flags)| passed.is_comparable(*who, flags));
                comparable.next().expect("an endless row")
            }
        };
        let (port, bytes) = talk.say(who, flags, number < beginning.len());
        let expected = packets(kernel.feed(port, &bytes).expect("the kernel takes it"));
        let outcome = ours.send(port as u16, 0, &bytes);
        let dropped = outcome.dropped;
        let sent = packets(by_port(outcome.sent));
        let _ = write!(talk.said, " : {}", dropped.unwrap_or("passes"));
        if sent != expected {
            let by_kernel = if expected.is_empty() { "drops" } else { "passes" };
            return Err(format!("{} from port {}{}; the kernel {by_kernel}", talk.hosts[0], talk.from, talk.said));
        }
        if !sent.is_empty() {
            talk.passed.note(who, flags);
        }
    }
    Ok(beginning.len() + SEGMENTS)
}

#[test]
fn segments_that_nobody_expects_meet_the_same_as_in_the_kernel() {
    let test = "segments_that_nobody_expects_meet_the_same_as_in_the_kernel";
    if skipped(test) {
        return;
    }
    let count = std::env::var("BRAID_CONVERSATIONS").map_or(300, |count| count.parse().expect("a number"));
    let (mut agreed, mut differences) = (0, Vec::new());
    for (tracking, is_loose, rules) in [
        (Tracking::Strict, true, OPEN),
        (Tracking::Strict, true, GUARDED),
        (Tracking::Strict, false, OPEN),
        (Tracking::Strict, false, GUARDED),
        (Tracking::Liberal, true, OPEN),
        (Tracking::Liberal, false, GUARDED),
    ] {
        let (setting, table) =
            (Setting { tracking, is_loose }, super::known::table("", "drop", &format!("\t\t{rules}\n")));
        let mut kernel = match setting.kernel(&table) {
            Ok(kernel) => kernel,
            Err(reason) => return note(test, &reason),
        };
        let mut ours = setting.ours(&table);
        for number in 0..count {
            let seed = 0x9e37_79b9_7f4a_7c15u64.wrapping_mul(number as u64 + 1) | 1;
            match converse(Conversation::new(Chance(seed), number), &mut kernel, &mut ours) {
                Ok(segments) => agreed += segments,
                Err(difference) => {
                    differences.push(format!("{setting:?} {rules:?}, conversation {number}: {difference}"))
                }
            }
        }
    }
    eprintln!("{agreed} segments of conversations decided alike");
    assert!(differences.is_empty(), "{} conversations differ\n{}", differences.len(), differences.join("\n"));
}

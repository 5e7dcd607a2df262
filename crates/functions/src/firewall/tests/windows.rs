//! Tests of segments inside and outside the windows of their connection.

use braid_testkit::{Bench, Frame};
use proptest::prelude::*;

use super::{HOST, SERVER, back, bench, check, to};

/// A window scale option.
fn shift(by: u8) -> [u8; 4] {
    [3, 3, by, 0]
}

/// A connection from inside: initial sequence numbers 1000 (host) and 5000 (server), windows of 1000 bytes.
fn connected(config: &str) -> Bench {
    let mut fw = bench(config);
    check(&mut fw, 0, 0, to("S").numbers(1000, 0).window(1000), "pass");
    check(&mut fw, 1, 0, back("SA").numbers(5000, 1001).window(1000), "pass");
    check(&mut fw, 0, 0, to("A").numbers(1001, 5001).window(1000), "pass");
    fw
}

#[test]
fn segments_within_the_window_pass_and_others_do_not() {
    let mut fw = connected("");
    let data = |sequence, len| to("PA").numbers(sequence, 5001).window(1000).payload(&vec![7; len]);
    check(&mut fw, 0, 0, data(1001, 500), "pass");
    check(&mut fw, 0, 0, data(1501, 500), "pass");
    check(&mut fw, 0, 0, data(2991, 10), "out_of_window");
    check(&mut fw, 0, 0, data(1001, 500), "pass");
    check(&mut fw, 0, 0, data(1, 10), "pass");
    check(&mut fw, 1, 0, back("A").numbers(5001, 2001).window(1000), "pass");
    check(&mut fw, 0, 0, data(2001, 1000), "pass");
    check(&mut fw, 1, 0, back("A").numbers(5001, 3002).window(1000), "out_of_window");
    check(&mut fw, 1, 0, back("A").numbers(5001, 3001).window(1000), "pass");
}

/// As in Linux: otherwise a sender that once exceeds its window would never get through again.
#[test]
fn who_goes_beyond_a_window_by_less_than_another_is_believed() {
    for flags in ["PA", "RA"] {
        let beyond = |sequence| to(flags).numbers(sequence, 5001).window(1000).payload(&[7; 100]);
        check(&mut connected(""), 0, 0, beyond(2901), "out_of_window");
        let mut fw = connected("");
        check(&mut fw, 0, 0, beyond(2900), "pass");
        check(&mut fw, 1, 0, back("A").numbers(5001, 3000).window(1000), "pass");
    }
    let mut fw = connected("");
    check(&mut fw, 0, 0, to("PA").numbers(2500, 5001).window(1000).payload(&[7; 100]), "pass");
    check(&mut fw, 0, 0, to("A").numbers(2600, 5001).window(1000), "pass");
    check(&mut fw, 0, 0, to("FA").numbers(2600, 5001).window(1000), "pass");
    check(&mut fw, 1, 0, back("A").numbers(5001, 2602).window(1000), "out_of_window");
}

/// As in Linux: it does no harm, and does not update anything.
#[test]
fn what_comes_late_passes_and_changes_nothing() {
    let long_ago = 1001u32.wrapping_sub(70_000);
    let late = [
        (0, to("PA").numbers(1, 5001).payload(&[7; 10])),
        (0, to("FA").numbers(1, 5001)),
        (1, back("A").numbers(5001, long_ago)),
        (1, back("FA").numbers(5001, long_ago)),
        (1, back("RA").numbers(5001, long_ago)),
    ];
    for (port, frame) in late {
        let mut fw = connected("");
        check(&mut fw, port, 0, frame, "pass");
        // The late segment neither ended nor reset the connection, which lives on.
        check(&mut fw, 0, 7000, to("A").numbers(1001, 5001).window(1000), "pass");
        check(&mut fw, 1, 7000, back("PA").numbers(5001, 1001).payload(&[7; 1000]), "pass");
    }
    // A reset from before the window, and a segment from beyond it, however old its acknowledgement, are refused.
    let mut fw = connected("");
    check(&mut fw, 1, 0, back("R").numbers(1, 0), "out_of_window");
    check(&mut fw, 1, 0, back("A").numbers(900_000, long_ago).payload(&[7; 10]), "out_of_window");
    let mut fw = bench("");
    check(&mut fw, 0, 0, to("S").numbers(1000, 0), "pass");
    check(&mut fw, 1, 0, back("RA").numbers(0, long_ago), "pass");
    check(&mut fw, 1, 1, back("SA").numbers(5000, 1001), "pass");
}

#[test]
fn a_blind_reset_ends_nothing() {
    let reset = || back("R").numbers(900_000, 0);
    let mut fw = connected("");
    check(&mut fw, 1, 0, reset(), "out_of_window");
    check(&mut fw, 1, 7000, back("A").numbers(5001, 1001), "pass");
    let mut fw = connected("windows = 'liberal'");
    check(&mut fw, 1, 0, reset(), "out_of_window");
    check(&mut fw, 1, 0, back("A").numbers(900_000, 1001).payload(b"far"), "pass");
    let mut fw = connected("windows = 'off'");
    check(&mut fw, 1, 0, reset(), "pass");
}

#[test]
fn a_reset_that_fits_ends_the_connection_soon() {
    let mut fw = connected("");
    check(&mut fw, 1, 0, back("R").numbers(5001, 0), "pass");
    check(&mut fw, 1, 11, back("A").numbers(5001, 1001), "denied");
}

/// It has no sequence number of its own yet, and may answer a segment of an earlier connection.
#[test]
fn who_refuses_a_connection_acknowledges_what_was_sent() {
    let asked = || {
        let mut fw = bench("");
        check(&mut fw, 0, 0, to("S").numbers(1000, 0), "pass");
        fw
    };
    for unfit in [1003, 900_000] {
        check(&mut asked(), 1, 0, back("RA").numbers(0, unfit), "out_of_window");
    }
    for fit in [1002, 1001, 1000, 0, 1001u32.wrapping_sub(66_000)] {
        check(&mut asked(), 1, 0, back("RA").numbers(0, fit), "pass");
    }
    check(&mut asked(), 1, 0, back("R").numbers(7, 0), "pass");
}

/// RFC 9293 section 3.5.1: one end has forgotten a connection that the other remembers.
#[test]
fn ends_of_a_half_open_connection_come_to_terms() {
    let mut fw = bench("");
    check(&mut fw, 0, 0, to("S").numbers(1000, 0), "pass");
    check(&mut fw, 1, 0, back("A").numbers(700_000, 300_000), "pass");
    check(&mut fw, 1, 0, back("FA").numbers(700_000, 300_000), "out_of_window");
    check(&mut fw, 0, 0, to("R").numbers(300_000, 0), "pass");
    check(&mut fw, 0, 1, to("S").numbers(1000, 0), "pass");
    check(&mut fw, 1, 1, back("SA").numbers(5000, 1001), "pass");
    check(&mut fw, 0, 1, to("A").numbers(1001, 5001), "pass");
    check(&mut fw, 1, 1000, back("A").numbers(5001, 1001), "pass");
}

#[test]
fn a_forged_answer_to_a_syn_is_refused() {
    let mut fw = bench("");
    check(&mut fw, 0, 0, to("S").numbers(1000, 0), "pass");
    check(&mut fw, 1, 0, back("SA").numbers(5000, 90_000), "out_of_window");
    check(&mut fw, 1, 0, back("SA").numbers(5000, 1001), "pass");
}

#[test]
fn windows_are_shifted_if_both_ends_offer_it() {
    let opened = |offer: &[u8]| {
        let mut fw = bench("");
        check(&mut fw, 0, 0, to("S").numbers(1000, 0).window(1000).options(&shift(4)), "pass");
        check(&mut fw, 1, 0, back("SA").numbers(5000, 1001).window(1000).options(offer), "pass");
        check(&mut fw, 0, 0, to("A").numbers(1001, 5001).window(1000), "pass");
        check(&mut fw, 1, 0, back("A").numbers(5001, 1001).window(1000), "pass");
        fw
    };
    let far = || to("A").numbers(9000, 5001).payload(b"far");
    check(&mut opened(&shift(4)), 0, 0, far(), "pass");
    check(&mut opened(&[]), 0, 0, far(), "out_of_window");
}

#[test]
fn both_ends_may_open_at_once() {
    let mut fw = bench("");
    check(&mut fw, 0, 0, to("S").numbers(1000, 0), "pass");
    check(&mut fw, 1, 0, back("S").numbers(5000, 0), "pass");
    check(&mut fw, 0, 0, to("SA").numbers(1000, 5001), "pass");
    check(&mut fw, 1, 0, back("SA").numbers(5000, 1001), "pass");
    check(&mut fw, 0, 0, to("A").numbers(1001, 5001), "pass");
    check(&mut fw, 1, 7000, back("A").numbers(5001, 1001), "pass");
}

#[test]
fn connections_met_in_their_middle_are_not_held_to_windows() {
    let mut fw = bench("loose = true");
    check(&mut fw, 0, 0, to("A").numbers(7, 8), "pass");
    check(&mut fw, 1, 0, back("A").numbers(800_000, 900_000), "pass");
}

#[test]
fn a_keep_alive_repeats_an_old_number() {
    let mut fw = connected("");
    check(&mut fw, 0, 0, to("A").numbers(1000, 5001), "pass");
    check(&mut fw, 0, 0, to("A").numbers(1000, 5001).payload(&[0]), "pass");
}

/// One end of a connection according to RFC 9293: sends what the other end has room for, repeats what is not
/// acknowledged, and acknowledges what has arrived in order.
struct End {
    begin: u32,
    sent: u32,
    acknowledged: u32,
    /// How far the other end allows it to send.
    allowed: u32,
    received: u32,
    early: Vec<(u32, u32)>,
    room: u16,
}

impl End {
    fn new(begin: u32, room: u16) -> End {
        let sent = begin.wrapping_add(1);
        End { begin, sent, acknowledged: sent, allowed: sent, received: 0, early: Vec::new(), room }
    }

    /// The next segment with new data, old data or none, as (sequence, acknowledgement, bytes, window).
    fn send(&mut self, len: u32, repeats: bool) -> (u32, u32, u32, u16) {
        let from = if repeats { self.acknowledged } else { self.sent };
        let room = if repeats { self.sent } else { self.allowed }.wrapping_sub(from);
        let len = if room as i32 > 0 { len.min(room) } else { 0 };
        if !repeats {
            self.sent = self.sent.wrapping_add(len);
        }
        (from, self.received, len, self.room)
    }

    fn receive(&mut self, (sequence, acknowledgement, len, window): (u32, u32, u32, u16), shift: u8) {
        self.early.push((sequence, sequence.wrapping_add(len)));
        while let Some((_, end)) = self.early.iter().find(|(first, end)| {
            first.wrapping_sub(self.received) as i32 <= 0 && end.wrapping_sub(self.received) as i32 > 0
        }) {
            self.received = *end;
        }
        if acknowledgement.wrapping_sub(self.acknowledged) as i32 > 0 {
            self.acknowledged = acknowledgement;
        }
        let allowed = acknowledgement.wrapping_add(u32::from(window) << shift);
        if allowed.wrapping_sub(self.allowed) as i32 > 0 {
            self.allowed = allowed;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever two ends that conform to RFC 9293 send, over a network that loses, repeats and reorders: no segment is
    /// refused.
    #[test]
    fn ends_that_keep_to_the_rules_are_never_refused(
        begins in any::<[u32; 2]>(),
        rooms in prop::array::uniform2(1u16..5000),
        shifts in prop::array::uniform2(0u8..4),
        steps in prop::collection::vec((any::<bool>(), any::<bool>(), 0u32..3000, 0u8..8, any::<prop::sample::Index>()), 1..120),
    ) {
        let mut fw = bench("");
        let mut ends = [End::new(begins[0], rooms[0]), End::new(begins[1], rooms[1])];
        check(&mut fw, 0, 0, to("S").numbers(begins[0], 0).window(rooms[0]).options(&shift(shifts[0])), "pass");
        let answer = back("SA").numbers(begins[1], ends[0].sent).window(rooms[1]).options(&shift(shifts[1]));
        check(&mut fw, 1, 0, answer, "pass");
        for one in 0..2usize {
            ends[one].received = ends[1 - one].begin.wrapping_add(1);
            ends[one].allowed = ends[one].sent.wrapping_add(rooms[1 - one].into());
        }
        check(&mut fw, 0, 0, to("A").numbers(ends[0].sent, ends[1].sent).window(rooms[0]), "pass");
        let mut flying = Vec::new();
        for (second, repeats, len, fate, which) in steps {
            let from = usize::from(second);
            let segment = ends[from].send(len, repeats);
            let (source, target) = if second { (SERVER, HOST) } else { (HOST, SERVER) };
            let frame = Frame::tcp(source, target).numbers(segment.0, segment.1).window(segment.3);
            let frame = frame.payload(&vec![0; segment.2 as usize]);
            let outcome = fw.send(from as u16, 0, &frame.bytes());
            prop_assert_eq!(outcome.dropped, None, "{:?} from {}", segment, from);
            // 0: lost; 1: delivered twice.
            for _ in 0..fate.min(1) + u8::from(fate == 1) {
                flying.push((1 - from, segment));
            }
            if fate > 4 && !flying.is_empty() {
                let (to, segment) = flying.swap_remove(which.index(flying.len()));
                let shift = shifts[1 - to];
                ends[to].receive(segment, shift);
            }
        }
    }
}

//! Tests that a function outside this crate can answer with ICMP errors and resets like those inside it: built-in functions
//! have no more rights than a user's.

use braid_functions::parts::AnswerRate;
use braid_functions::parts::answers::answer;
use braid_nf::Instance;
use braid_nf::prelude::*;
use braid_testkit::{Bench, Frame};

network_function! {
    /// Refuses everything, and tells senders so.
    struct Closed {
        answers: AnswerRate,
    }
}

impl NetworkFunction for Closed {
    type Set = ();
    const NAME: &'static str = "closed";

    fn orphan(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        if self.answers.admits(cx, packet)? {
            answer::refuse(cx, packet, packet.dst_ip());
        }
        Ok(Verdict::Drop(Reason("closed")))
    }

    fn report(&self, cx: &mut Cx<'_>, into: &mut Findings) -> Result<(), Conflict> {
        self.answers.report(cx, into)
    }
}

fn bench(per_second: u64) -> Bench {
    Bench::new(2, |builder| {
        let answers = AnswerRate::new(builder, per_second, 2).unwrap();
        Box::new(Instance::new("closed", Closed { answers }))
    })
}

#[test]
fn a_function_of_ones_own_refuses_as_its_protocol_does() {
    let mut bench = bench(1000);
    let outcome = bench.send(0, 0, &Frame::udp("10.0.0.1:1000", "192.0.2.1:53").bytes());
    assert_eq!(outcome.dropped, Some("closed"));
    let (port, error) = outcome.only();
    let ip = &error[14..];
    assert_eq!(
        (port, ip[9], &ip[20..22]),
        (0, 1, &[3, 13][..]),
        "administratively prohibited, back where it came from"
    );
    let outcome = bench.send(0, 1, &Frame::tcp("10.0.0.1:1000", "192.0.2.1:80").flags("S").bytes());
    let (port, reset) = outcome.only();
    assert_eq!((port, reset[14 + 9], reset[14 + 20 + 13]), (0, 6, 0x14), "RST and ACK");
}

#[test]
fn and_not_too_often() {
    let mut bench = bench(100);
    let frame = Frame::udp("10.0.0.1:1000", "192.0.2.1:53").bytes();
    let answers = (0..12).map(|_| bench.send(0, 0, &frame).ports().len()).sum::<usize>();
    assert_eq!(answers, 10, "a tenth of a second's worth");
    assert_eq!(bench.findings().sums().get("icmp_errors_withheld"), Some(&2));
}

//! Sets that workers share come, end and come again in each other's entries: whatever a worker remembers of where they were, each packet meets
//! the state of its own set.

use std::sync::Arc;

use braid_nf::Instance;
use braid_nf::prelude::*;
use braid_runtime::Plan;
use braid_testkit::{Bench, Frame};
use proptest::prelude::*;

network_function! {
    /// Writes into the last two bytes how many packets of the same destination have come, this one included.
    struct Numbered {}
}

impl NetworkFunction for Numbered {
    type Set = u16;
    const NAME: &'static str = "numbered";

    fn packet_set(&self) -> Option<SetDef> {
        Some(SetDef::dst_ip())
    }

    fn timeout_ns(&self, _: &u16) -> u64 {
        100_000_000
    }

    fn first(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, set: &mut NewSet<'_, u16>) -> Handled {
        let mut state = 0;
        let handled = self.packet(cx, packet, &mut state);
        assert!(set.register(cx, state), "there is room");
        handled
    }

    fn packet(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, state: &mut u16) -> Handled {
        *state += 1;
        if let Some(end) = packet.bytes_mut().last_chunk_mut() {
            *end = state.to_be_bytes();
        }
        Ok(cx.pass())
    }
}

/// The numbers that packets get: by source and destination, so many milliseconds after one another.
fn numbers(workers: usize, packets: &[(u8, u8, u8)]) -> Vec<u16> {
    let build = |_: &mut _| Ok(vec![Box::new(Instance::new("numbered", Numbered {})) as Box<dyn braid_nf::Stage>]);
    let mut bench = Bench::of_plan(&Plan::for_tests(workers, Arc::new(build))).expect("a small plan");
    let mut now_ms = 0;
    let mut number = |&(source, destination, pause): &(u8, u8, u8)| {
        now_ms += u64::from(pause);
        let frame = Frame::udp(&format!("10.0.0.{source}:9"), &format!("192.0.2.{destination}:80")).payload(&[0; 8]);
        let sent = bench.send(0, now_ms, &frame.bytes());
        sent.only().1.last_chunk().map_or(0, |bytes| u16::from_be_bytes(*bytes))
    };
    packets.iter().map(&mut number).collect()
}

proptest! {
    #[test]
    fn a_set_is_the_same_wherever_its_packets_come(
        packets in prop::collection::vec((0u8..6, 0u8..12, prop_oneof![9 => 0u8..4, 1 => 30u8..200]), 1..400),
    ) {
        prop_assert_eq!(numbers(3, &packets), numbers(1, &packets));
    }
}

#[test]
fn a_set_that_comes_again_begins_again_on_the_worker_that_remembers_it() {
    // Both destinations are known to several workers when they end, and take each other's entries.
    let both = |first: u8, second: u8| (0..12).map(move |n| (n % 6, if n < 6 { first } else { second }, 0));
    let packets: Vec<_> = both(1, 2).chain([(0, 3, 150), (1, 3, 1)]).chain(both(2, 1)).collect();
    let expected: Vec<u16> = (1..=6).chain(1..=6).chain([1, 2]).chain(1..=6).chain(1..=6).collect();
    assert_eq!(numbers(3, &packets), expected);
}

//! Sets with short timeouts end on time, however large the table is and however many begin.

mod traffic;

use std::sync::Arc;

use braid_io::memory::{MemorySink, Repeat};
use braid_nf::packet::key::{SetDef, SetKey};
use braid_nf::prelude::*;
use braid_nf::{Instance, Stage};
use braid_runtime::{Control, Plan, launch};
use traffic::{Sent, replayed};

network_function! {
    /// Tells of each set that ends, in a packet.
    struct Brief {}
}

impl NetworkFunction for Brief {
    /// The timeout, in milliseconds.
    type Set = u64;
    const NAME: &'static str = "brief";

    fn packet_set(&self) -> Option<SetDef> {
        Some(SetDef::five_tuple())
    }

    fn timeout_ns(&self, timeout_ms: &u64) -> u64 {
        timeout_ms * MS
    }

    fn shortest_timeout_ns(&self) -> u64 {
        TIMEOUT_MS * MS
    }

    fn first(&self, cx: &mut Cx<'_>, _: &mut Packet<'_>, set: &mut NewSet<'_, u64>) -> Handled {
        // Sets that live longer do not hold up the others.
        let timeout_ms = if number(&set.key()).is_multiple_of(256) { 10 * TIMEOUT_MS } else { TIMEOUT_MS };
        assert!(set.register(cx, timeout_ms), "there is room");
        Ok(cx.pass())
    }

    fn packet(&self, cx: &mut Cx<'_>, _: &mut Packet<'_>, _: &mut u64) -> Handled {
        Ok(cx.pass())
    }

    fn expired(&self, cx: &mut Cx<'_>, key: &SetKey, timeout_ms: &u64) -> Result<(), Conflict> {
        cx.emit(1, &[&[0; 44], &number(key).to_be_bytes()[..], &timeout_ms.to_be_bytes()].concat());
        Ok(())
    }
}

const MS: u64 = 1_000_000;
const TIMEOUT_MS: u64 = 300;
const PACKETS: u64 = 90_000;
const PER_MS: u64 = 60;
/// How late sets may end, in milliseconds: the granularity of time, and a batch or two.
const LATE_MS: u64 = 40;

/// The number of the packet with which a set began.
fn number(key: &SetKey) -> u64 {
    let tuple = key.five_tuple().expect("that is its key");
    let [.., high, low] = tuple.src_ip.v4().expect("IPv4");
    u64::from(tuple.src_port) << 16 | u64::from(u16::from_be_bytes([high, low]))
}

#[test]
fn sets_whose_time_is_short_do_not_wait_for_the_scan() {
    let build = |_: &mut StateBuilder| Ok(vec![Box::new(Instance::new("brief", Brief {})) as Box<dyn Stage>]);
    for workers in [1, 2] {
        // A round of the scan takes three seconds: it visits 4096 slots per batch.
        let plan = Plan { sets: 1 << 22, ..Plan::for_tests(workers, Arc::new(build)) };
        let sent = |n: u64| Sent { from: n as u16, port: (n >> 16) as u16, at_ns: n * MS / PER_MS, ..Sent::default() };
        // Another packet of some sets arrives later, so they are noted again.
        let again =
            |n: u64| if n % 7 == 6 && n > 6000 { Sent { at_ns: sent(n).at_ns, ..sent(n - 6000) } } else { sent(n) };
        let (sink, collected) = MemorySink::new();
        let source = replayed(PACKETS, Repeat::Passes(1), again);
        let report = launch(&plan, Box::new(source), Box::new(sink), &Control::default()).expect("it ends");
        assert_eq!(report.total.panics, 0);
        let mut ended = 0;
        for packet in collected.packets().iter().filter(|packet| packet.bytes[..44] == [0; 44]) {
            let word = |at: usize| u64::from_be_bytes(packet.bytes[at..at + 8].try_into().expect("eight bytes"));
            let (number, timeout_ms, now_ms) = (word(44), word(52), packet.timestamp_ns / MS);
            let heard = if (number + 6000) % 7 == 6 && number > 0 { number + 6000 } else { number };
            let over_ms = heard / PER_MS + timeout_ms;
            let is_late = now_ms > over_ms + LATE_MS && now_ms < PACKETS / PER_MS - 1;
            // A packet sent at the end of a set has the time of its batch's first packet.
            assert!(now_ms + 1 >= over_ms && !is_late, "{workers} workers: {number} ended at {now_ms}, not {over_ms}");
            ended += 1;
        }
        assert!(ended > 40_000, "{ended} ended");
    }
}

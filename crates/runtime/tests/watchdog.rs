//! A handler that spins without touching its transaction is named, under a seeded schedule and on real threads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use braid_io::memory::Repeat;
use braid_io::{FrameStream, Next, NullSink, ReplaySource};
use braid_memory::HugePages;
use braid_nf::Stage;
use braid_nf::prelude::*;
use braid_packet::FrameInfo;
use braid_packet::fields::StageUse;
use braid_runtime::{Control, Distribution, Plan, Time, Watchdog, launch};
use braid_steer::{Fields, Reta, Steering, Symmetry, toeplitz};

/// Ends the spinning: no thread can be ended from outside.
static RELEASED: AtomicBool = AtomicBool::new(false);

network_function! {
    struct Stuck {}
}

impl NetworkFunction for Stuck {
    type Set = ();
    const NAME: &'static str = "stuck";

    fn orphan(&self, cx: &mut Cx<'_>, _: &mut Packet<'_>) -> Handled {
        while !RELEASED.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
        Ok(cx.pass())
    }
}

fn plan() -> Plan {
    let reta = Reta::new(128, 2).expect("a power of two");
    Plan {
        steering: Arc::new(
            Steering::new(Fields::FOUR_TUPLE, Symmetry::OneWay, &toeplitz::Key::microsoft(), reta).expect("fits"),
        ),
        build: Arc::new(|_| Ok(vec![Box::new(braid_nf::Instance::new("guard", Stuck {})) as Box<dyn Stage>])),
        ports: 2,
        workers: 2,
        batch: 32,
        sets: 64,
        buffers: 0,
        pages: HugePages::Never,
        time: Time::Capture,
        distribution: Distribution::Hardware,
        course: braid_runtime::Course::default(),
        own_fields: vec![
            StageUse::new("source").writes("timestamp_ns", 8).writes("sequence", 8),
            StageUse::new("sink").reads("timestamp_ns", 8).reads("sequence", 8),
        ],
    }
}

/// A frame, and then nothing.
struct OneFrame(u8);

impl FrameStream for OneFrame {
    fn advance(&mut self) -> Next {
        self.0 -= 1;
        if self.0 > 0 { Next::Frame } else { Next::End }
    }

    fn frame(&self) -> (&[u8], FrameInfo) {
        (&[0; 60], FrameInfo { wire_len: 60, ..FrameInfo::default() })
    }
}

/// Who is told about.
fn told(schedule: Option<u64>) -> Vec<String> {
    RELEASED.store(false, Ordering::Relaxed);
    let names = Arc::new(Mutex::new(Vec::new()));
    let watchdog = Watchdog {
        limit: Duration::from_millis(80),
        tell: Arc::new({
            let names = Arc::clone(&names);
            move |name: &str| {
                names.lock().expect("no panic").push(name.to_owned());
                RELEASED.store(true, Ordering::Relaxed);
            }
        }),
    };
    let control = Control { schedule, watchdog: Some(watchdog), ..Control::default() };
    let source = ReplaySource::load("one frame", &mut OneFrame(2), 1, Repeat::Passes(1));
    let report = launch(&plan(), Box::new(source), Box::new(NullSink), &control).expect("it ends");
    assert_eq!(report.total.packets_out, 1);
    let names = names.lock().expect("no panic");
    names.clone()
}

#[test]
fn a_handler_that_does_not_come_back_is_named() {
    assert_eq!(told(None), ["guard"]);
    assert_eq!(told(Some(4)), ["guard"]);
}

//! The certificate detects functions that break the rules: each function here is wrong in a way that the compiler cannot detect.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use braid_control::certify::{Request, certify_run};
use braid_control::frames::Frames;
use braid_control::profile::{Certificate, Violation};
use braid_control::runtime::io::generate::{Addresses, Generator, Profile};
use braid_control::runtime::nf::prelude::*;
use braid_control::runtime::nf::state::{MapConfig, VectorConfig};
use braid_control::runtime::nf::{Instance, Stage};
use braid_control::runtime::steer::{Fields, Key, Reta, Steering, Symmetry};
use braid_control::runtime::{BuildError, Plan};
use braid_nf::network_function;

/// Writes a number into the packet, where the replay will compare it.
fn stamp(packet: &mut Packet<'_>, number: u64) {
    if let Some(place) = packet.bytes_mut().last_chunk_mut() {
        *place = number.to_be_bytes();
    }
}

/// Implements a function without packet sets that handles every packet the same way.
macro_rules! orphans_only {
    ($type:ty, $name:literal, |$self:ident, $cx:ident, $packet:ident| $body:expr) => {
        impl NetworkFunction for $type {
            type Set = ();
            const NAME: &'static str = $name;
            fn first(&self, cx: &mut Cx<'_>, _: &mut Packet<'_>, _: &mut NewSet<'_, ()>) -> Handled {
                Ok(cx.pass())
            }
            fn packet(&self, cx: &mut Cx<'_>, _: &mut Packet<'_>, _: &mut ()) -> Handled {
                Ok(cx.pass())
            }
            fn orphan(&self, $cx: &mut Cx<'_>, $packet: &mut Packet<'_>) -> Handled {
                let $self = self;
                $body
            }
        }
    };
}

network_function! {
    /// Right: one shared counter in a vector.
    struct Honest { count: Vector<u64> }
}
orphans_only!(Honest, "honest", |this, cx, packet| {
    let count = this.count.update(cx, 0, |count| {
        *count += 1;
        *count
    })?;
    stamp(packet, count.unwrap_or(0));
    Ok(cx.pass())
});

static HIDDEN: AtomicU64 = AtomicU64::new(0);

network_function! {
    /// Wrong: counts behind the framework's back.
    struct Hidden {}
}
orphans_only!(Hidden, "hidden", |_this, cx, packet| {
    stamp(packet, HIDDEN.fetch_add(1, Ordering::Relaxed));
    Ok(cx.pass())
});

network_function! {
    /// Wrong: asks how many entries all workers together have put into a map, outside the transaction.
    struct Peeking { seen: Map<[u8; 8], u64> }
}
orphans_only!(Peeking, "peeking", |this, cx, packet| {
    let key = packet.bytes()[26..].first_chunk().copied().unwrap_or_default();
    this.seen.insert(cx, &key, &1)?;
    stamp(packet, this.seen.len() as u64);
    Ok(cx.pass())
});

network_function! {
    /// Wrong, and says so: panics at every fourth packet, after it has counted it.
    struct Fragile { count: Vector<u64> }
}
orphans_only!(Fragile, "fragile", |this, cx, packet| {
    this.count.update(cx, 0, |count| *count += 1)?;
    assert!(!packet.bytes()[29].is_multiple_of(4), "a packet that nobody expected");
    Ok(cx.pass())
});

network_function! {
    /// Right, but only where steering keeps all packets to one destination together.
    struct ByDestination {}
}

impl NetworkFunction for ByDestination {
    type Set = u64;
    const NAME: &'static str = "by_destination";

    fn packet_set(&self) -> Option<SetDef> {
        Some(SetDef::dst_ip())
    }

    fn first(&self, cx: &mut Cx<'_>, _: &mut Packet<'_>, set: &mut NewSet<'_, u64>) -> Handled {
        if !set.register(cx, 1) {
            return Ok(Verdict::Drop(Reason::SET_TABLE_FULL));
        }
        Ok(cx.pass())
    }

    fn packet(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, count: &mut u64) -> Handled {
        *count += 1;
        stamp(packet, *count);
        Ok(cx.pass())
    }
}

static TICKS: AtomicU64 = AtomicU64::new(0);

network_function! {
    /// Wrong: what its period sends depends on how often any worker has ever sent something.
    struct Clockwork {}
}

impl NetworkFunction for Clockwork {
    type Set = ();
    const NAME: &'static str = "clockwork";

    fn orphan(&self, cx: &mut Cx<'_>, _: &mut Packet<'_>) -> Handled {
        Ok(cx.pass())
    }

    fn ticks(&self) -> Vec<Duration> {
        vec![Duration::from_micros(10)]
    }

    fn tick(&self, cx: &mut Cx<'_>, _: Tick) -> Result<(), Conflict> {
        let mut frame = [0; 64];
        frame[56..].copy_from_slice(&TICKS.fetch_add(1, Ordering::Relaxed).to_be_bytes());
        cx.emit(0, &frame);
        Ok(())
    }
}

type Build = fn(&mut StateBuilder) -> Box<dyn Stage>;

fn certified(build: Build, hashed: Fields) -> Certificate {
    let workers = 2;
    let reta = Reta::new(128, workers).expect("a power of two");
    let build = Arc::new(move |builder: &mut StateBuilder| -> Result<_, BuildError> { Ok(vec![build(builder)]) });
    let plan = Plan {
        batch: 16,
        sets: 4096,
        steering: Arc::new(Steering::new(hashed, Symmetry::OneWay, &Key::microsoft(), reta).expect("fits")),
        own_fields: Vec::new(),
        ..Plan::for_tests(workers, build)
    };
    let mut config = Profile::Uniform.config(1000);
    config.flows = 500;
    // With many clients and few servers, packets to one destination come from many flows.
    config.addresses = Addresses { server_bits: 2, ..config.addresses };
    let frames = Frames::read(&mut Generator::new(config).expect("valid"), usize::MAX);
    let request = Request { frames: &frames, input: "uniform", runs: 12, seed: 0, watchdog: None, meanwhile: None };
    certify_run(&plan, vec!["function under test".into()], request, &mut |_| ()).expect("it runs")
}

fn violation(build: Build, hashed: Fields) -> Violation {
    let begun = Instant::now();
    let certificate = certified(build, hashed);
    let text = certificate.to_string();
    let violation = certificate.violation.unwrap_or_else(|| panic!("nothing was found:\n{text}"));
    assert!(begun.elapsed() < Duration::from_secs(15), "it took {:?}", begun.elapsed());
    assert!(violation.packets < 1000, "the input was not cut down:\n{text}");
    violation
}

fn vector(builder: &mut StateBuilder) -> Box<dyn Stage> {
    let count = Vector::new(builder, &VectorConfig { name: "count".into(), len: 1 }, 0).expect("small");
    Box::new(Instance::new("honest", Honest { count }))
}

fn map(builder: &mut StateBuilder) -> Box<dyn Stage> {
    let config = MapConfig { name: "seen".into(), capacity: 4096, ..MapConfig::default() };
    Box::new(Instance::new("peeking", Peeking { seen: Map::new(builder, &config).expect("small") }))
}

#[test]
fn an_honest_function_is_certified() {
    let certificate = certified(vector, Fields::FOUR_TUPLE);
    assert!(certificate.holds(), "{certificate}");
    assert_eq!(certificate.runs.len(), 12);
    assert!(certificate.runs.iter().any(|run| run.aborts > 0), "nothing was contended");
}

#[test]
fn a_count_behind_the_frameworks_back_is_caught() {
    let violation = violation(|_| Box::new(Instance::new("hidden", Hidden {})), Fields::FOUR_TUPLE);
    let packet = violation.packet.expect("a packet differs");
    assert_eq!(packet.function, "hidden");
    assert_ne!(packet.parallel.bytes, packet.sequential.bytes);
}

#[test]
fn a_period_that_sends_something_else_is_caught() {
    let violation = violation(|_| Box::new(Instance::new("clockwork", Clockwork {})), Fields::FOUR_TUPLE);
    assert!(violation.what.contains("clockwork made other packets"), "{}", violation.what);
}

#[test]
fn looking_at_state_outside_the_transaction_is_caught() {
    assert!(violation(map, Fields::FOUR_TUPLE).packet.is_some());
}

#[test]
fn sets_that_steering_keeps_and_sets_that_it_tears_apart_are_certified() {
    for steering in [Fields::FOUR_TUPLE, Fields::of(&[braid_control::runtime::nf::packet::FieldId::IpDst])] {
        let certificate = certified(|_| Box::new(Instance::new("by_destination", ByDestination {})), steering);
        assert!(certificate.holds(), "{certificate}");
    }
}

#[test]
fn handlers_that_panic_are_counted_and_said_beside_the_certificate() {
    let fragile = |builder: &mut StateBuilder| -> Box<dyn Stage> {
        let count = Vector::new(builder, &VectorConfig { name: "count".into(), len: 1 }, 0).expect("small");
        Box::new(Instance::new("fragile", Fragile { count }))
    };
    let certificate = certified(fragile, Fields::FOUR_TUPLE);
    assert!(certificate.holds() && certificate.panics() > 0, "{certificate}");
    let said = format!("but handlers panicked {} times", certificate.panics());
    assert!(certificate.to_string().contains(&said), "{certificate}");
    assert!(!certified(vector, Fields::FOUR_TUPLE).to_string().contains("panicked"));
}

//! Work on shared state that is divided among the workers: expiry of shared sets, and ticks of functions that declare it.

mod traffic;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use braid_io::NullSink;
use braid_io::memory::Repeat;
use braid_nf::packet::key::SetDef;
use braid_nf::prelude::*;
use braid_nf::state::{ROW, Share, StateBuilder, VectorConfig};
use braid_nf::{Instance, Stage};
use braid_runtime::{Control, Plan, Report, launch};
use traffic::{Sent, replayed};

/// Number of sources that send once; then a further one sends until long after their timeout.
const SOURCES: u64 = 20_000;
const PACKETS: u64 = SOURCES + 8_000;

/// How often each share of the divided tick ran and, last, how often the other tick did.
static TURNS: Mutex<Vec<u64>> = Mutex::new(Vec::new());

network_function! {
    /// Packets of each source: a set that steering by flows tears apart.
    struct PerSource { turns: Vector<u64> }
}

/// The cell that counts the tick that is not divided.
const UNDIVIDED: u32 = 7;

impl NetworkFunction for PerSource {
    type Set = u64;
    const NAME: &'static str = "per_source";

    fn packet_set(&self) -> Option<SetDef> {
        Some(SetDef::src_ip())
    }

    fn timeout_ns(&self, _: &u64) -> u64 {
        1_000_000_000
    }

    fn ticks(&self) -> Vec<Duration> {
        vec![Duration::from_millis(100); 2]
    }

    fn divides(&self, period: usize) -> bool {
        period == 1
    }

    fn tick(&self, cx: &mut Cx<'_>, tick: Tick) -> Result<(), Conflict> {
        let part = tick.share.row(0, u32::MAX).start / ROW;
        assert!(tick.period == 1 || tick.share == Share::ALL, "the whole of what is not divided");
        self.turns.update(cx, if tick.period == 1 { part } else { UNDIVIDED }, |turns| *turns += 1)?;
        Ok(())
    }

    fn first(&self, cx: &mut Cx<'_>, _: &mut Packet<'_>, set: &mut NewSet<'_, u64>) -> Handled {
        Ok(if set.register(cx, 1) { cx.pass() } else { Verdict::Drop(Reason::SET_TABLE_FULL) })
    }

    fn packet(&self, cx: &mut Cx<'_>, _: &mut Packet<'_>, packets: &mut u64) -> Handled {
        *packets += 1;
        Ok(cx.pass())
    }

    fn stop(&self, cx: &mut Cx<'_>) -> Result<(), Conflict> {
        let turns = (0..=UNDIVIDED).map(|cell| Ok(self.turns.get(cx, cell)?.unwrap_or_default()));
        *TURNS.lock().expect("nobody panics with it") = turns.collect::<Result<_, _>>()?;
        Ok(())
    }
}

fn run(workers: usize) -> (Report, Vec<u64>) {
    let build = |builder: &mut StateBuilder| {
        let config = VectorConfig { name: "turns".into(), len: UNDIVIDED + 1 };
        let turns = Vector::new(builder, &config, 0).expect("there is memory");
        Ok(vec![Box::new(Instance::new("per_source", PerSource { turns })) as Box<dyn Stage>])
    };
    let plan = Plan { sets: 1 << 17, in_order: true, ..Plan::for_tests(workers, Arc::new(build)) };
    // Many sources, then one with many flows.
    let packet = |n: u64| Sent {
        from: n.min(SOURCES) as u16,
        port: n as u16,
        at_ns: (n + 1).saturating_sub(SOURCES) * 1_000_000,
        ..Sent::default()
    };
    let source = replayed(PACKETS, Repeat::Passes(1), packet);
    let report = launch(&plan, Box::new(source), Box::new(NullSink), &Control::default()).expect("it ends");
    (report, std::mem::take(&mut TURNS.lock().expect("nobody panics with it")))
}

#[test]
fn all_workers_sweep_what_they_share() {
    for workers in [2, 3, 5] {
        let (report, turns) = run(workers);
        assert_eq!((report.total.packets_out, report.total.sets_created), (PACKETS, SOURCES + 1));
        assert_eq!(
            report.total.sets_expired, SOURCES,
            "a table of 131,072 with {workers} workers, in some hundred batches"
        );
        assert!(turns[..workers].iter().all(|turns| *turns > 10), "{turns:?}");
        assert!(turns[workers..UNDIVIDED as usize].iter().all(|turns| *turns == 0), "{turns:?}");
        assert!((10..=81).contains(&turns[UNDIVIDED as usize]), "once each: {turns:?}");
    }
}

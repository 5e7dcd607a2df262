//! A run whose plan is changed again and again, for years of an operator's life: what a change replaces is given back.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use braid_cli::catalog::catalog;
use braid_cli::control::live::{Current, Refused, Service};
use braid_cli::control::plan_file::PlanFile;
use braid_cli::control::runtime::io::NullSink;
use braid_cli::control::runtime::{Control, Live, Report, launch};
use braid_cli::control::{Carry, Plan};
use braid_cli::input::Input;

/// Packets for longer than any test runs.
const TRAFFIC: &str = "sets = 20000\ntime = \"live\"\npages = \"never\"\n\
    [input]\nfrom = [\"gen:uniform?packets=4000000000&flows=2000&seed=5\"]\n";

struct Run {
    live: Arc<Live>,
    service: Arc<Service>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Report>,
}

impl Run {
    fn start(workers: usize, chain: &str) -> Run {
        let file = PlanFile::parse(&format!("workers = {workers}\n{TRAFFIC}{chain}")).expect("a plan of the tests");
        let plan = Plan::new(&file, &catalog(Vec::new())).expect("a plan of the tests");
        let source = Input::of(&plan).and_then(|input| input.source()).expect("traffic is made");
        let compiled = Arc::new(plan.compile(Carry::Capture).expect("a plan of the tests"));
        let (live, stop) = (Live::new(plan.workers), Arc::<AtomicBool>::default());
        let control = Control { live: Some(Arc::clone(&live)), stop: Arc::clone(&stop), ..Control::default() };
        let run = compiled.run.clone();
        let current =
            Current { catalog: catalog(Vec::new()), file, plan, compiled, carry: Carry::Capture, successor: None };
        let service = Service::new(&live, &stop, current);
        let thread = std::thread::spawn(move || launch(&run, source, Box::new(NullSink), &control).expect("it runs"));
        let run = Run { live, service, stop, thread };
        while run.live.running().is_none() {
            assert!(!run.thread.is_finished(), "the run has not begun");
            std::thread::sleep(Duration::from_millis(1));
        }
        run.handle_more();
        run
    }

    /// Waits until packets have gone through the chain that is there now.
    fn handle_more(&self) {
        let packets = || {
            assert!(!self.thread.is_finished(), "the run has ended");
            self.service.stats(false).packets_in
        };
        let before = packets();
        while packets() < before + 500 {
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    fn apply(&self, chain: &str) -> Result<(), Refused> {
        self.service.apply(chain).map(drop)
    }

    fn mapped(&self) -> usize {
        self.live.running().expect("it runs").domain.mapped_bytes()
    }

    /// How many structures have a number.
    fn numbers(&self) -> usize {
        self.live.running().expect("it runs").domain.objects().len()
    }

    fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        let report = self.thread.join().expect("the run ends");
        assert_eq!((report.total.missing(), report.total.panics), (0, 0));
    }
}

fn nf(function: &str, config: &str) -> String {
    format!("[[nf]]\nfunction = \"{function}\"\n[nf.config]\n{config}\n")
}

fn nat(mappings: u32) -> String {
    nf("nat", &format!("mappings_max = {mappings}"))
}

#[test]
fn hundreds_of_changes_of_large_objects_leave_as_much_memory_as_there_was() {
    let firewall = |connections: u32| nf("firewall", &format!("connections_max = {connections}"));
    let plans = [
        firewall(20_000) + &nat(20_000),
        nf("dns_tunnel", "") + &firewall(10_000) + &nat(40_000),
        firewall(30_000) + &nat(20_000),
    ];
    let run = Run::start(2, &plans[0]);
    let (mut seen, mut numbers) = ([(); 3].map(|()| BTreeSet::new()), 0);
    for round in 0..100 {
        for at in [1, 2, 0] {
            run.apply(&plans[at]).expect("its state survives that");
            seen[at].insert(run.mapped());
            if round % 10 == 0 {
                run.handle_more();
            }
        }
        // What comes has a number before what goes has given its own back: twice round there are enough.
        match round {
            0 | 1 => numbers = run.numbers(),
            _ => assert_eq!(run.numbers(), numbers),
        }
    }
    // The same plan takes the same memory, whatever came before it.
    assert_eq!(seen.map(|sizes| sizes.len()), [1, 1, 1]);
    run.stop();
}

#[test]
fn a_refused_change_leaves_nothing_behind() {
    let run = Run::start(2, &nat(20_000));
    let before = run.mapped();
    for _ in 0..20 {
        // Known only when the new chain, with its state, has been built.
        let other = nat(20_000) + &nf("firewall", "connections_max = 50000");
        run.apply(&other).expect_err("packets from outside would meet the functions in another order");
        assert_eq!(run.mapped(), before);
    }
    run.stop();
}

#[test]
fn every_function_that_comes_and_goes_takes_its_memory_with_it() {
    let catalog = catalog(Vec::new());
    let mut came = Vec::new();
    // Those behind which packets come back the other way stand beside another one.
    for (mirrors, stays) in [(false, nf("flow_counter", "")), (true, nat(1000))] {
        // With several workers packets would often have to be steered otherwise.
        let run = Run::start(1, &stays);
        let before = run.mapped();
        for entry in catalog.entries().iter().filter(|entry| entry.mirrors == mirrors) {
            for _ in 0..2 {
                let plan = format!("{stays}[[nf]]\nname = \"guest\"\nfunction = \"{}\"\n", entry.name);
                // Some need to be told more.
                let Ok(()) = run.apply(&plan) else { continue };
                run.handle_more();
                run.apply(&stays).expect("the guest goes");
                assert_eq!(run.mapped(), before, "{}", entry.name);
                came.push(&entry.name);
            }
        }
        run.stop();
    }
    came.dedup();
    assert!(came.len() >= 12, "only {came:?}");
}

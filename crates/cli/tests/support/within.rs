//! A run within the test itself, asked without a socket.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use braid_cli::catalog::catalog;
use braid_cli::control::live::knowledge::{Knowledge, WrittenConfigs};
use braid_cli::control::live::{Current, Refused, Service};
use braid_cli::control::plan::command_line::CommandLine;
use braid_cli::control::plan::file::PlanFile;
use braid_cli::control::runtime::io::NullSink;
use braid_cli::control::runtime::{Control, Live, Report, launch};
use braid_cli::control::{Carry, Plan};
use braid_cli::input::Input;

/// Packets for longer than any test runs.
const TRAFFIC: &str = "sets = 20000\ntime = \"live\"\npages = \"never\"\n\
    [input]\nfrom = [\"gen:uniform?packets=4000000000&flows=2000&seed=5\"]\n";

/// A run that goes on.
pub struct Run {
    pub live: Arc<Live>,
    pub service: Arc<Service>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Report>,
}

impl Run {
    pub fn start(workers: usize, chain: &str) -> Run {
        let file = PlanFile::parse(&format!("workers = {workers}\n{TRAFFIC}{chain}")).expect("a plan of the tests");
        let plan = Plan::new(&file, &catalog(Vec::new())).expect("a plan of the tests");
        let source = Input::of(&plan).and_then(|input| input.source()).expect("traffic is made");
        let compiled = Arc::new(plan.compile(Carry::Capture).expect("a plan of the tests"));
        let (live, stop) = (Live::new(plan.workers), Arc::<AtomicBool>::default());
        let control = Control { live: Some(Arc::clone(&live)), stop: Arc::clone(&stop), ..Control::default() };
        let run = compiled.run.clone();
        let current = Current {
            catalog: catalog(Vec::new()),
            file,
            command_line: CommandLine::default(),
            plan,
            compiled,
            carry: Carry::Capture,
            knowledge: Knowledge::default(),
            written: WrittenConfigs::new(),
            successor: None,
        };
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
    pub fn handle_more(&self) {
        let packets = || {
            assert!(!self.thread.is_finished(), "the run has ended");
            self.service.stats(false).packets_in
        };
        let before = packets();
        while packets() < before + 500 {
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    pub fn apply(&self, chain: &str) -> Result<(), Refused> {
        self.service.apply(chain).map(drop)
    }

    pub fn mapped(&self) -> usize {
        self.live.running().expect("it runs").domain.mapped_bytes()
    }

    /// How many structures have a number.
    pub fn numbers(&self) -> usize {
        self.live.running().expect("it runs").domain.objects().len()
    }

    pub fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        let report = self.thread.join().expect("the run ends");
        assert_eq!((report.total.missing(), report.total.panics), (0, 0));
    }
}

//! Bytes as what an operator, or somebody who would like to be one, gives a run that goes on. The first byte says what the rest
//! is: requests over the control socket, a plan file that is made runnable, or a saved state that a new run begins with. All of it
//! is carried out, or refused with a reason; never a panic, and the run goes on.
#![no_main]

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use braid_control::live::{Current, Request, Service, Snapshot};
use braid_control::plan::file::PlanFile;
use braid_control::runtime::io::{
    NullSink, OpenError, Progress, QueueSelect, Received, RxCounters, RxQueue, Source, Unit,
};
use braid_control::runtime::nf::packet::crc32c::crc32c;
use braid_control::runtime::nf::packet::{Batch, Buffers};
use braid_control::runtime::{Control, Live, launch};
use braid_control::{Carry, Catalog, Compiled, Plan};
use braid_testkit::Frame;
use libfuzzer_sys::fuzz_target;

const PLAN: &str = "workers = 1\npages = \"never\"\nsets = 1024\n[[nf]]\nfunction = \"firewall\"\n[[nf]]\nfunction = \"nat\"\n\
    [nf.config]\nmappings_max = 64\nfirst_port = 10000\nlast_port = 10063\n";

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, bytes)) = bytes.split_first() else { return };
    match choice % 3 {
        0 => String::from_utf8_lossy(bytes).lines().for_each(ask),
        1 => plan(&String::from_utf8_lossy(bytes)),
        _ => begin_with(bytes),
    }
});

/// Carries a request out, unless it would end the run or reach beyond it.
fn ask(line: &str) {
    let request = match Request::parse(line) {
        Err(refused) => return assert!(!refused.what.is_empty()),
        Ok(Request::Stop {} | Request::Upgrade { .. }) => return,
        Ok(Request::Snapshot { .. }) => Request::Snapshot { path: PathBuf::from("/dev/null/nowhere") },
        Ok(Request::Trace { filter, count, seconds }) => Request::Trace { filter, count, seconds: seconds.min(0.001) },
        Ok(request) => request,
    };
    if let Err(refused) = running().answer(request, &mut |_| Ok(())) {
        assert!(!refused.what.is_empty());
    }
}

fn plan(text: &str) {
    let Ok(file) = PlanFile::parse(text) else { return };
    if let Err(problem) = Plan::new(&file, &catalog()).and_then(|plan| plan.compile(Carry::Capture)) {
        assert!(!problem.to_string().is_empty());
    }
}

/// A state with its checksum mended, or nothing behind it would ever be reached.
fn begin_with(bytes: &[u8]) {
    let mut file = [b"BRAIDSNP\x01\0\0\0", bytes].concat();
    file.extend_from_slice(&crc32c(&file).to_le_bytes());
    let Ok(snapshot) = Snapshot::decode(&file) else { return };
    assert_eq!(Snapshot::decode(&snapshot.encode()).as_ref(), Ok(&snapshot), "what is written is read");
    let (plan, compiled) = own_plan();
    let Ok(saved) = snapshot.for_plan(&plan) else { return };
    let control = Control { restore: Some(Arc::new(saved)), ..Control::default() };
    if let Ok(report) = launch(&compiled.run, Box::new(Quiet { ends: true }), Box::new(NullSink), &control) {
        assert_eq!(report.total.panics, 0);
    }
}

fn own_plan() -> (Plan, Compiled) {
    let file = PlanFile::parse(PLAN).expect("a plan of the tests");
    let plan = Plan::new(&file, &catalog()).expect("a plan of the tests");
    let compiled = plan.compile(Carry::Capture).expect("a plan of the tests");
    (plan, compiled)
}

/// The run that all requests meet; it goes on as long as the process.
fn running() -> &'static Service {
    static SERVICE: OnceLock<Arc<Service>> = OnceLock::new();
    SERVICE.get_or_init(|| {
        let (plan, compiled) = own_plan();
        let file = PlanFile::parse(PLAN).expect("a plan of the tests");
        let (live, stop, compiled) = (Live::new(plan.workers), Arc::<AtomicBool>::default(), Arc::new(compiled));
        let current = Current {
            catalog: catalog(),
            file,
            plan,
            compiled: Arc::clone(&compiled),
            carry: Carry::Capture,
            applied: None,
        };
        let service = Service::new(&live, &stop, current);
        let control = Control { live: Some(Arc::clone(&live)), stop, ..Control::default() };
        std::thread::spawn(move || {
            let report = launch(&compiled.run, Box::new(Quiet { ends: false }), Box::new(NullSink), &control);
            panic!("the run has ended: {report:?}");
        });
        while live.running().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        service
    })
}

fn catalog() -> Catalog {
    static CATALOG: OnceLock<Catalog> = OnceLock::new();
    CATALOG.get_or_init(|| braid_cli::catalog::catalog(Vec::new())).clone()
}

/// A connection of which a packet comes in now and then; or nothing at all.
struct Quiet {
    ends: bool,
}

impl Source for Quiet {
    fn name(&self) -> String {
        "quiet".to_owned()
    }

    fn ports(&self) -> usize {
        2
    }

    fn progress(&self) -> Arc<Progress> {
        Arc::new(Progress::new(Unit::Packets))
    }

    fn open(self: Box<Self>, _: usize, _: Arc<dyn QueueSelect>) -> Result<Vec<Box<dyn RxQueue>>, OpenError> {
        Ok(vec![self])
    }
}

impl RxQueue for Quiet {
    fn receive(&mut self, batch: &mut Batch, buffers: &mut Buffers, _: usize) -> Received {
        if self.ends {
            return Received::End;
        }
        std::thread::sleep(Duration::from_micros(50));
        let frame = Frame::udp("10.0.0.1:5000", "192.0.2.1:53").bytes();
        match batch.copy_in(buffers, &frame, &Default::default()) {
            true => Received::Packets,
            false => Received::Idle,
        }
    }

    fn horizon(&self) -> u64 {
        0
    }

    fn counters(&self) -> RxCounters {
        RxCounters::default()
    }
}

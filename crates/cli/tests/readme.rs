//! The README's network function: what is printed there is what is compiled here, does what is said, and is certified.

#[path = "../examples/guests.rs"]
mod guests;

use braid_cli::catalog;
use braid_cli::control::Plan;
use braid_cli::control::certify::{Request, certify};
use braid_cli::control::frames::Frames;
use braid_cli::control::plan::file::{PlanFile, unplaced};
use braid_cli::control::runtime::io::capture::CaptureSource;
use braid_functions::FromConfig;
use braid_nf::Instance;
use braid_testkit::{Bench, Frame};
use guests::{Config, Guests};

/// What stands between two marks.
fn between<'a>(text: &'a str, begin: &str, end: &str) -> &'a str {
    let (_, rest) = text.split_once(begin).unwrap_or_else(|| panic!("no {begin}"));
    rest.split_once(end).unwrap_or_else(|| panic!("no {end} after {begin}")).0
}

#[test]
fn the_readme_prints_the_function_that_is_tested() {
    let printed = between(include_str!("../../../README.md"), "```rust\n", "```");
    let compiled = between(include_str!("../examples/guests.rs"), "// listing: begin\n", "// listing: end");
    assert_eq!(printed, compiled, "copy the listing of crates/cli/examples/guests.rs to README.md");
}

#[test]
fn so_many_sources_talk_and_a_silent_one_makes_room() {
    let config = Config { guests_max: 2, packets_max: 3 };
    let mut bench = Bench::new(2, |builder| {
        Box::new(Instance::new("guests", Guests::from_config(config, builder, 2).expect("a function")))
    });
    let mut send = |second: u64, source: &str| {
        let outcome = bench.send(0, second * 1000, &Frame::udp(source, "192.0.2.1:53").bytes());
        outcome.dropped.unwrap_or("sent")
    };
    assert_eq!([send(0, "10.0.0.1:1"), send(0, "10.0.0.2:1"), send(0, "10.0.0.3:1")], ["sent", "sent", "house_full"]);
    assert_eq!([send(1, "10.0.0.1:2"), send(1, "10.0.0.1:3"), send(1, "10.0.0.1:4")], ["sent", "sent", "too_many"]);
    send(10, "10.0.0.1:5");
    send(12, "10.0.0.1:5");
    assert_eq!(send(13, "10.0.0.3:1"), "sent", "10.0.0.2 has been silent for more than ten seconds");
}

#[test]
fn no_number_of_workers_lets_one_source_too_many_in() {
    let office = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/traffic/office.pcapng");
    let mut stream = CaptureSource::new(vec![office.into()]).into_stream().expect("a capture");
    let frames = Frames::read(&mut stream, 2000);
    let catalog = catalog::catalog(vec![catalog::own::<Guests>("", 2)]);
    let mut file = PlanFile::of_functions(["guests"]);
    file.workers = Some(unplaced(4));
    file.nf[0].config.set("guests_max", toml::Value::Integer(10));
    let plan = Plan::new(&file, &catalog).expect("a plan");
    let request = Request { frames: &frames, input: "office", runs: 10, seed: 0, watchdog: None, meanwhile: None };
    let certificate = certify(&plan, request, &mut |_| ()).expect("a certificate");
    assert!(certificate.holds(), "{certificate}");
}

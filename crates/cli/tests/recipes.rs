//! A user's way from a slow function to a fast one: run the anti-DDoS as it comes, do only what the profile says.

use braid_cli::catalog::catalog;
use braid_cli::input::generated;
use braid_control::frames::Frames;
use braid_control::model::{Request, modelled};
use braid_control::plan::text::plan_text;
use braid_control::profile::{Profile, html};
use braid_control::profile_run::profile;
use braid_control::runtime::io::generate::Generator;
use braid_control::runtime::model::virtual_time::{Costs, StageCosts};
use braid_control::tune::tune;
use braid_control::{Plan, PlanFile};

const WORKERS: usize = 8;

fn plan(text: &str) -> Plan {
    let file = PlanFile::parse(text).expect("a plan");
    Plan::new(&file, &catalog(Vec::new())).expect("a right plan")
}

fn flood() -> Frames {
    let config = generated::config("syn_flood?packets=20000&flows=20000&seed=3").expect("a profile");
    Frames::read(&mut Generator::new(config).expect("a generator"), 20_000)
}

fn request(frames: &Frames) -> Request<'_> {
    Request { frames, input: "a SYN flood", packets: 12_000, repeats: 1, seed: 1 }
}

/// A profile of virtual workers: the same on every machine.
fn profiled(plan: &Plan, frames: &Frames) -> Profile {
    let stage = StageCosts {
        look_up: 10.0,
        packet: 40.0,
        access: 2.0,
        packet_again: 40.0,
        access_again: 2.0,
        commit: 30.0,
        commit_access: 1.0,
        has_objects: true,
        ..StageCosts::default()
    };
    let costs = Costs {
        receive: 10.0,
        parse: 5.0,
        send: 5.0,
        stages: vec![stage],
        transfer: 50.0,
        wait: 20.0,
        ..Costs::default()
    };
    let report = modelled(plan, WORKERS, &costs, request(frames)).expect("it runs");
    profile(plan, "a SYN flood", &report, true)
}

const AS_IT_COMES: &str = "workers = 8\nsets = 100000\n[[nf]]\nfunction = \"anti_ddos\"\n";

#[test]
fn the_profile_names_the_staleness_and_with_it_the_aborts_vanish() {
    let frames = flood();
    let slow = profiled(&plan(AS_IT_COMES), &frames);
    assert!(slow.abort_share() > 0.5, "{slow}");
    assert_eq!(slow.with_itself, 0);
    let top = slow.causes.iter().find(|cause| !cause.object.is_empty()).expect("a cause");
    assert_eq!((top.object.as_str(), top.mine.as_str(), top.theirs.as_str()), ("anti_ddos.counters", "read", "update"));
    assert!(top.line.contains("anti_ddos/mod.rs:"), "{}", top.line);
    let change = top.change.as_deref().expect("something to write");
    let setting = change.lines().next().and_then(|line| line.split_once(": ")).expect("a setting").1;
    let set = top.setting.as_ref().map(|set| format!("{} = {}", set.key, set.value));
    assert_eq!(set.as_deref(), Some(setting));
    let fast = profiled(&plan(&format!("{AS_IT_COMES}[nf.config]\n{setting}\n")), &frames);
    assert!(fast.abort_share() < 0.02, "{fast}");
    assert!(fast.rate() > 2.0 * slow.rate(), "{} {}", slow.rate(), fast.rate());
}

#[test]
fn tuning_writes_a_plan_that_can_be_read_and_carries_its_evidence() {
    let frames = flood();
    let finer = "fields = ['ip.src', 'ip.dst', 'port.src', 'port.dst', 'ip.proto', 'vlan']\nprotocols = [6]";
    let before = plan(&format!("{AS_IT_COMES}[nf.packet_set]\n{finer}\n[input]\nfrom = ['gen:scan']"));
    let outcome = tune(&before, WORKERS, request(&frames)).expect("it runs");
    assert!(outcome.tuned[0].chosen.is_some(), "{:?}", outcome.tuned);
    let text = plan_text(&outcome);
    assert!(text.contains("(modelled)") && text.contains("measured here") && text.contains("2 workers: "), "{text}");
    let again = plan(&text);
    assert_eq!(again.chain[0].config.table(), outcome.plan.chain[0].config.table(), "{text}");
    assert_eq!(again.chain[0].packet_set, outcome.plan.chain[0].packet_set, "{text}");
    let whole = |plan: &Plan| (plan.workers, plan.batch, plan.ports, plan.sets, plan.from.clone(), plan.split.clone());
    assert_eq!(whole(&again), whole(&before), "{text}");
    for key in ["workers", "batch", "ports", "sets", "time", "distribution", "pages", "name"] {
        assert!(text.contains(&format!("\n{key} = ")), "no {key}: {text}");
    }
}

#[test]
fn a_tuned_plan_keeps_interfaces_order_and_conditions() {
    let frames = flood();
    let text = "workers = 2\nsets = 100000\nports = 3\n\
        [[port]]\ndevice = 'af_xdp:veth0?mode=generic&copy=copy&busy_poll=20'\n[[port]]\ndevice = 'eth1'\n\
        [[port]]\ndevice = 'memif:/run/a.sock?id=3&role=server&secret=x'\n\
        [chain]\norder = 'mirrored'\noutside = [1, 2]\n\
        [[nf]]\nfunction = 'flow_counter'\nname = 'counter'\nfull = 'evict_oldest'\nwhen = { in = [0, 1], flooded = false }\n\
        [[nf]]\nfunction = 'anti_ddos'\nwhen = { out = [2] }\n";
    let before = plan(text);
    let written = plan_text(&tune(&before, 2, request(&frames)).expect("it runs"));
    let again = plan(&written);
    assert_eq!(again.devices, before.devices, "{written}");
    assert_eq!(again.course, before.course, "{written}");
    assert_eq!(
        (again.ports, again.time, again.distribution),
        (before.ports, before.time, before.distribution),
        "{written}"
    );
    assert!(again.from.is_empty(), "{written}");
}

#[test]
fn the_page_stands_by_itself() {
    let page = html::page(&profiled(&plan(AS_IT_COMES), &flood()), None);
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    assert!(page.contains("<svg") && page.contains("staleness_us"));
    assert!(!page.contains("http") && !page.contains("<script"));
}

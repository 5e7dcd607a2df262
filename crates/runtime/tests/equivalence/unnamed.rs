//! A function that changes a field of packet-set keys, with and without declaring it.

use std::net::Ipv4Addr;
use std::sync::Arc;

use braid_nf::prelude::*;
use braid_nf::{Instance, Stage};
use braid_packet::PortSet;
use braid_runtime::replay::{Difference, Replay};
use braid_runtime::{Control, Course, Distribution, Order, Plan};

use super::{plan, run};

const SOURCE: &[FieldId] = &[FieldId::IpSrc];

network_function! {
    /// Gives every packet one source address, and names that for packets of these sides.
    struct Masquerade { inside: bool, outside: bool }
}

impl NetworkFunction for Masquerade {
    type Set = ();
    const NAME: &'static str = "masquerade";

    fn rewrites(&self) -> Rewrites {
        let named = |is_named: bool| if is_named { SOURCE } else { &[] };
        Rewrites { from_inside: named(self.inside), from_outside: named(self.outside) }
    }

    fn orphan(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        packet.set_src_ip(Ipv4Addr::new(192, 0, 2, 1).into());
        Ok(cx.pass())
    }
}

network_function! {
    /// Counts the packets of each source.
    struct Sources {}
}

impl NetworkFunction for Sources {
    type Set = u64;
    const NAME: &'static str = "sources";

    fn packet_set(&self) -> Option<SetDef> {
        Some(SetDef::src_ip())
    }

    fn first(&self, cx: &mut Cx<'_>, _: &mut Packet<'_>, set: &mut NewSet<'_, u64>) -> Handled {
        Ok(if set.register(cx, 1) { cx.pass() } else { Verdict::Drop(Reason::SET_TABLE_FULL) })
    }

    fn packet(&self, cx: &mut Cx<'_>, _: &mut Packet<'_>, packets: &mut u64) -> Handled {
        *packets += 1;
        Ok(cx.pass())
    }
}

/// The undeclared functions and fields that a replay reports, with the packet.
fn unnamed([inside, outside]: [bool; 2], course: Course) -> Vec<(String, &'static str, u64)> {
    let build = Arc::new(move |_: &mut StateBuilder| {
        let before: Box<dyn Stage> = Box::new(Instance::new("before", Sources {}));
        let masquerade = Box::new(Instance::new("masquerade", Masquerade { inside, outside }));
        Ok(vec![before, masquerade, Box::new(Instance::new("behind", Sources {}))])
    });
    let plan = Plan { build, course, ..plan(2, Distribution::Hardware) };
    let mut report = run(&plan, &Control { record: true, schedule: Some(3), ..Control::default() }, 500);
    let record = report.record.take().expect("it was recorded");
    let fresh = braid_runtime::launch::build(&plan).expect("builds again");
    let mut tx = braid_state::Tx::new(&fresh.domain, 0);
    tx.replay(0, Vec::new());
    let replay = Replay::new(Arc::clone(&fresh.chain), tx, 4096, plan.ports, 4096).expect("memory");
    let (differences, _) = replay.run(&record.logs);
    let unnamed = differences.into_iter().filter_map(|difference| match difference {
        Difference::Unnamed { function, field, packet } => Some((function, field, packet)),
        _ => None,
    });
    unnamed.collect()
}

#[test]
fn a_change_that_is_not_named_is_found_out_once() {
    let found = unnamed([false; 2], Course::default());
    assert_eq!(
        found.iter().map(|(function, field, _)| (&**function, *field)).collect::<Vec<_>>(),
        [("masquerade", "ip.src")]
    );
    assert!(unnamed([true; 2], Course::default()).is_empty());
}

#[test]
fn in_a_chain_that_is_one_transaction_the_functions_of_the_way_are_named() {
    let atomic = || Course { atomic: true, ..Course::default() };
    let found = unnamed([false; 2], atomic());
    assert_eq!(
        found.iter().map(|(function, field, _)| (&**function, *field)).collect::<Vec<_>>(),
        [("before, masquerade, behind", "ip.src")]
    );
    assert!(unnamed([true; 2], atomic()).is_empty());
}

#[test]
fn what_is_named_of_the_other_side_does_not_count_in_a_mirrored_chain() {
    let mirrored = || Course { order: Order::Mirrored { outside: PortSet::ODD }, ..Course::default() };
    assert_eq!(unnamed([false, true], mirrored()).len(), 1, "all packets come by port 0");
    assert!(unnamed([true, false], mirrored()).is_empty());
}

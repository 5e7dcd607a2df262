//! What certificates say of functions that are broken on purpose.

use std::sync::atomic::{AtomicU64, Ordering};

use braid_control::frames::Frames;
use braid_io::capture::{CaptureSource, PortSplit};
use braid_nf::Instance;
use braid_nf::prelude::*;
use braid_testkit::captures::recorded;

use super::certificate;
use crate::run::Case;

static RACY: AtomicU64 = AtomicU64::new(0);

network_function! {
    /// Broken on purpose: it numbers packets from a counter that no transaction guards, which safe Rust cannot forbid.
    struct Racy {}
}

impl Racy {
    fn number(cx: &Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        // Relaxed: it is wrong under every ordering.
        let number = RACY.fetch_add(1, Ordering::Relaxed);
        if let Some(last) = packet.bytes_mut().last_mut() {
            *last = number as u8;
        }
        Ok(cx.pass())
    }
}

impl NetworkFunction for Racy {
    type Set = ();
    const NAME: &'static str = "racy";

    fn first(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, _: &mut NewSet<'_, ()>) -> Handled {
        Racy::number(cx, packet)
    }

    fn packet(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, (): &mut ()) -> Handled {
        Racy::number(cx, packet)
    }

    fn orphan(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        Racy::number(cx, packet)
    }
}

network_function! {
    /// Broken on purpose: it swallows conflicts instead of handing them on, and so sends packets of aborted attempts.
    struct Torn { cells: Vector<u64> }
}

impl Torn {
    fn count(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        let seen = self.cells.update(cx, 0, |seen| {
            *seen += 1;
            *seen
        });
        let number = seen.ok().flatten().unwrap_or(0);
        if let Some(last) = packet.bytes_mut().last_mut() {
            *last = number as u8;
        }
        Ok(cx.pass())
    }
}

impl NetworkFunction for Torn {
    type Set = ();
    const NAME: &'static str = "torn";

    fn first(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, _: &mut NewSet<'_, ()>) -> Handled {
        self.count(cx, packet)
    }

    fn packet(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, (): &mut ()) -> Handled {
        self.count(cx, packet)
    }

    fn orphan(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        self.count(cx, packet)
    }
}

fn office(packets: usize) -> Frames {
    let source = CaptureSource::new(vec![recorded("office.pcapng")]).split(PortSplit::Single);
    Frames::read(&mut source.into_stream().expect("a capture"), packets)
}

#[test]
fn a_function_that_shares_behind_the_back_of_transactions_is_not_certified() {
    let case = Case::new(2, 2, |_| vec![Box::new(Instance::new("racy", Racy {}))]);
    let certificate = certificate(&case, "racy", "office.pcapng", &office(300), 20);
    let violation = certificate.violation.as_ref().expect("it is found out");
    assert!(certificate.runs.len() <= 2, "by the first runs: {certificate}");
    assert!(violation.packet.is_some(), "the packet is shown: {certificate}");
    assert!(violation.packets < 300, "the input is cut down: {certificate}");
}

#[test]
fn a_function_that_ignores_conflicts_is_certified_all_the_same_because_they_stick() {
    let case = Case::new(2, 4, |builder| {
        let config = braid_nf::state::VectorConfig { name: "cells".into(), len: 1 };
        vec![Box::new(Instance::new("torn", Torn { cells: Vector::new(builder, &config, 0).expect("small") }))]
    });
    let certificate = certificate(&case, "torn", "office.pcapng", &office(300), 20);
    assert!(certificate.holds(), "{certificate}");
    assert!(certificate.runs.iter().any(|run| run.aborts > 0), "there were conflicts to ignore");
}

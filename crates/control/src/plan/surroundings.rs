//! What a function has to know of the chain around it before it is built.

use std::ops::Range;

use braid_runtime::nf::state::{Decided, Surroundings};
use braid_runtime::{Course, Order, When};

use crate::plan::PlannedFunction;

/// What all functions of a chain have around them.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(crate) course: Course,
    pub(crate) ports: u16,
    /// What the interfaces of the ports take ([`Plan::mtus`](crate::Plan::mtus)).
    pub(crate) mtus: Vec<Option<u16>>,
}

/// The surroundings of the function at a position; `sees_addresses`: none of those before it writes IP addresses.
pub(crate) fn around(links: &[PlannedFunction], at: usize, site: &Site, sees_addresses: bool) -> Surroundings {
    let Site { course, ports, mtus } = site;
    let others = || (0..links.len()).filter(|other| *other != at);
    let asks_port = |when: When| when.leaves_by.is_some() || when.passes.is_some();
    Surroundings {
        decided: decided(links, at, (course, *ports)),
        sees_addresses,
        readdressed: readdressed(links, at, course.order),
        translator_is_conditional: others().any(|other| links[other].entry.mirrors && !course.when(other).is_always()),
        splits_floods: others().any(|other| asks_port(course.when(other))),
        mtus: mtus.clone(),
    }
}

/// Where functions beside the one at a position decide by which port packets leave: of those from inside, and from outside.
fn decided(links: &[PlannedFunction], at: usize, (course, ports): (&Course, u16)) -> [Decided; 2] {
    let its = arrivals(&links[at], course.when(at), ports);
    // One that none of its packets meets decides about none of them.
    let routes = |range: Range<usize>| {
        range.into_iter().filter(|other| links[*other].entry.routes).any(|other| {
            let others = arrivals(&links[other], course.when(other), ports);
            its.iter().any(|port| others.contains(port))
        })
    };
    let of = |earlier: Range<usize>, later: Range<usize>| match (routes(later), routes(earlier)) {
        (true, _) => Decided::Behind,
        (false, true) => Decided::Before,
        (false, false) => Decided::Nowhere,
    };
    let (before, behind) = (0..at, at + 1..links.len());
    let as_written = of(before.clone(), behind.clone());
    [as_written, if course.order == Order::Same { as_written } else { of(behind, before) }]
}

/// The ports by which packets arrive that a function handles: those of its condition, and of both sides if it names them.
fn arrivals(link: &PlannedFunction, when: When, ports: u16) -> Vec<u16> {
    let config = link.config.table();
    let side = |key: &str| Some(config.get(key)?.as_array()?.iter().filter_map(toml::Value::as_integer));
    let sides = side("inside_ports").zip(side("outside_ports"));
    let sides: Option<Vec<i64>> = sides.map(|(inside, outside)| inside.chain(outside).collect());
    let is_handled = |port: &u16| {
        when.came_by.is_none_or(|came_by| came_by.has(*port))
            && sides.as_ref().is_none_or(|sides| sides.contains(&i64::from(*port)))
    };
    (0..ports).filter(is_handled).collect()
}

/// Whether packets come to the function at a position with Ethernet headers that another one has written: those from inside, and from
/// outside.
fn readdressed(links: &[PlannedFunction], at: usize, order: Order) -> [bool; 2] {
    let of = |earlier: &[PlannedFunction]| earlier.iter().any(|link| link.entry.readdresses);
    let as_written = of(&links[..at]);
    [as_written, if order == Order::Same { as_written } else { of(&links[at + 1..]) }]
}

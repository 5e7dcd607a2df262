//! Conditions on ports of the plan, by their names under `interfaces` or by their numbers.

use braid_nf::Port;

use super::conditions::Fits;
use super::reader::Words;
use super::{Parsed, wrong};
use crate::firewall::rules::{both, equal};
use crate::parts::{Many, Side};

/// Reads ports of the plan, by number or by their names under `interfaces`. No packet arrives or leaves by the loopback
/// interface, nor, if ports have names, by an interface of another name.
pub(super) fn interface(fits: &mut Fits, rest: &mut Words<'_>, word: &str) -> Parsed<()> {
    let (names, is_negated) = rest.set(word)?;
    let all = 0..rest.scope.ports.count;
    let mut wanted: Vec<Port> = Vec::new();
    for name in names.iter().filter(|name| *name != "lo") {
        let is_named = |port: &Port| {
            let known = rest.scope.around.interfaces.get(usize::from(*port));
            known.is_some_and(|known| match name.strip_suffix('*') {
                Some(stem) => known.starts_with(stem),
                None => known == name,
            })
        };
        let number = name.parse::<Port>().ok().filter(|number| !word.ends_with("name") && all.contains(number));
        let before = wanted.len();
        wanted.extend(all.clone().filter(|port| is_named(port) || number == Some(*port)));
        if wanted.len() == before {
            let tagged = name.rsplit_once('.').filter(|(port, vlan)| {
                rest.scope.around.interfaces.iter().any(|known| known == port) && vlan.parse::<u16>().is_ok()
            });
            if let Some((port, vlan)) = tagged {
                let instead =
                    format!("write iifname {port} vlan id {vlan}; by which VLAN a packet leaves is not known");
                return wrong(format!("`{name}` is a VLAN of a port"), instead);
            }
            let is_number = !word.ends_with("name") && name.parse::<u32>().is_ok();
            if !is_number && !rest.scope.around.interfaces.is_empty() {
                // As in the kernel, where rules may name interfaces that do not exist.
                rest.scope.note(&format!("no port of the plan is named `{name}`: nothing comes or leaves by it"));
                continue;
            }
            let instead = format!(
                "write its port: interfaces = [\"{name}\", …] in the plan, a name for each port in their order; or iif 0"
            );
            return wrong(format!("no port of the plan is named `{name}`"), instead);
        }
    }
    if is_negated {
        wanted = all.clone().filter(|port| !wanted.contains(port)).collect();
    }
    if wanted.is_empty() {
        fits.never = true;
        return Ok(());
    }
    if all.clone().all(|port| wanted.contains(&port)) {
        return Ok(());
    }
    let came = if word.starts_with('o') { came_by(rest, &wanted)? } else { wanted };
    match both(&fits.rule.ports, &Many(came), equal) {
        Some(met) => fits.rule.ports = met,
        None => {
            rest.scope
                .note("no packet comes and leaves by these interfaces: none goes back by the port by which it came");
            fits.never = true;
        }
    }
    Ok(())
}

/// The ports by which packets that leave by one of `leave` must have arrived. Known only where that is unambiguous: with two
/// ports, or if a side has one port and the packets leave by all ports of the other side.
fn came_by(rest: &Words<'_>, leave: &[Port]) -> Parsed<Vec<Port>> {
    let ports = &rest.scope.ports;
    if ports.count == 2 {
        return Ok(leave.iter().map(|port| port ^ 1).collect());
    }
    let on =
        |side: Side| -> Vec<Port> { (0..ports.count).filter(|port| ports.sides.of(*port) == Some(side)).collect() };
    for side in [Side::Inside, Side::Outside] {
        let (here, across) = (on(side), on(side.other()));
        if here.len() == 1 && across.len() == leave.len() && across.iter().all(|port| leave.contains(port)) {
            return Ok(here);
        }
    }
    wrong(
        "by which port a packet leaves is decided behind the firewall",
        "write iifname, ip daddr, inbound or outbound; with two ports, or for all ports of a side if the other has one, oifname is known",
    )
}

//! Conditions on ports of the plan, by their names under `interfaces` or by their numbers.

use braid_nf::Port;

use super::Fits;
use crate::firewall::conditions::{fields, output_ports};
use crate::firewall::rule_file::reader::Words;
use crate::firewall::rule_file::{Parsed, wrong};
use crate::firewall::rules::{both, equal};
use crate::parts::Many;

/// Reads ports of the plan, by number or by their names under `interfaces`. No packet arrives or leaves by the loopback
/// interface, nor, if ports have names, by an interface of another name.
pub(in crate::firewall::rule_file) fn interface(fits: &mut Fits, rest: &mut Words<'_>, word: &str) -> Parsed<()> {
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
            let index = if word.starts_with('o') { "oif 0" } else { "iif 0" };
            // A pattern is no name of a port.
            let named = name.strip_suffix('*').map_or_else(|| name.to_owned(), |stem| format!("{stem}0"));
            let instead = format!(
                "write its port: interfaces = [\"{named}\", …] in the plan, a name for each port in their order; or {index}"
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
    let leaves = word.starts_with('o');
    if leaves && !rest.scope.ports.are_a_pair() {
        fits.never |= !fields::narrow(&mut fits.rule.fields, output_ports::leaves_by(&wanted));
        return Ok(());
    }
    // Of two ports it leaves by the other.
    let came = if leaves { wanted.iter().map(|port| port ^ 1).collect() } else { wanted };
    match both(&fits.rule.ports, &Many::of(came), equal) {
        Some(met) => fits.rule.ports = met,
        None => {
            rest.scope
                .note("no packet comes and leaves by these interfaces: none goes back by the port by which it came");
            fits.never = true;
        }
    }
    Ok(())
}

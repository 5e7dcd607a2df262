//! Validates what a plan file says about how packets traverse the functions, and makes a [`Course`] of it.

use braid_profile::counted;
use braid_runtime::nf::opposite;
use braid_runtime::nf::packet::PortSet;
use braid_runtime::{Course, Full, Order, When};
use toml::Spanned;

use super::file::{NfFile, PlanFile, Problem};
use crate::plan::{PlannedFunction, named_once, word};

/// The value of `full` with which full tables evict sets.
pub(crate) const EVICT_OLDEST: &str = "evict_oldest";

/// Validates the course and fills in defaults.
pub(crate) fn course(file: &PlanFile, chain: &[PlannedFunction], ports: u16) -> Result<Course, Problem> {
    let words = [("same", false), ("mirrored", true)];
    let wished = chain.len() > 1 && chain.iter().any(|link| link.entry.mirrors);
    let mirrored = match &file.chain.order {
        None => wished || file.chain.outside.is_some(),
        written => word("order", written, &words)?,
    };
    let order = match (mirrored, &file.chain.outside) {
        (true, _) => Order::Mirrored { outside: outside(file, chain, ports)? },
        (false, None) => Order::Same,
        (false, Some(list)) => {
            let what =
                "`outside` says which packets meet the functions in reverse order, but the order is the same for all";
            return Err(Problem::new(what, "leave `outside` out, or write order = \"mirrored\"").at(list.span()));
        }
    };
    let when = file.nf.iter().map(|nf| when(nf, ports)).collect::<Result<Vec<_>, _>>()?;
    if let (false, Some(nf), Some(when)) = (mirrored && chain.len() > 1, file.nf.first(), when.first()) {
        met_first(nf, when, ports)?;
    }
    let words = [("refuse", Full::Refuse), (EVICT_OLDEST, Full::EvictOldest)];
    let full = file.nf.iter().map(|nf| word("full", &nf.full, &words)).collect::<Result<Vec<_>, _>>()?;
    let full = if full.iter().all(|full| *full == Full::Refuse) { Vec::new() } else { full };
    let atomic = word("atomic", &file.chain.atomic, &[("function", false), ("chain", true)])?;
    let unindexed = word("shared_sets", &file.chain.shared_sets, &[("indexed", false), ("looked_up", true)])?;
    Ok(Course {
        order,
        full,
        atomic,
        unindexed,
        when: if when.iter().all(When::is_always) { Vec::new() } else { when },
    })
}

/// The outside ports: as written under `[chain]`, else a function's `outside_ports`, else the odd ports. All sources must agree.
fn outside(file: &PlanFile, chain: &[PlannedFunction], ports: u16) -> Result<PortSet, Problem> {
    let of_function = chain.iter().find_map(|link| Some((link, configured(link)?)));
    let outside = match (&file.chain.outside, &of_function) {
        (Some(list), _) => port_set("outside", list.get_ref(), ports)?,
        (None, Some((_, outside))) => *outside,
        (None, None) => PortSet::ODD,
    };
    let list = |set: PortSet| set.iter(ports).map(|port| port.to_string()).collect::<Vec<_>>().join(", ");
    for link in chain {
        let differs = |set: &PortSet| list(*set) != list(outside);
        if let Some(set) = configured(link).filter(differs) {
            let what =
                format!("for `{}` the ports outside are {}, for the chain {}", link.name, list(set), list(outside));
            let help = format!("write the same ports: outside = [{}] under [chain]", list(set));
            return Err(Problem::new(what, help).at(link.config.place("outside_ports").unwrap_or(link.at.clone())));
        }
    }
    let count = outside.iter(ports).count();
    if count == 0 || count == usize::from(ports) {
        let what = format!("a mirrored chain has an inside and an outside, but {count} of {ports} ports are outside");
        let help = "write for example outside = [1] under [chain], or order = \"same\"";
        let at = file.chain.outside.as_ref().map_or(0..0, Spanned::span);
        return Err(Problem::new(what, help).at(at));
    }
    // Keep only existing ports, so that a plan equals the one read back from its own text.
    Ok(PortSet::of(outside.iter(ports)))
}

/// The outside ports according to a function's configuration.
fn configured(link: &PlannedFunction) -> Option<PortSet> {
    let table = link.config.table();
    let list = table.get("outside_ports")?.as_array()?;
    let ports: Vec<u16> = list.iter().filter_map(|port| u16::try_from(port.as_integer()?).ok()).collect();
    (!ports.is_empty()).then(|| PortSet::of(ports))
}

fn when(nf: &NfFile, ports: u16) -> Result<When, Problem> {
    let Some(when) = &nf.when else { return Ok(When::default()) };
    let set = |key, list: &Option<Spanned<Vec<_>>>| {
        list.as_ref().map(|list| port_set(key, list.get_ref(), ports)).transpose()
    };
    if let Some(empty) =
        [&when.came_by, &when.out, &when.either].into_iter().flatten().find(|list| list.get_ref().is_empty())
    {
        let what = "a condition without ports lets no packet through";
        return Err(Problem::new(what, "name at least one port, or leave the condition out").at(empty.span()));
    }
    let checked = When {
        came_by: set("in", &when.came_by)?,
        leaves_by: set("out", &when.out)?,
        passes: set("either", &when.either)?,
        flooded: when.flooded,
    };
    if checked.leaves_by.is_some() && checked.flooded == Some(true) {
        let what = "a packet that is flooded leaves by no single port: this function would meet none";
        return Err(Problem::new(what, "write `out` or `flooded`, not both").at(nf.function.span()));
    }
    Ok(checked)
}

/// Rejects a condition that no packet can meet at the first function. Nothing has been decided before it: every packet is still due
/// to leave by the port opposite to its own.
fn met_first(nf: &NfFile, when: &When, ports: u16) -> Result<(), Problem> {
    let at = nf.function.span();
    if when.flooded == Some(true) {
        let what = "nothing is flooded before the first function: this one would meet no packet";
        return Err(Problem::new(what, "put what floods before it, a `bridge` say, or leave `flooded` out").at(at));
    }
    let has = |set: &Option<PortSet>, port| set.is_none_or(|set| set.has(port));
    let meets = |port| {
        let to = opposite(port, ports);
        has(&when.came_by, port) && has(&when.leaves_by, to) && (has(&when.passes, port) || has(&when.passes, to))
    };
    if !(0..ports).any(meets) {
        let what = "before the first function every packet is to leave by the port opposite to the one by which it came: this \
                    one would meet none";
        return Err(Problem::new(what, "leave a condition out, or put what decides before it").at(at));
    }
    Ok(())
}

fn port_set(key: &str, list: &[Spanned<i64>], ports: u16) -> Result<PortSet, Problem> {
    let port = |port: &Spanned<i64>| {
        u16::try_from(*port.get_ref()).ok().filter(|&port| port < ports).ok_or_else(|| {
            let with = counted(ports.into(), "port");
            let what = format!("{key}: there is no port {} in a plan with {with}", port.get_ref());
            Problem::new(what, format!("write a port from 0 to {}, or a larger `ports`", ports - 1)).at(port.span())
        })
    };
    let ports = list.iter().map(port).collect::<Result<Vec<_>, _>>()?;
    named_once(list, |port| format!("{key}: port {port} is named twice"))?;
    Ok(PortSet::of(ports))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(when: &str, ports: u16) -> Option<String> {
        let text = format!("[[nf]]\nfunction = \"forward\"\nwhen = {when}\n");
        let file = PlanFile::parse(&text).expect("a plan file");
        course(&file, &[], ports).err().map(|problem| problem.what)
    }

    #[test]
    fn a_condition_that_no_packet_meets_before_the_first_function_is_refused() {
        for (when, ports) in [("{ in = [0], out = [0] }", 2), ("{ in = [0, 3], out = [3, 0] }", 4)] {
            assert!(refused(when, ports).is_some_and(|what| what.contains("would meet none")), "{when}");
        }
        assert!(refused("{ flooded = true }", 2).is_some_and(|what| what.contains("nothing is flooded")));
        let met = ["{ in = [0], out = [1] }", "{ in = [0, 1], out = [0] }", "{ in = [1] }", "{ out = [0] }"];
        for when in met.iter().chain(&["{ flooded = false }", "{ in = [0], flooded = false }"]) {
            assert_eq!(refused(when, 2), None, "{when}");
        }
        assert_eq!(refused("{ in = [2], out = [2] }", 3), None, "a port without a partner is its own opposite");
    }
}

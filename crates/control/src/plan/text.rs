//! Writes a plan as a plan file with every key, so that the file is complete and does not depend on future
//! defaults. Reading it back yields the same plan.

use std::fmt::Write;

use braid_profile::counted;
use braid_runtime::io::capture::PortSplit;
use braid_runtime::io::device::{BackEnd, PortSpec, XdpCopy, XdpMode};
use braid_runtime::nf::packet::PortSet;
use braid_runtime::nf::packet::key::SetDef;
use braid_runtime::{Course, Distribution, Full, Order, Time, When};

use crate::plan::{PAGES, Plan, PlannedFunction, Share};
use crate::tune::{Measured, Outcome, Trial, Tuned};

/// The complete text of a tuned plan, with the evidence as comments.
pub fn plan_text(outcome: &Outcome) -> String {
    let Outcome { plan, tuned, workers, measured, input } = outcome;
    let mut out = format!(
        "# Tuned for {} on {input}.\n# Lines with a value are modelled; measured here, ",
        counted(*workers as u64, "worker")
    );
    let _ = writeln!(out, "in packets a second of processor time:");
    for Measured { workers, before, after } in measured {
        let words =
            |(rate, aborts): &(f64, f64)| format!("{:.2} million ({:.2} % rolled back)", rate / 1e6, 100.0 * aborts);
        let workers = counted(*workers as u64, "worker");
        let _ = writeln!(out, "#   {workers}: {} as it was, {} as it is here", words(before), words(after));
    }
    out.push('\n');
    body(&mut out, plan, tuned);
    out
}

/// The complete text of a plan.
pub fn text(plan: &Plan) -> String {
    let mut out = String::new();
    body(&mut out, plan, &[]);
    out
}

fn body(out: &mut String, plan: &Plan, tuned: &[Tuned]) {
    general(out, plan);
    if plan.devices.is_empty() {
        files(out, plan)
    } else {
        ports(out, plan)
    }
    order(out, plan);
    for (position, link) in plan.chain.iter().enumerate() {
        let _ = writeln!(out, "\n[[nf]]\nfunction = \"{}\"\nname = \"{}\"", link.entry.name, link.name);
        met(out, &plan.course, position, plan.ports);
        function(out, link, tuned);
    }
}

fn general(out: &mut String, plan: &Plan) {
    let time = match plan.time {
        Time::Capture => "capture",
        Time::Live => "live",
    };
    let distribution = match plan.distribution {
        Distribution::Hardware => "hardware",
        Distribution::Software => "software",
    };
    let pages = PAGES.iter().find(|(_, pages)| *pages == plan.pages).map_or("prefer", |(word, _)| word);
    let Plan { workers, batch, ports, sets, .. } = plan;
    let _ = writeln!(out, "workers = {workers}\nbatch = {batch}\nports = {ports}\nsets = {sets}");
    let _ = writeln!(out, "time = \"{time}\"\ndistribution = \"{distribution}\"\npages = \"{pages}\"");
    if plan.in_order {
        out.push_str("in_order = true\n");
    }
    if !plan.gather.is_zero() {
        let _ = writeln!(out, "gather_us = {}", plan.gather.as_micros());
    }
    if let Some(balance) = plan.balance {
        let _ = writeln!(out, "balance = true\nbalance_every = {}", balance.every_packets);
    }
    if let Some(hashed) = &plan.steer_udp_ports {
        let _ = writeln!(out, "steer_udp_ports = {}", hashed.get_ref());
    }
    if let Some(user) = plan.user {
        let _ = writeln!(out, "user = \"{}:{}\"", user.uid, user.gid);
    }
    if let Some(nic) = plan.nic {
        let _ = writeln!(out, "nic = {}", quoted(nic.name));
    }
}

/// Writes where packets come from and where they go, unless through interfaces.
fn files(out: &mut String, plan: &Plan) {
    if !plan.from.is_empty() {
        let _ = writeln!(out, "\n[input]\nfrom = {}", list(plan.from.iter().map(String::as_str)));
        let is_generated = plan.from.iter().any(|input| input.starts_with("gen:"));
        match &plan.split {
            PortSplit::Single if is_generated && !plan.split_is_asked => {}
            PortSplit::Single => out.push_str("split = \"single\"\n"),
            PortSplit::MacHash(_) => out.push_str("split = \"mac_hash\"\n"),
            PortSplit::Interface(_) => out.push_str("split = \"interface\"\n"),
            PortSplit::InsidePrefixes(prefixes) => {
                let prefixes: Vec<String> = prefixes.iter().map(ToString::to_string).collect();
                let _ = writeln!(out, "inside = {}", list(prefixes.iter().map(String::as_str)));
                if plan.split_is_asked {
                    out.push_str("split = \"inside\"\n");
                }
            }
        }
    }
    if !plan.to.is_empty() {
        let to: Vec<_> = plan.to.iter().map(|path| path.to_string_lossy()).collect();
        let _ = writeln!(out, "\n[output]\nto = {}", list(to.iter().map(|path| &**path)));
    }
}

fn ports(out: &mut String, plan: &Plan) {
    for device in &plan.devices {
        let _ = writeln!(out, "\n[[port]]\ndevice = {}", quoted(&device_text(device)));
    }
}

/// Formats a port in the syntax of plan files.
fn device_text(spec: &PortSpec) -> String {
    let mut keys = Vec::new();
    let PortSpec { mode, copy, busy_poll_us, memif, .. } = spec;
    keys.extend(match mode {
        XdpMode::Any => None,
        XdpMode::Native => Some("mode=native".to_owned()),
        XdpMode::Generic => Some("mode=generic".to_owned()),
    });
    keys.extend(match copy {
        XdpCopy::Any => None,
        XdpCopy::Zero => Some("copy=zero".to_owned()),
        XdpCopy::Copy => Some("copy=copy".to_owned()),
    });
    keys.extend((*busy_poll_us > 0).then(|| format!("busy_poll={busy_poll_us}")));
    keys.extend(spec.ring.map(|ring| format!("ring={ring}")));
    if spec.back_end == BackEnd::Memif {
        keys.push(format!("role={}", if memif.is_server { "server" } else { "client" }));
        keys.push(format!("id={}", memif.id));
        keys.extend((!memif.secret.is_empty()).then(|| format!("secret={}", memif.secret)));
    }
    keys.extend(spec.dpdk.queues.map(|queues| format!("queues={queues}")));
    keys.extend((!spec.dpdk.eal.is_empty()).then(|| format!("eal={}", spec.dpdk.eal)));
    if keys.is_empty() { spec.to_string() } else { format!("{spec}?{}", keys.join("&")) }
}

fn order(out: &mut String, plan: &Plan) {
    out.push_str("\n[chain]\n");
    let _ = match plan.course.order {
        Order::Same => writeln!(out, "order = \"same\""),
        Order::Mirrored { outside } => {
            writeln!(out, "order = \"mirrored\"\noutside = {}", port_list(outside, plan.ports))
        }
    };
    if plan.course.atomic {
        out.push_str("atomic = \"chain\"\n");
    }
    if plan.course.unindexed {
        out.push_str("shared_sets = \"looked_up\"\n");
    }
}

fn port_list(set: PortSet, ports: u16) -> String {
    format!("[{}]", set.iter(ports).map(|port| port.to_string()).collect::<Vec<_>>().join(", "))
}

/// Writes which packets reach a function, and what it does when its table is full.
fn met(out: &mut String, course: &Course, position: usize, ports: u16) {
    let When { came_by, leaves_by, passes, flooded } = course.when(position);
    let mut conditions = Vec::new();
    conditions.extend(came_by.map(|set| format!("in = {}", port_list(set, ports))));
    conditions.extend(leaves_by.map(|set| format!("out = {}", port_list(set, ports))));
    conditions.extend(passes.map(|set| format!("either = {}", port_list(set, ports))));
    conditions.extend(flooded.map(|flooded| format!("flooded = {flooded}")));
    if !conditions.is_empty() {
        let _ = writeln!(out, "when = {{ {} }}", conditions.join(", "));
    }
    if course.full(position) == Full::EvictOldest {
        out.push_str("full = \"evict_oldest\"\n");
    }
}

fn function(out: &mut String, link: &PlannedFunction, tuned: &[Tuned]) {
    if !link.share.is_empty() {
        let share = |share: &Share| {
            format!("{} = {}", quoted(&share.own), quoted(share.name.split_once('.').map_or("", |(_, name)| name)))
        };
        let _ = writeln!(out, "share = {{ {} }}", link.share.iter().map(share).collect::<Vec<_>>().join(", "));
    }
    if let Some(set) = &link.packet_set {
        packet_set(out, set);
    }
    for Tuned { key, meaning, trials, chosen, .. } in tuned.iter().filter(|tuned| tuned.function == link.name) {
        let end = if chosen.is_some() { "" } else { "; nothing gained, left as it was" };
        let _ = writeln!(out, "# {key}: {meaning}{end}");
        for Trial { value, rate, abort_share } in trials {
            let value = value.map_or("as it was".to_owned(), |value| value.to_string());
            let (rate, aborts) = (rate / 1e6, 100.0 * abort_share);
            let _ = writeln!(
                out,
                "#   {value:>9}: {rate:>8.2} million a second, {aborts:>5.1} % of attempts rolled back (modelled)"
            );
        }
    }
    let table = link.config.table();
    if !table.is_empty() {
        out.push_str(config(table).trim());
        out.push('\n');
    }
}

/// The configuration of a function, whose heading `[[nf]]` has been written.
fn config(table: toml::Table) -> String {
    let within = |name: &str, value| toml::Table::from_iter([(name.to_owned(), value)]);
    let function = toml::Value::Table(within("config", toml::Value::Table(table)));
    let text = toml::to_string(&within("nf", toml::Value::Array(vec![function])));
    let text = text.expect("what was read as TOML can be written as TOML");
    text.strip_prefix("[[nf]]").expect("a list of tables begins with its name").to_owned()
}

fn packet_set(out: &mut String, set: &SetDef) {
    let _ = writeln!(out, "[nf.packet_set]\nfields = {}", list(set.fields.iter().map(|field| field.name())));
    let _ = writeln!(out, "symmetric = {}", set.symmetric);
    if let Some(protocols) = &set.protocols {
        let _ = writeln!(out, "protocols = {protocols:?}");
    }
}

fn list<'a>(items: impl Iterator<Item = &'a str>) -> String {
    format!("[{}]", items.map(quoted).collect::<Vec<_>>().join(", "))
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_read_again_as_it_was_whatever_its_texts_contain() {
        let written = r#"
            log = "[config] "
            [[rules]]
            log = """
[config.a]
[[config"""
            [rules.limit]
            "[config]" = ["[[config]]", "[nf.config]"]
        "#;
        let table: toml::Table = written.parse().expect("TOML");
        let text = format!("[[nf]]\n{}", config(table.clone()));
        let read: toml::Table = text.parse().expect("TOML");
        assert_eq!(read["nf"][0]["config"], toml::Value::Table(table), "{text}");
    }
}

//! Notes on interfaces that can be opened but are not set up as ports should be: the kernel handles their packets too, or packets are
//! longer than the interface takes. `braid run` prints them for its ports at the start, `braid doctor` for all interfaces.

use braid_control::Plan;
use braid_control::plan::PlannedFunction;
use braid_control::runtime::io::device::{BackEnd, Interface};
use braid_control::runtime::nf::packet::MacAddress;
use braid_functions::router;

/// What is not as it should be: a name for it, what it is, and what to do about it.
pub type Unfit = (&'static str, String, String);

/// Notes on the plan's interfaces before it runs. A TAP interface is the kernel's end of the wire, so it may have addresses.
pub fn notes(plan: &Plan) -> Vec<String> {
    let ports = plan
        .devices
        .iter()
        .enumerate()
        .filter(|(_, port)| matches!(port.back_end, BackEnd::Best | BackEnd::AfPacket | BackEnd::AfXdp));
    let known = ports.filter_map(|(number, port)| Some((number, Interface::ask(&port.name).ok()?)));
    known.flat_map(|(number, interface)| of_port(plan, number, &interface)).collect()
}

fn of_port(plan: &Plan, number: usize, interface: &Interface) -> Vec<String> {
    let said = |(_, what, mend): Unfit| format!("{}: {what}: {mend}", interface.name);
    let taken_part = machine_takes_part(interface).into_iter().map(said);
    let of_routers =
        plan.chain.iter().flat_map(|link| [too_long(link, number, interface), unheard(link, number, interface)]);
    taken_part.chain(of_routers.flatten()).collect()
}

/// Why the kernel handles the interface's packets besides Braid.
pub fn machine_takes_part(interface: &Interface) -> Vec<Unfit> {
    let name = &interface.name;
    let mut unfit = Vec::new();
    if interface.has_address {
        let mend = match name.as_str() {
            "lo" => "the machine needs it for itself: name another interface".to_owned(),
            _ => format!("sudo ip address flush dev {name} (not the interface you are logged in by)"),
        };
        unfit.push(("address", "it has an address, so the kernel answers its packets too".to_owned(), mend));
    }
    if let Some(master) = &interface.master {
        let what = format!("it belongs to {master}, so the kernel forwards its packets too");
        unfit.push(("master", what, format!("sudo ip link set {name} nomaster")));
    }
    unfit
}

/// The interfaces of a router at a port; none of other functions.
fn routed(link: &PlannedFunction, number: usize) -> Vec<router::InterfaceConfig> {
    let config = || braid_functions::parse::<router::Config>(link.config.table()).ok();
    let config = (link.entry.name == "router").then(config).flatten();
    let is_there = |one: &router::InterfaceConfig| one.ports().any(|port| usize::from(port) == number);
    config.into_iter().flat_map(|config| config.interfaces).filter(is_there).collect()
}

/// A router with another Ethernet address than the device, which frames for it do not reach, or which the machine's bridge never learns.
fn unheard(link: &PlannedFunction, number: usize, interface: &Interface) -> Option<String> {
    let own = MacAddress(interface.mac);
    routed(link, number).iter().find(|one| one.mac() != own)?;
    let (name, function) = (&interface.name, &link.name);
    let why = match interface.driver.as_str() {
        "bridge" => format!(
            "never learns where the address of `{function}` is, so what hosts send there goes to all of its ports"
        ),
        _ if interface.hears_own_address_only() => {
            format!(
                "takes frames for its own address {own} only, or its host does, and `{function}` has another: they do not arrive"
            )
        }
        _ => return None,
    };
    Some(format!(
        "{name}: it {why}; write mac = \"{own}\" in the interface at port {number}, and let the machine forward nothing there"
    ))
}

/// A router that believes that more fits through a port than does: what is longer is lost there, and its sender is not told.
fn too_long(link: &PlannedFunction, number: usize, Interface { name, mtu, .. }: &Interface) -> Option<String> {
    let device = u16::try_from(*mtu).unwrap_or(u16::MAX);
    let believed = routed(link, number).iter().map(|interface| interface.mtu_at(device)).max();
    let believed = believed.filter(|believed| usize::from(*believed) > *mtu)?;
    Some(format!(
        "{name}: packets of up to {mtu} bytes fit through it, and `{}` takes it for {believed}: longer ones are lost as \
         frame_too_long, and no sender is told; leave `mtu` out of its interface at port {number}, or write {mtu} (IPv6 takes 1280 at least)",
        link.name
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_told_to_take_the_address_of_the_loopback_away() {
        let lo = Interface::ask("lo").expect("every network namespace has one");
        let mends = |name: &str| -> Vec<String> {
            let interface = Interface { name: name.to_owned(), has_address: true, master: None, ..lo.clone() };
            machine_takes_part(&interface).into_iter().map(|(.., mend)| mend).collect()
        };
        assert_eq!(mends("lo"), ["the machine needs it for itself: name another interface"]);
        assert!(mends("eth0")[0].starts_with("sudo ip address flush dev eth0"));
    }
}

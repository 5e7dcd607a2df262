//! Tests that inconsistent configurations are refused, with an error that says what to write instead.

use crate::find;

fn error(config: &str) -> Option<String> {
    let build = find("router").unwrap().build;
    let mut builder =
        braid_nf::state::StateBuilder::new(&braid_nf::state::Domain::new(1), braid_nf::state::HugePages::Never);
    build("r", config.parse().unwrap(), &mut builder, 2).err().map(|error| error.to_string())
}

#[track_caller]
fn refuse(config: &str, expected: &str) {
    assert_eq!(error(config).as_deref(), Some(expected));
}

#[track_caller]
fn accept(config: &str) {
    assert_eq!(error(config), None);
}

#[test]
fn ways_on_which_nobody_can_be_asked_for_are_refused() {
    let instead = "write one into its `addresses`, or a [[neighbour]] that is there";
    let plan = |more: &str| {
        format!(
            "interface = [{{ port = 0, addresses = ['10.0.0.1/8'] }}, {{ port = 1, vlan = 7, addresses = [] }}]\n{more}"
        )
    };
    let deaf = |place: &str, version: &str| {
        format!("{place} has no address of {version} from which to ask for neighbours; {instead}")
    };
    accept(&plan(""));
    let to_v6 = "{ to = '::/0', via = 'fe80::1', port = 0 }";
    refuse(&plan(&format!("route = [{to_v6}]")), &format!("`route[0].via`: {}", deaf("port 0", "IPv6")));
    let straight = "{ to = '192.0.2.0/24', port = 1, vlan = 7 }";
    refuse(&plan(&format!("route = [{straight}]")), &format!("`route[0].port`: {}", deaf("VLAN 7 of port 1", "IPv4")));
    let several = "{ to = '0.0.0.0/0', hops = [{ via = '10.0.0.2' }, { via = '192.0.2.9', port = 1, vlan = 7 }] }";
    refuse(
        &plan(&format!("route = [{several}]")),
        &format!("`route[0].hops[1].via`: {}", deaf("VLAN 7 of port 1", "IPv4")),
    );
    let known =
        |address: &str, at: &str| format!("neighbour = [{{ address = '{address}', mac = '02:00:00:00:00:09', {at} }}]");
    accept(&plan(&format!("route = [{to_v6}]\n{}", known("fe80::1", "port = 0"))));
    accept(&plan(&format!("route = [{straight}]\n{}", known("192.0.2.7", "port = 1, vlan = 7"))));
    accept(&plan(&format!("route = [{several}]\n{}", known("192.0.2.9", "port = 1, vlan = 7"))));
}

#[test]
fn rules_that_say_nothing_are_refused() {
    let plan = |rules: &str, table: &str| {
        format!(
            "interface = [{{ port = 0, addresses = ['10.0.0.1/8'] }}, {{ port = 1, vlan = 7, addresses = ['192.0.2.1/24'] }}]
            rule = [{rules}]
            route = [{{ to = '0.0.0.0/0', via = '10.0.0.2'{table} }}]"
        )
    };
    let guests = ", table = 'guests'";
    accept(&plan("{ from = '10.9.0.0/16', in = 0, table = 'guests' }, { in = 1, vlan = 7, table = 'guests' }", guests));
    accept(&plan("{ table = 'main', suppress_prefixlength = 0 }", ""));
    accept(&plan("{ from = '10.9.0.0/16', table = 'main' }", ", table = 'main'"));
    let none = "no route is in the table guests; write the `table` of a [[route]], or \"main\"";
    refuse(&plan("{ from = '10.9.0.0/16', table = 'guests' }", ""), &format!("`rule[0].table`: {none}"));
    let idle = "`rule`: no rule leads to the table guests; write one with table = \"guests\"";
    refuse(&plan("", guests), idle);
    refuse(
        &plan("{ from = '10.9.0.0/16', to = '2001:db8::/32', table = 'guests' }", guests),
        "`rule[0].to`: 2001:db8::/32 is of the other family than 10.9.0.0/16; write two rules",
    );
    refuse(
        &plan("{ in = 1, table = 'guests' }", guests),
        "`rule[0].in`: port 1 has no interface; write the `port` of an [[interface]], and its `vlan`",
    );
    refuse(&plan("{ vlan = 7, table = 'guests' }", guests), "`rule[0].vlan`: VLAN 7 of no port; write `in` too");
    refuse(
        &plan("{ table = 'main' }", ""),
        "`rule[0].table`: the main table follows behind the last rule; leave the rule out, or write suppress_prefixlength = 0",
    );
    let to_network = "route = [{ to = '10.0.0.0/8', refuse = 'prohibit', table = 'guests' }]";
    let interface = "interface = [{ port = 0, addresses = ['10.0.0.1/8'] }]";
    accept(&format!("{interface}\nrule = [{{ from = '10.9.0.0/16', table = 'guests' }}]\n{to_network}"));
}

/// A prefix elsewhere, of the same family as the address.
fn other(address: &str) -> &'static str {
    if address.contains(':') { "2001:db8:ffff::/48" } else { "203.0.113.0/24" }
}

#[test]
fn interfaces_that_contradict_each_other_are_refused() {
    refuse(
        "[[interface]]\nport = 0\naddresses = ['10.0.0.1']",
        "`interface[0].addresses[0]`: `10.0.0.1` has no prefix length; write the network's, such as `10.0.0.1/24`",
    );
    refuse(
        "[[interface]]\nport = 0\naddresses = ['2001:db8::1']",
        "`interface[0].addresses[0]`: `2001:db8::1` has no prefix length; write the network's, such as `2001:db8::1/64`",
    );
    refuse(
        "[[interface]]\nport = 0\naddresses = ['10.0.0/24']",
        "`interface[0].addresses[0]`: `10.0.0/24` is no address with a length; write `192.0.2.1/24`",
    );
    refuse(
        "[[interface]]\nport = 0\naddresses = ['10.0.0.1/8']\n[[route]]\nto = '0.0.0.0/0'\nvia = '192.0.2.1'",
        "`route[0].via`: 192.0.2.1 is in no network of an interface; name a neighbour in a network of an interface, or a `port`",
    );
    refuse(
        "[[interface]]\nport = 0\naddresses = ['10.0.0.1/8']\n[[route]]\nto = '192.0.2.0/24'",
        "`route[0]`: nothing is said about where packets to 192.0.2.0/24 go; write `via`, `port`, or refuse = \"blackhole\"",
    );
    refuse(
        "[[interface]]\nport = 0\naddresses = ['10.0.0.1/8']\n[[route]]\nto = '192.0.2.0/24'\nport = 0\nrefuse = 'prohibit'",
        "`route[0].refuse`: 192.0.2.0/24 leads somewhere and is refused; keep `via`, `port` and `vlan`, or `refuse`",
    );
    refuse(
        "[[interface]]\nport = 0\naddresses = ['10.0.0.1/8']\n[[route]]\nto = '192.0.2.0/24'\nvlan = 5\nrefuse = 'blackhole'",
        "`route[0].refuse`: 192.0.2.0/24 leads somewhere and is refused; keep `via`, `port` and `vlan`, or `refuse`",
    );
    refuse(
        "[[interface]]\nport = 0\naddresses = ['10.0.0.1/8']
        [[route]]\nto = '192.0.2.0/24'\nvia = '10.0.0.2'\n[[route]]\nto = '192.0.2.0/24'\nvia = '10.0.0.3'",
        "`route[1].to`: 192.0.2.0/24 has two routes; keep one: a destination has one way; or give one a greater `metric`, to stand by",
    );
    let to_none = |to: &str, way: &str| {
        format!("[[interface]]\nport = 0\naddresses = ['10.0.0.1/8', '2001:db8::1/64']\n[[route]]\nto = '{to}'\n{way}")
    };
    for to in [
        "224.0.0.0/4",
        "239.1.0.0/16",
        "240.0.0.0/4",
        "127.0.0.0/8",
        "ff00::/8",
        "ff0e::1/128",
        "169.254.0.0/16",
        "fe80::/64",
    ] {
        let expected = format!(
            "`route[0].to`: no packet to {to} is forwarded: no host has such an address, or none beyond its link; leave the route out"
        );
        refuse(&to_none(to, "port = 0"), &expected);
        refuse(&to_none(to, "refuse = 'prohibit'"), &expected);
    }
    accept(&to_none("224.0.0.0/4", "refuse = 'blackhole'"));
    accept(&to_none("128.0.0.0/1", "via = '10.0.0.2'"));
    refuse(
        "[[interface]]\nport = 0\naddresses = ['10.0.0.0/24']",
        "`interface[0].addresses[0]`: 10.0.0.0 is the network or all of its hosts; write the address of a host",
    );
    for none in ["127.0.0.1", "224.0.0.5", "255.255.255.255", "ff02::1", "::1", "::"] {
        refuse(
            &format!("[[interface]]\nport = 0\naddresses = ['10.0.0.1/24', '{none}/32']"),
            &format!("`interface[0].addresses[1]`: {none} is no host's address; write the address of a host"),
        );
    }
    accept("[[interface]]\nport = 0\naddresses = ['169.254.0.1/16', 'fe80::1/64']");
    refuse(
        "[[interface]]\nport = 0\naddresses = ['10.0.0.1/24']\n[[interface]]\nport = 1\naddresses = ['10.0.0.2/24']",
        "`interface[1].addresses`: 10.0.0.0/24 is at two interfaces; give each a network of its own, or join the links: `joined` names the further ports of one interface, which a `bridge` before the router joins",
    );
    refuse(
        "[[interface]]\nport = 0\njoined = [1, 0]\naddresses = ['10.0.0.1/24']",
        "`interface[0].joined[1]`: port 0 stands there twice; name each further port of the link once",
    );
    refuse(
        "[[interface]]\nport = 0\njoined = [1]\naddresses = ['10.0.0.1/24']\n[[interface]]\nport = 1\naddresses = ['10.0.1.1/24']",
        "`interface[1].port`: port 1 has two interfaces; write all `addresses` in one, or give each a `vlan` of its own",
    );
    refuse(
        "[[interface]]\nport = 0\naddresses = ['2001:db8::1/64']\nmtu = 1279",
        "`interface[0].mtu`: 1279 is not possible; write 1280 to 9216",
    );
    refuse(
        "[[interface]]\nport = 0\nvlan = 4095\naddresses = ['10.0.0.1/24']",
        "`interface[0].vlan`: 4095 is no VLAN; write 1 to 4094; without `vlan` an interface has what comes without a tag",
    );
    refuse(
        "[[interface]]\nport = 0\nvlan = 7\naddresses = ['10.0.0.1/24']\n[[interface]]\nport = 0\nvlan = 7\naddresses = ['10.0.1.1/24']",
        "`interface[1].port`: port 0 has two interfaces for VLAN 7; write all `addresses` in one, or give each a `vlan` of its own",
    );
    refuse(
        "[[interface]]\nport = 0\naddresses = ['10.0.0.1/24']\n[[route]]\nto = '198.51.100.0/24'\nport = 0\nvlan = 7",
        "`route[0].via`: VLAN 7 of port 0 has no interface; name a neighbour in a network of an interface, or a `port`",
    );
    refuse(
        "[[interface]]\nport = 0\naddresses = ['10.0.0.1/24']\n[[neighbour]]\naddress = '10.0.0.9'\nmac = '02:00:00:00:00:09'\nport = 0\nvlan = 7",
        "`neighbour[0].vlan`: VLAN 7 of port 0 has no interface; write the `vlan` of an [[interface]], or none",
    );
    refuse(
        "waiting_max = 0",
        "`waiting_max`: waiting: a capacity of 0 is not possible: 1 is the least; write a number from 1 to 1048576",
    );
    refuse(
        "waiting_max = 999999999",
        "`waiting_max`: waiting: a capacity of 999999999 is not possible: 1048576 is the most; write a number up to 1048576",
    );
}

#[test]
fn routes_and_neighbours_that_lead_nowhere_are_refused() {
    let two = "interface = [{ port = 0, addresses = ['10.0.0.1/8', 'fd00::1/8'] }, { port = 1, addresses = ['192.0.2.1/24'] }]\n";
    let route = |route: &str, expected: &str| refuse(&format!("{two}route = [{route}]"), expected);
    let ways = "name a neighbour in a network of an interface, or a `port`";
    route(
        "{ to = '0.0.0.0/0', via = '192.0.2.1' }",
        &format!("`route[0].via`: 192.0.2.1 is this router's own; {ways}"),
    );
    route(
        "{ to = '0.0.0.0/0', hops = [{ via = '10.0.0.1' }] }",
        &format!("`route[0].hops[0].via`: 10.0.0.1 is this router's own; {ways}"),
    );
    route(
        "{ to = '0.0.0.0/0', via = '192.0.2.255' }",
        &format!("`route[0].via`: 192.0.2.255 is a network or all of its hosts; {ways}"),
    );
    route(
        "{ to = '::/0', via = 'fe80::1' }",
        "`route[0].via`: fe80::1 may be at every interface; write its `port` too",
    );
    route(
        "{ to = '10.0.0.0/8', via = '192.0.2.9' }",
        "`route[0].to`: 10.0.0.0/8 is the network of an interface; leave the route out: packets go straight there",
    );
    for (to, own) in [("192.0.2.1/32", "192.0.2.1"), ("fd00::1/128", "fd00::1")] {
        let expected = format!("`route[0].to`: {own} is this router's own; leave the route out: it goes no further");
        route(&format!("{{ to = '{to}', port = 0 }}"), &expected);
    }
    for (to, instead) in [
        ("10.9.9.9/16", "`10.9.0.0/16`, or `10.9.9.9/32` for it alone"),
        ("0.0.0.1/0", "`0.0.0.0/0`, or `0.0.0.1/32` for it alone"),
        ("2001:db8::7/32", "`2001:db8::/32`, or `2001:db8::7/128` for it alone"),
    ] {
        let expected = format!("`route[0].to`: `{to}` has bits behind its length; write {instead}");
        route(&format!("{{ to = '{to}', via = '192.0.2.9' }}"), &expected);
    }
    let neighbour = |more: &str, expected: &str| refuse(&format!("{two}{more}"), expected);
    let one = |address: &str, mac: &str| format!("{{ address = '{address}', mac = '{mac}', port = 1 }}");
    let (own, group) = (one("192.0.2.1", "02:00:00:00:00:01"), one("192.0.2.9", "03:00:00:00:00:01"));
    neighbour(&format!("neighbour = [{own}]"), "`neighbour[0].address`: 192.0.2.1 is this router's own; leave it out");
    neighbour(
        &format!("neighbour = [{group}]"),
        "`neighbour[0].mac`: 03:00:00:00:00:01 is a group address; write one of a station",
    );
    for all in ["192.0.2.0", "192.0.2.255"] {
        neighbour(
            &format!("neighbour = [{}]", one(all, "02:00:00:00:00:09")),
            &format!("`neighbour[0].address`: {all} is a network or all of its hosts; write the address of one host"),
        );
    }
    for strange in ["10.0.0.9", "198.51.100.9", "2001:db8::9"] {
        let instead = "write an address in a network of that interface, the port where it is, or a [[route]] by way of it with its `port`";
        let reason = format!("{strange} is in no network of port 1, and no route leads to it");
        let one = one(strange, "02:00:00:00:00:09");
        neighbour(&format!("neighbour = [{one}]"), &format!("`neighbour[0].address`: {reason}; {instead}"));
        for known in [
            format!("{{ to = '{}', via = '{strange}', port = 1 }}", other(strange)),
            format!("{{ to = '{strange}', port = 1 }}"),
            format!("{{ to = '{}', hops = [{{ via = '{strange}', port = 1 }}] }}", other(strange)),
        ] {
            accept(&format!("{two}route = [{known}]\nneighbour = [{one}]"));
        }
    }
    refuse(
        &format!(
            "{}neighbour = [{}]",
            two.replace("port = 1", "port = 1, vlan = 7"),
            one("192.0.2.9", "02:00:00:00:00:09")
        ),
        "`neighbour[0].port`: port 1 has no interface; write the `port` of an [[interface]], and its `vlan`",
    );
    let list =
        format!("neighbour = [{}, {}]", one("192.0.2.9", "02:00:00:00:00:01"), one("192.0.2.9", "02:00:00:00:00:02"));
    neighbour(&list, "`neighbour[1].address`: 192.0.2.9 stands there twice; keep one: a neighbour is in one place");
    neighbour(
        &format!("neighbours_max = 1\n{list}"),
        "`neighbours_max`: there are 2 in the plan; write a larger number: they need room too",
    );
}

#[test]
fn routes_that_stand_by_have_next_hops_and_other_metrics() {
    let routes = |more: &str| {
        format!(
            "[[interface]]\nport = 0\naddresses = ['10.0.0.1/8']\n[[interface]]\nport = 1\naddresses = ['192.0.2.1/24']
            [[route]]\nto = '198.51.100.0/24'\nvia = '192.0.2.9'\n[[route]]\nto = '198.51.100.0/24'\n{more}"
        )
    };
    accept(&routes("via = '192.0.2.8'\nmetric = 2"));
    accept(&routes("hops = [{ via = '192.0.2.8' }, { via = '10.0.0.2' }]\nmetric = 2"));
    refuse(
        &routes("via = '192.0.2.9'\nmetric = 2"),
        "`route[1].via`: 192.0.2.9 stands by for itself; name it in one of the routes",
    );
    for way in ["port = 1", "refuse = 'blackhole'"] {
        refuse(
            &routes(&format!("{way}\nmetric = 2")),
            "`route[1].metric`: of several routes to 198.51.100.0/24 this one has no next hop that could be missed; write `via` or \
             `hops`, or keep one route",
        );
    }
}

#[test]
fn a_source_may_ask_for_some_neighbours_and_no_more_than_there_are() {
    let none = "no packet would reach a neighbour that is not known; write 1 or more, or leave it out";
    refuse("asked_per_source = 0", &format!("`asked_per_source`: {none}"));
    refuse(
        "neighbours_max = 100\nasked_per_source = 101",
        "`asked_per_source`: 101 are more than `neighbours_max`; write 1 to 100",
    );
    accept("neighbours_max = 100\nasked_per_source = 100");
}

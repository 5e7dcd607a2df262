//! Configurations that are rejected.

use super::WEB;
use crate::config::parse;
use crate::load_balancer::Config;
use crate::load_balancer::roster::Roster;
use crate::load_balancer::settings::Settings;

#[track_caller]
fn check_error(from: &str, to: &str, expected: &str) {
    check_text(&WEB.replace(from, to), expected);
}

#[track_caller]
pub(super) fn check_text(text: &str, expected: &str) {
    let error = match parse::<Config>(text.parse().unwrap()) {
        Err(error) => error.to_string(),
        Ok(config) => Settings::check(&config, 2, Roster::default()).unwrap_err().to_string(),
    };
    assert!(error.contains(expected), "{error}");
}

#[test]
fn a_weight_is_told_its_range() {
    let weight = |written: &str, expected: &str| {
        let backend = format!("10.0.0.3\", port = 8080, weight = {written}");
        check_error("10.0.0.3\", port = 8080", &backend, &format!("`service[0].backends[2].weight`: {expected}"));
    };
    weight("-1", "-1 is out of range; write 0 to 1000");
    weight("1001", "1001 is out of range; write 0 to 1000");
    weight("4294967297", "4294967297 is out of range; write 0 to 1000");
    weight("'2'", "invalid type: string \"2\"; write a whole number from 0 to 1000, without quotes");
}

#[test]
fn a_limit_of_connections_is_one_that_can_hold() {
    let limit = |more: &str, expected: &str| {
        let backend = format!("10.0.0.9\", connections_max = {more}");
        check_error("10.0.0.9\"", &backend, &format!("`service[2].backends[0]`: {expected}"));
    };
    limit("0", "connections_max = 0 lets no connection in; write weight = 0, or 1 or more");
    let text = WEB.replace("10.0.0.9\"", "10.0.0.9\", connections_max = 5");
    let text = text.replace("port = 53", "port = 53\n    persistence = \"none\"");
    check_text(&text, "10.0.0.9 has a `connections_max`, but no connection is remembered; remove it, or write another");
}

#[test]
fn configurations_that_cannot_work_are_refused_with_what_to_write() {
    check_error("10.0.0.9", "2001:db8::9", "is of another family than 203.0.113.53; use one family");
    check_error("10.0.0.2", "10.0.0.1", "10.0.0.1 is a backend of this service twice; name it once, with a `weight`");
    check_error("port = 80\n", "", "10.0.0.1 has a port but the service has none");
    check_error("[{ address = \"10.0.0.9\" }]", "[]", "`service[2].backends`: there is none; name one or more");
    check_error(
        "203.0.113.53\"\n    port = 53\n    protocol = \"udp\"",
        "203.0.113.10\"\n    port = 80",
        "has this service already",
    );
    check_error(
        "[[service]]\n    address = \"203.0.113.10\"",
        "table_size = 65536\n[[service]]\naddress = \"203.0.113.10\"",
        "65536 is no prime",
    );
    check_error("\"tcp\"", "\"sctp\"", "unknown variant `sctp`");
    check_error("10.0.0.9", "224.0.0.1", "`service[2].backends[0]`: 224.0.0.1 is no address of a backend");
    check_error("10.0.0.9", "203.0.113.53", "`service[2].backends[0]`: 203.0.113.53 is no address of a backend");
    check_error("203.0.113.53", "0.0.0.0", "0.0.0.0 is no host's address");
    check_error("203.0.113.53", "127.0.0.1", "127.0.0.1 is no host's address");
    check_error("port = 53", "port = 0", "`service[2].port`: 0 is no port; write the port that clients ask for");
    let (v6, tunnel) = ("2001:db8::10\"", "2001:db8::10\"\n    mode = \"gre\"");
    check_error(v6, tunnel, "the tunnels of 2001:db8::10 have no address to come from, and");
    let crossed = "[[service]]\naddress = '203.0.113.11'\nmode = 'gre'\nbackends = [{ address = '2001:db8::1' }]";
    check_text(crossed, "the tunnels to 2001:db8::1 have no address to come from; write router_v6");
    let first = "[[service]]\n    address = \"203.0.113.10\"";
    for (key, wanted) in [
        ("heartbeat_port = 0", "`heartbeat_port`: 0 is no port"),
        ("heartbeat_timeout_ms = 5", "`heartbeat_timeout_ms`: says nothing to any service; add heartbeat_port"),
        ("persistence_s = 5", "`persistence_s`: says nothing to any service; add persistence = \"source\""),
        ("persistence_max = 5", "`persistence_max`: says nothing to any service"),
        ("mtu = 9000", "`mtu`: says nothing to any service; add a mode with tunnels"),
    ] {
        check_error(first, &format!("{key}\n{first}"), wanted);
    }
    let twice = "[[service]]\naddress = '203.0.113.10'\nmode = 'ipip'
        backends = [{ address = '10.0.0.1' }, { address = '10.0.0.1', weight = 2 }]";
    check_text(twice, "10.0.0.1 is a backend of this service twice; name it once, with a `weight`");
    let only = "backends = [{ address = \"10.0.0.9\", backup = true }]";
    check_error(
        "backends = [{ address = \"10.0.0.9\" }]",
        only,
        "all are backups; name one or more that are no backups",
    );
    let together = "port = 53\n    persistence_prefix = { v4 = 24 }";
    check_error(
        "port = 53",
        together,
        "`service[2].persistence_prefix`: it has no effect without persistence; add persistence = \"source\"",
    );
    for (address, prefix, wanted) in [
        ("203.0.113.9", "{ v6 = 64 }", "with 32 bits for `v4` no clients are grouped; write fewer, or leave it out"),
        ("2001:db8::9", "{ v4 = 24 }", "with 128 bits for `v6` no clients are grouped; write fewer, or leave it out"),
    ] {
        let backend = if address.contains(':') { "2001:db8:1::1" } else { "10.0.0.1" };
        let service = format!(
            "[[service]]\naddress = '{address}'\npersistence = 'source'\npersistence_prefix = {prefix}\nbackends = [{{ address = '{backend}' }}]"
        );
        check_text(&service, &format!("`service[0].persistence_prefix`: {wanted}"));
    }
    for (address, prefix, version) in [("203.0.113.9", "{ v4 = 0 }", 4), ("2001:db8::9", "{ v6 = 0, v4 = 24 }", 6)] {
        let backend = if version == 6 { "2001:db8:1::1" } else { "10.0.0.1" };
        let service = format!(
            "[[service]]\naddress = '{address}'\npersistence = 'source'\npersistence_prefix = {prefix}\nbackends = [{{ address = '{backend}' }}]"
        );
        let wanted = format!(
            "`service[0].persistence_prefix`: all clients of IPv{version} are one, and go to one backend; write some bits"
        );
        check_text(&service, &wanted);
    }
    let checked = |port: &str, check: &str| {
        format!(
            "[[service]]\naddress = '203.0.113.9'\nport = {port}\ncheck = {{ {check} }}\nbackends = [{{ address = '10.0.0.1' }}]\n"
        )
    };
    for (check, wanted) in [
        ("payload = '00'", "only a check by UDP has a payload"),
        ("kind = 'udp', payload = '0'", "`0` are no bytes in hexadecimal digits"),
        ("kind = 'udp', name = 'example.com'", "only a check by DNS asks for a name"),
        ("kind = 'dns', name = 'example..com'", "`example..com` is no name of DNS"),
        ("kind = 'dns', path = '/'  , host = 'a'", "a datagram asks for no page"),
        ("kind = 'dns', record = 'ptr'", "unknown variant `ptr`"),
    ] {
        check_text(&checked("53", check), wanted);
    }
    check_text(&checked("[80, 443]", "kind = 'http'"), "nothing says at which port 10.0.0.1 is asked");
    check_text(&checked("[80, '79-81']", "port = 80"), "ports 79-81 and port 80 meet; name each port once");
    check_text(
        &(checked("[80, 90]", "port = 80") + &checked("'80-90'", "port = 80").replace("10.0.0.1", "10.0.0.2")),
        "two services of 203.0.113.9 begin and end with the same ports, ports 80-90",
    );
    check_error(
        "address = \"10.0.0.9\"",
        "address = \"10.0.0.9:53\"",
        "write the address alone, and its port beside it: address = \"10.0.0.9\", port = 53",
    );
    for (key, protocol, persistence) in [
        ("tcp_s", "udp", "connection"),
        ("tcp_opening_s", "udp", "source"),
        ("tcp_closing_s", "tcp", "none"),
        ("udp_s", "tcp", "connection"),
    ] {
        let service = format!(
            "{key} = 77\n[[service]]\naddress = '203.0.113.9'\nprotocol = '{protocol}'\npersistence = '{persistence}'\nbackends = [{{ address = '10.0.0.1' }}]"
        );
        check_text(&service, &format!("`{key}`: says nothing to any service; add a service that remembers"));
    }
    for (key, router) in [("router", "203.0.113.10"), ("router", "10.0.0.1"), ("router_v6", "2001:db8::10")] {
        let tunnels = format!(
            "{key} = '{router}'\n[[service]]\naddress = '203.0.113.10'\nmode = 'ipip'\nbackends = [{{ address = '10.0.0.1' }}]
            [[service]]\naddress = '2001:db8::10'\nmode = 'ipip'\nbackends = [{{ address = '2001:db8::1' }}]"
        );
        let wanted =
            format!("`{key}`: backends have this address, and take no tunnel that comes from it; write another");
        check_text(&tunnels, &wanted);
    }
    let together = "port = 53\n    persistence = \"source\"\n    persistence_prefix = { v4 = 33 }";
    check_error("port = 53", together, "no IPv4 address has 33 bits");
    let page = "port = 53\n    check = { kind = \"tcp\", path = \"/x\" }";
    check_error("port = 53", "port = 53\n    check = { port = 0 }", "`service[2].check`: 0 is no port; write where");
    check_error(
        "port = 53",
        "check = { kind = \"tcp\" }",
        "`service[2].check`: nothing says at which port 10.0.0.9 is asked, for the service has several; write the `port` into the check, such as",
    );
    check_error(
        "port = 53",
        "port = 53\n    check = {}",
        "`service[2].check`: a check opens a TCP connection, which no backend accepts at a UDP port; write kind = \"udp\" or \"dns\", a `port` at",
    );
    check_error("port = 53", page, "`service[2].check`: a connection alone asks for no page; write kind = \"http\"");
}

#[test]
fn an_ethernet_address_is_a_hosts() {
    let direct = |mac: &str, expected: &str| {
        let service = format!(
            "[[service]]\naddress = '203.0.113.10'\nmode = 'direct'\nbackends = [{{ address = '10.0.0.1', mac = '{mac}' }}]"
        );
        check_text(&service, expected);
    };
    direct("00:00:00:00:00:00", "no host has the Ethernet address of zeros; write the one of the backend");
    direct("01:00:5e:00:00:01", "is a group address; write the one of the backend");
}

#[test]
fn words_of_other_balancers_are_translated() {
    let service = |line: &str, expected: &str| {
        check_error("protocol = \"tcp\"", &format!("protocol = \"tcp\"\n    {line}"), expected);
    };
    service("persistence_timeout = 600", "no such key; write persistence = \"source\", and `persistence_s` beside");
    service("lb_algo = 'rr'", "leave it out: it is always Maglev hashing");
    service("lvs-sched = 'rr'", "leave it out: it is always Maglev hashing");
    service("sorry_server = '10.0.0.9'", "write backup = true in one of the `backends`");
    service("mode = 'DR'", "`service[0].mode`: unknown variant `DR`; write \"direct\"");
    service("mode = 'TUN'", "write \"ipip\", \"gre\" or \"gue\"");
    service("mode = 'NAT'", "write \"nat\"");
    service("check = { interval = 5 }", "no such key; write it as `every_ms`");
    service("check = { kind = 'https' }", "write \"tcp\": checks speak no TLS");
    check_error("\"tcp\"", "\"TCP\"", "`service[0].protocol`: unknown variant `TCP`; write \"tcp\"");
    check_error("port = 8080 }]", "port = 8080, drain = true }]", "write weight = 0, so that it gets no new");
    let list = "backends = [\"10.0.0.9:53\"]";
    check_error("backends = [{ address = \"10.0.0.9\" }]", list, "write { address = \"10.0.0.1\", port = 8080 }");
    check_text("[[virtual_server]]\naddress = '203.0.113.10'", "write [[nf.config.service]], with `address`");
}

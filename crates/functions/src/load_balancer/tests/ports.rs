//! Services on one port, on a range and on all ports of an address, side by side.

use braid_testkit::{Bench, Frame};

use super::{bench, check, show};

/// One port, ten, a thousand, and all of them, at one address.
const NESTED: &str = "
    [[service]]\naddress = '203.0.113.10'\nbackends = [{ address = '10.0.0.1' }]
    [[service]]\naddress = '203.0.113.10'\nport = '5000-5999'\nprotocol = 'tcp'\nbackends = [{ address = '10.0.0.2' }]
    [[service]]\naddress = '203.0.113.10'\nport = '5000-5009'\nprotocol = 'tcp'\nbackends = [{ address = '10.0.0.3' }]
    [[service]]\naddress = '203.0.113.10'\nport = 5000\nprotocol = 'tcp'\nbackends = [{ address = '10.0.0.4', port = 6000 }]
    [[service]]\naddress = '2001:db8::10'\nport = '16384-32767'\nprotocol = 'udp'\nbackends = [{ address = '2001:db8:1::1' }]";

#[test]
fn the_service_of_the_fewest_ports_counts() {
    let mut lb = bench(NESTED);
    for (asked, end) in [
        ("tcp 22", "10.0.0.1:22"),
        ("tcp 4999", "10.0.0.1:4999"),
        ("tcp 5000", "10.0.0.4:6000"),
        ("tcp 5001", "10.0.0.3:5001"),
        ("tcp 5009", "10.0.0.3:5009"),
        ("tcp 5010", "10.0.0.2:5010"),
        ("tcp 5999", "10.0.0.2:5999"),
        ("tcp 6000", "10.0.0.1:6000"),
        ("udp 5001", "10.0.0.1:5001"),
    ] {
        let (kind, port) = asked.split_once(' ').unwrap();
        let frame = |from: &str, to: &str| if kind == "tcp" { Frame::tcp(from, to) } else { Frame::udp(from, to) };
        let flags = if kind == "tcp" { " A" } else { "" };
        let (client, service) = ("192.0.2.8:1031", format!("203.0.113.10:{port}"));
        check(&mut lb, 1, 0, frame(client, &service), &format!("0: {kind} {client} > {end}{flags} ttl 63"));
        check(&mut lb, 0, 0, frame(end, client), &format!("1: {kind} {service} > {client}{flags} ttl 63"));
        // An error about the reply reaches the backend, with the ports that it knows.
        let error = Frame::unreachable("192.0.2.200", "203.0.113.10", &frame(&service, client).bytes());
        let host = end.split_once(':').unwrap().0;
        let told = format!("0: unreachable 192.0.2.200 > {host} [{kind} {end} > {client}{flags}] ttl 63");
        check(&mut lb, 1, 0, error, &told);
    }
    let v6 = Frame::udp("[2001:db8:9::9]:9", "[2001:db8::10]:20000");
    check(&mut lb, 1, 0, v6, "0: udp [2001:db8:9::9]:9 > [2001:db8:1::1]:20000 ttl 63");
    // Outside the range: no service.
    let v6 = Frame::udp("[2001:db8:9::9]:9", "[2001:db8::10]:32768");
    check(&mut lb, 1, 0, v6, "0: udp [2001:db8:9::9]:9 > [2001:db8::10]:32768 ttl 64");
}

#[test]
fn a_backend_that_keeps_ports_may_have_several_services_of_one_address() {
    let mut lb = bench(
        "[[service]]\naddress = '203.0.113.10'\nbackends = [{ address = '10.0.0.1' }]
         [[service]]\naddress = '203.0.113.10'\nport = 80\nbackends = [{ address = '10.0.0.1' }]
         [[service]]\naddress = '203.0.113.10'\nport = '8000-8099'\nbackends = [{ address = '10.0.0.1', weight = 3 }]",
    );
    for port in [22, 80, 8001] {
        let answer = Frame::tcp(&format!("10.0.0.1:{port}"), "192.0.2.8:1031");
        let told = format!("1: tcp 203.0.113.10:{port} > 192.0.2.8:1031 A ttl 63");
        check(&mut lb, 0, 0, answer, &told);
    }
}

/// Persistence is per service, and two ranges with the same first port are two services.
#[test]
fn clients_stay_with_a_backend_of_each_range() {
    let mut lb = bench(
        "[[service]]\naddress = '203.0.113.10'\nport = '5000-5999'\npersistence = 'source'\nbackends = [{ address = '10.0.0.1' }]
         [[service]]\naddress = '203.0.113.10'\nport = '5000-5099'\npersistence = 'source'\nbackends = [{ address = '10.0.0.2' }]
         [[service]]\naddress = '203.0.113.10'\nport = 5000\npersistence = 'source'\nbackends = [{ address = '10.0.0.3' }]",
    );
    for _ in 0..2 {
        for (port, backend) in [(5000, 3), (5001, 2), (5100, 1)] {
            let frame = Frame::tcp("192.0.2.8:9", &format!("203.0.113.10:{port}")).flags("S");
            check(&mut lb, 1, 0, frame, &format!("0: tcp 192.0.2.8:9 > 10.0.0.{backend}:{port} S ttl 63"));
        }
    }
}

#[test]
fn services_that_are_equal_are_refused() {
    let both = |one: &str, other: &str| {
        format!(
            "[[service]]\naddress = '203.0.113.10'\n{one}\nbackends = [{{ address = '10.0.0.1' }}]
             [[service]]\naddress = '203.0.113.10'\n{other}\nbackends = [{{ address = '10.0.0.2' }}]"
        )
    };
    for (one, other, wrong) in [
        ("port = '5000-5999'", "port = '5500-6499'", "ports 5500-6499 and ports 5000-5999 of 203.0.113.10 meet"),
        ("port = '5000-5999'", "port = '5000-5999'", "203.0.113.10 has this service already, ports 5000-5999"),
        ("", "protocol = 'udp'", "203.0.113.10 has this service already, all ports"),
        ("port = 53\nprotocol = 'tcp'", "port = 53", "203.0.113.10 has this service already, port 53"),
    ] {
        super::refused::check_text(&both(one, other), wrong);
    }
    // None of these pairs is ambiguous.
    for (one, other) in [
        ("port = '5000-5999'", "port = '5500-6500'"),
        ("port = '5000-5999'\nprotocol = 'tcp'", "port = '5500-6499'\nprotocol = 'udp'"),
        ("port = 53\nprotocol = 'tcp'", "port = 53\nprotocol = 'udp'"),
    ] {
        bench(&both(one, other));
    }
    let answers = both("port = '5000-5999'", "port = 80").replace("10.0.0.2' }", "10.0.0.1', port = 5001 }");
    super::refused::check_text(&answers, "10.0.0.1 with port 5001 is a backend twice, so its replies are ambiguous");
    let ported = both("port = '5000-5999'", "port = 80").replace("10.0.0.1' }", "10.0.0.1', port = 8080 }");
    super::refused::check_text(&ported, "10.0.0.1 has a port, but its answers do not say which of ports 5000-5999 was");
}

#[test]
fn written_ports_are_refused_with_their_line() {
    for (port, wrong) in [
        ("'6-5'", "`6-5` ends before it begins; write \"5-6\""),
        ("'0-9'", "ports 0-9 begin at 0; write \"1-9\", or leave `port` out for all ports"),
        ("'all'", "`all` is no port; write 80, \"http\" or \"5000-5999\""),
        ("70000", "no port; write one from 1 to 65535, a range as \"5000-5999\", or a list of them as [80, 443]"),
    ] {
        let text =
            format!("[[service]]\naddress = '203.0.113.10'\nport = {port}\nbackends = [{{ address = '10.0.0.1' }}]");
        super::refused::check_text(&text, wrong);
    }
}

#[test]
fn the_report_shows_ranges() {
    let mut lb = bench(NESTED);
    lb.send(1, 0, &Frame::tcp("192.0.2.8:9", "203.0.113.10:5010").flags("S").bytes());
    let told: Vec<_> = lb.findings().list().iter().map(|told| told.subject.clone()).collect();
    for shown in [
        "203.0.113.10 at 10.0.0.1",
        "203.0.113.10:5000 at 10.0.0.4:6000",
        "203.0.113.10:5000-5999 at 10.0.0.2:5000-5999",
        "[2001:db8::10]:16384-32767 at [2001:db8:1::1]:16384-32767",
    ] {
        assert!(told.iter().any(|subject| subject == shown), "{shown} in {told:?}");
    }
}

/// The backend of one client's connection to a port.
fn of_port(lb: &mut Bench, ms: u64, port: u16) -> String {
    let frame = Frame::tcp("192.0.2.8:9", &format!("203.0.113.10:{port}")).flags("A");
    show::outcome(&lb.send(1, ms, &frame.bytes())).split(' ').nth(4).unwrap_or("none").to_owned()
}

#[test]
fn a_range_that_changes_moves_no_connection_of_others_and_state_is_kept() {
    let config = |range: &str| {
        format!(
            "[[service]]\naddress = '203.0.113.10'\nport = 80\nbackends = [{{ address = '10.0.0.9' }}]
             [[service]]\naddress = '203.0.113.10'\nport = '{range}'\nbackends = [{{ address = '10.0.0.1' }}, {{ address = '10.0.0.2' }}]"
        )
    };
    let mut lb = Bench::with_sets(2, 64, super::joining::build(&config("5000-5999")));
    let before: Vec<_> = (5000..5040).map(|port| of_port(&mut lb, 0, port)).collect();
    assert_eq!(of_port(&mut lb, 0, 80), "10.0.0.9:80");
    let mut lb = lb.restored(super::joining::build(&config("5000-5999")));
    assert_eq!((5000..5040).map(|port| of_port(&mut lb, 1, port)).collect::<Vec<_>>(), before);
    // Another range is another service, so its backends count as new ones; the same hash selects them.
    let mut lb = lb.succeeded(super::joining::build(&config("5000-6999")));
    assert_eq!((5000..5040).map(|port| of_port(&mut lb, 2000, port)).collect::<Vec<_>>(), before);
    assert_eq!(of_port(&mut lb, 2000, 80), "10.0.0.9:80");
    assert_ne!(of_port(&mut lb, 2000, 6500), "203.0.113.10:6500");
}

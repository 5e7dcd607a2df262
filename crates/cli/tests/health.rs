//! `braid health` asks servers that are there, and tells a run.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use support::running::Running;
use support::{Braid, conserved};

/// A web server whose page is good or not, as `well` says.
fn server(well: Arc<AtomicBool>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its address").port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _request = stream.read(&mut [0; 1024]);
            // Relaxed: nothing else is handed over with it.
            let status = if well.load(Ordering::Relaxed) { "200 OK" } else { "503 Service Unavailable" };
            let _gone = stream.write_all(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").as_bytes());
        }
    });
    port
}

/// Packets go to the one backend of a service while it is well.
#[test]
fn a_backend_whose_page_is_bad_gets_no_packets_until_it_is_good_again() {
    let braid = Braid::new();
    let well = Arc::new(AtomicBool::new(true));
    let port = server(well.clone());
    let service = |address: &str| {
        format!(
            "[[nf.config.service]]\naddress = \"{address}\"\ncheck = {{ kind = \"http\", port = {port}, every_ms = 20, timeout_ms = 20, rise = 1, fall = 2 }}\n"
        )
    };
    // One of the mix's servers is the service; its only backend is this machine.
    let plan = format!(
        "[[nf]]\nfunction = \"load_balancer\"\n[nf.config]\nclient_ports = [0]\nbackend_ports = [1]\nrecheck_ms = 10\n{}backends = [{{ address = \"127.0.0.1\" }}]\n",
        service("198.18.0.0"),
    );
    braid.write("plan.toml", &plan);
    let mut run =
        Running::start(&braid, "plan.toml --in gen:campus?packets=4000000000&flows=300&seed=5 --workers 1 --time live");
    let mut health = braid.command("health plan.toml --control control.sock --changes 2");
    let mut health = health.stdout(Stdio::piped()).spawn().expect("it runs");
    let mut lines = BufReader::new(health.stdout.take().expect("its output")).lines();
    let mut line = || lines.next().expect("another line").expect("text");
    assert_eq!(line(), "1 backends are asked");
    well.store(false, Ordering::Relaxed);
    assert_eq!(line(), format!("down  127.0.0.1:{port}: status 503"));
    run.until("packets find no backend", |stats| stats.to_string().contains("\"no_backend\""));
    well.store(true, Ordering::Relaxed);
    assert_eq!(line(), format!("up    127.0.0.1:{port}"));
    assert!(health.wait().expect("it ends").success());
    conserved(&run.stop());
}

#[test]
fn a_plan_that_asks_nobody_is_refused() {
    let braid = Braid::new();
    braid.write("plan.toml", "[[nf]]\nfunction = \"load_balancer\"\n");
    let said = braid.fails(2, "health plan.toml --control control.sock");
    assert!(said.contains("no service of this plan says how its backends are asked"), "{said}");
}

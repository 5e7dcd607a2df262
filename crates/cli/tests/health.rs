//! `braid health` asks servers that are there, and tells a run.

mod support;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;
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
    assert_eq!(line(), "checking 1 backend");
    well.store(false, Ordering::Relaxed);
    assert_eq!(line(), format!("down  127.0.0.1:{port}: status 503"));
    run.until("packets find no backend", |stats| stats.to_string().contains("\"no_backend\""));
    // The plan says nothing of what was found, so it changes nothing of it.
    assert!(braid.ok("apply plan.toml --control control.sock").contains("nothing differs"));
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
    assert!(said.contains("no service of this plan says how to check its backends"), "{said}");
}

/// State, connections remembered and connections in all of each backend, as `braid stats` tells them.
fn backends(stats: &Value) -> BTreeMap<String, (String, u64, u64)> {
    let told = stats["findings"]["load_balancer"]["found"].as_array().cloned().unwrap_or_default();
    let one = |one: &Value| {
        let (subject, detail) = (one["subject"].as_str()?, one["detail"].as_str()?);
        let counts = detail.split(": ").nth(1)?.replace(" remembered", "").replace(" in all", "");
        let (now, all) = counts.split_once(", ")?;
        let state = detail.split(',').next()?.to_owned();
        Some((subject.rsplit(' ').next()?.to_owned(), (state, now.parse().ok()?, all.parse().ok()?)))
    };
    told.iter().filter_map(one).collect()
}

/// A backend without weight has connections only if somebody takes it for another one.
#[test]
fn backends_join_leave_and_return_while_packets_go_through() {
    let braid = Braid::new();
    let plan = |first: &str, second: &str| {
        format!(
            "[[nf]]\nfunction = \"load_balancer\"\n[nf.config]\nclient_ports = [0]\nbackend_ports = [1]\nrecheck_ms = 10\ntcp_s = 3\nudp_s = 3\ntcp_closing_s = 3\ntcp_opening_s = 3\n\
             [[nf.config.service]]\naddress = \"198.18.0.0\"\nbackends = [{first}]\n\
             [[nf.config.service]]\naddress = \"198.18.0.1\"\nbackends = [{second}]\n"
        )
    };
    let one = |last: u8, more: &str| format!("{{ address = \"10.0.0.{last}\"{more} }}");
    let (first, second) = (format!("{}, {}", one(1, ""), one(2, "")), one(9, ""));
    braid.write("plan.toml", &plan(&first, &second));
    let traffic = "--in gen:campus?packets=4000000000&flows=100000&seed=5 --workers 2 --time live";
    let mut run = Running::start(&braid, &format!("plan.toml {traffic}"));
    let before = backends(&run.until("connections", |stats| {
        let told = backends(stats);
        ["10.0.0.1", "10.0.0.2", "10.0.0.9"].iter().all(|backend| told.get(*backend).is_some_and(|told| told.1 > 1))
    }));
    let packets = |stats: &Value| stats["packets_in"].as_u64().expect("a count");
    let go_on = |run: &mut Running<'_>| {
        let now = packets(&run.until("packets", |_| true));
        backends(&run.until("more packets", |stats| packets(stats) > now + 500_000))
    };
    // Before the others of the first service, and no new connection goes there.
    braid.write("more.toml", &plan(&format!("{}, {first}", one(3, ", weight = 0")), &second));
    let applied = braid.json("apply more.toml --control control.sock");
    assert_eq!(applied["kept"][0], "load_balancer", "{applied}");
    let after = go_on(&mut run);
    assert_eq!(after["10.0.0.3"], ("up".to_owned(), 0, 0), "{before:?} {after:?}");
    for backend in ["10.0.0.1", "10.0.0.2", "10.0.0.9"] {
        assert!(after[backend].2 >= before[backend].2, "{before:?} {after:?}");
    }
    // One goes, and is told of until its connections have moved or ended.
    braid.write("fewer.toml", &plan(&format!("{}, {}", one(3, ""), one(2, "")), &second));
    let applied = braid.json("apply fewer.toml --control control.sock");
    assert_eq!(applied["kept"][0], "load_balancer", "{applied}");
    let moved = backends(&run.until("it has none, and the new one some", |stats| {
        let told = backends(stats);
        !told.contains_key("10.0.0.1") && told.get("10.0.0.3").is_some_and(|told| told.2 > 0)
    }));
    assert!(moved["10.0.0.2"].2 >= after["10.0.0.2"].2 && moved["10.0.0.9"].2 >= after["10.0.0.9"].2, "{moved:?}");
    // It returns, and has been counted on.
    braid.ok("apply plan.toml --control control.sock");
    let back = backends(&run.until("it is back", |stats| backends(stats).contains_key("10.0.0.1")));
    assert!(back["10.0.0.1"].2 >= after["10.0.0.1"].2, "{after:?} {back:?}");
    conserved(&run.stop());
}

/// A plan with a service whose backend is this machine, asked at a port, and another one of which only the weight is told.
fn two_services(port: u16, weight: u32) -> String {
    format!(
        "[[nf]]\nfunction = \"load_balancer\"\n[nf.config]\nclient_ports = [0]\nbackend_ports = [1]\nrecheck_ms = 10\n\
         [[nf.config.service]]\naddress = \"198.18.0.0\"\n\
         check = {{ kind = \"http\", port = {port}, every_ms = 20, timeout_ms = 20, rise = 1, fall = 2 }}\n\
         backends = [{{ address = \"127.0.0.1\" }}]\n\
         [[nf.config.service]]\naddress = \"198.18.0.1\"\nbackends = [{{ address = \"10.0.0.9\", weight = {weight} }}]\n"
    )
}

/// The chain that runs.
fn functions(stats: &Value) -> Vec<&str> {
    stats["functions"].as_array().expect("a list").iter().filter_map(|one| one["name"].as_str()).collect()
}

/// A checker's lines, one after another.
fn lines(of: impl Read) -> impl FnMut() -> String {
    let mut lines = BufReader::new(of).lines();
    move || lines.next().expect("another line").expect("text")
}

/// The file says who is asked; what runs is what was applied, but for the state of backends.
#[test]
fn a_plan_that_was_applied_stays_and_its_backends_are_what_was_found() {
    let braid = Braid::new();
    let well = Arc::new(AtomicBool::new(false));
    let port = server(well.clone());
    braid.write("plan.toml", &two_services(port, 1));
    let mut run =
        Running::start(&braid, "plan.toml --in gen:campus?packets=4000000000&flows=300&seed=5 --workers 1 --time live");
    let mut health = braid.command("health plan.toml --control control.sock --changes 2");
    let mut health = health.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it runs");
    let mut line = lines(health.stdout.take().expect("its output"));
    let says = |stats: &Value, down: bool, weight: u32| {
        let text = stats["findings"].to_string();
        text.contains("down, weight 1") == down && text.contains(&format!("up, weight {weight},"))
    };
    run.until("it is down", |stats| says(stats, true, 1));
    // Somebody applies another plan by hand, in which all is well, and a function more.
    let weight = two_services(port, 5);
    braid.write("other.toml", &format!("{weight}[[nf]]\nfunction = \"flow_counter\"\n"));
    braid.ok("apply other.toml --control control.sock");
    run.until("it is down again", |stats| says(stats, true, 5));
    // The file changes: it is read, and not applied.
    braid.write("plan.toml", "nonsense");
    braid.write("plan.toml", &two_services(port, 7));
    assert_eq!(line(), "checking 1 backend");
    assert_eq!(line(), format!("down  127.0.0.1:{port}: status 503"));
    assert_eq!(line(), "checking 1 backend, by the plan file as it is now");
    well.store(true, Ordering::Relaxed);
    assert_eq!(line(), format!("up    127.0.0.1:{port}"));
    run.until("it is up, and the weight has stayed", |stats| says(stats, false, 5));
    assert!(health.wait().expect("it ends").success());
    let stats = run.until("any", |_| true);
    assert_eq!(functions(&stats), ["load_balancer", "flow_counter"], "the other function stays");
    conserved(&run.stop());
}

/// At the same socket another network function runs by now.
#[test]
fn a_run_without_these_backends_is_left_alone() {
    let braid = Braid::new();
    let port = server(Arc::new(AtomicBool::new(false)));
    braid.write("plan.toml", &two_services(port, 1));
    let mut run =
        Running::start(&braid, "--nf nat --in gen:campus?packets=4000000000&flows=300&seed=5 --workers 1 --time live");
    let mut health = braid.command("health plan.toml --control control.sock --changes 1");
    let mut health = health.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    let (mut line, mut note) =
        (lines(health.stdout.take().expect("its output")), lines(health.stderr.take().expect("its notes")));
    assert_eq!(
        note(),
        "note: the running plan has no backend 127.0.0.1 of 198.18.0.0, all ports, of `load_balancer`: not updated"
    );
    assert_eq!(line(), "checking 1 backend");
    assert_eq!(line(), format!("down  127.0.0.1:{port}: status 503"));
    assert!(health.wait().expect("it ends").success());
    let stats = run.until("any", |_| true);
    assert_eq!(functions(&stats), ["nat"]);
    conserved(&run.stop());
}

/// The control socket's own word: one function changes, if it is what somebody thinks that it is.
#[test]
fn a_function_is_configured_alone_and_the_run_says_so() {
    let braid = Braid::new();
    let mut run = Running::start(
        &braid,
        "--nf nat,policer --in gen:campus?packets=4000000000&flows=300&seed=5 --workers 1 --time live",
    );
    run.until("packets", |stats| stats["packets_in"].as_u64() > Some(0));
    let mut socket = std::os::unix::net::UnixStream::connect(braid.path("control.sock")).expect("the socket");
    let mut answers = BufReader::new(socket.try_clone().expect("a copy")).lines();
    let mut ask = |request: &str| {
        socket.write_all(format!("{request}\n").as_bytes()).expect("asked");
        answers.next().expect("an answer").expect("text")
    };
    let now = ask(r#"{"ask":"configuration","function":"policer"}"#);
    assert_eq!(now, r#"{"ok":[{"name":"policer","function":"policer","config":{}}]}"#);
    let changed = ask(r#"{"ask":"configure","name":"policer","from":{},"to":{"burst_bytes":9999}}"#);
    assert!(changed.contains(r#""changed":["policer"]"#), "{changed}");
    let late = ask(r#"{"ask":"configure","name":"policer","from":{},"to":{"burst_bytes":8888}}"#);
    assert!(late.contains("`policer` is configured otherwise by now"), "{late}");
    let nobody = ask(r#"{"ask":"configure","name":"router","from":{},"to":{}}"#);
    assert!(nobody.contains("no function of the chain is called `router`"), "{nobody}");
    let wrong = ask(r#"{"ask":"configure","name":"policer","from":{"burst_bytes":9999},"to":{"bust":1}}"#);
    assert!(wrong.contains("\"is_wrong\":true"), "{wrong}");
    assert!(ask(r#"{"ask":"configuration"}"#).contains(r#"{"burst_bytes":9999}"#));
    let (report, said) = run.stop_and_hear();
    conserved(&report);
    assert!(said.contains("applied over the control socket: policer: burst_bytes = 9999\n"), "{said}");
}

/// A run that has ended is waited for: the next one believes what its file says, until it is told.
#[test]
fn a_run_that_begins_anew_is_told_what_was_found() {
    let braid = Braid::new();
    let well = Arc::new(AtomicBool::new(false));
    let port = server(well.clone());
    let plan = format!(
        "[[nf]]\nfunction = \"load_balancer\"\n[nf.config]\nclient_ports = [0]\nbackend_ports = [1]\nrecheck_ms = 10\n\
         [[nf.config.service]]\naddress = \"198.18.0.0\"\n\
         check = {{ kind = \"http\", port = {port}, every_ms = 20, timeout_ms = 20, rise = 1, fall = 2 }}\n\
         backends = [{{ address = \"127.0.0.1\" }}]\n"
    );
    braid.write("plan.toml", &plan);
    let input = "plan.toml --in gen:campus?packets=4000000000&flows=300&seed=5 --workers 1 --time live";
    let mut run = Running::start(&braid, input);
    let mut health = braid.command("health plan.toml --control control.sock --changes 2");
    let mut health = health.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it runs");
    let mut notes = BufReader::new(health.stderr.take().expect("its notes")).lines();
    let mut note = || notes.next().expect("another note").expect("text");
    let is_down = |stats: &Value| stats["findings"].to_string().contains("down, weight 1");
    run.until("it is down", is_down);
    conserved(&run.stop());
    assert!(note().ends_with("backends are still checked, and the run is told when it answers again"));
    let mut run = Running::start(&braid, input);
    run.until("it is down again", is_down);
    assert_eq!(note(), "note: the run answers again");
    well.store(true, Ordering::Relaxed);
    run.until("it is up", |stats| !is_down(stats));
    assert!(health.wait().expect("it ends").success());
    conserved(&run.stop());
}

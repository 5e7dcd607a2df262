//! A client, a server and a machine between them, each in a network namespace of its own; and Braid at work on the machine between.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use braid_testkit::kernel::{Namespace, Unavailable};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// The machine is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(20);

/// The hosts and their addresses; two subnets, and no address between them.
pub struct Scene {
    pub client: Namespace,
    pub middle: Namespace,
    pub server: Namespace,
}

pub const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 1);
pub const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
/// What the client looks like behind a NAT.
pub const EXTERNAL: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);

impl Scene {
    /// Client, machine between with `m0` towards the client and `m1` towards the server, server. Who is a bump in the wire answers no ARP, so
    /// each host knows the other's Ethernet address as that of its gateway.
    pub fn new() -> Result<Scene, Unavailable> {
        Scene::of("")
    }

    /// The same with interfaces of several queues each way.
    pub fn with_queues(count: usize) -> Result<Scene, Unavailable> {
        Scene::of(&format!("numtxqueues {count} numrxqueues {count}"))
    }

    fn of(ends: &str) -> Result<Scene, Unavailable> {
        let (client, middle, server) = (Namespace::new()?, Namespace::new()?, Namespace::new()?);
        client.cable_of("c0", &middle, "m0", ends)?;
        server.cable_of("s0", &middle, "m1", ends)?;
        client.run("ip", &format!("address add {CLIENT}/24 dev c0"))?;
        server.run("ip", &format!("address add {SERVER}/24 dev s0"))?;
        client.run("ip", "route add default via 10.7.0.254")?;
        server.run("ip", &format!("route add 10.7.0.0/24 via {EXTERNAL}"))?;
        let scene = Scene { client, middle, server };
        let (of_client, of_server) = (scene.client.link_address("c0")?, scene.server.link_address("s0")?);
        scene.know(&of_server, &of_client)?;
        Ok(scene)
    }

    /// Ethernet addresses behind which each host finds the other one.
    fn know(&self, server: &str, client: &str) -> Result<(), Unavailable> {
        self.client.run("ip", &format!("neighbour replace 10.7.0.254 lladdr {server} dev c0 nud permanent"))?;
        self.server.run("ip", &format!("neighbour replace {EXTERNAL} lladdr {client} dev s0 nud permanent"))?;
        Ok(())
    }

    /// The hosts leave no segments to be cut: for drivers that cannot.
    pub fn without_offloads(self) -> Result<Scene, Unavailable> {
        for (host, interface) in
            [(&self.client, "c0"), (&self.server, "s0"), (&self.middle, "m0"), (&self.middle, "m1")]
        {
            host.run("ethtool", &format!("-K {interface} tso off gso off gro off"))?;
        }
        Ok(self)
    }

    /// Linux forwards between the two, with these rules.
    pub fn forward_by_linux(&self, rules: &str) -> Result<(), Unavailable> {
        self.middle.run("ip", "address add 10.7.0.254/24 dev m0")?;
        self.middle.run("ip", &format!("address add {EXTERNAL}/24 dev m1"))?;
        self.middle.set("ipv4/ip_forward", 1)?;
        self.middle.run_with_input("nft", "-f -", rules)?;
        self.know(&self.middle.link_address("m0")?, &self.middle.link_address("m1")?)
    }

    /// Braid between the two, given the arguments of `braid run`, once it says that its ports are open.
    pub fn run_braid(&self, arguments: &str) -> Running {
        run_braid(&self.middle, arguments)
    }
}

/// Braid in a namespace.
pub struct Running {
    child: Option<Child>,
    /// What it said at the start.
    pub said: String,
    stderr: ChildStderr,
}

/// Starts it in a namespace and waits until it says how each port was opened.
pub fn run_braid(namespace: &Namespace, arguments: &str) -> Running {
    run_by(braid(), |command| namespace.inside(|| command.spawn()), arguments)
}

/// The same, with the capabilities that ports need and no other.
pub fn run_bounded(namespace: &Namespace, arguments: &str) -> Running {
    let mut command = Command::new("setpriv");
    command.arg("--bounding-set=-all,+net_admin,+net_raw,+bpf,+ipc_lock").arg(env!("CARGO_BIN_EXE_braid"));
    run_by(command, |command| namespace.inside(|| command.spawn()), arguments)
}

/// The same where the test is.
pub fn run_anywhere(arguments: &str) -> Running {
    run_by(braid(), Command::spawn, arguments)
}

/// What the line about an open port has in it.
const HOW: [&str; 4] = [": AF_", ": TAP,", ": memif,", ": DPDK "];

fn braid() -> Command {
    Command::new(env!("CARGO_BIN_EXE_braid"))
}

fn run_by(mut command: Command, spawn: impl FnOnce(&mut Command) -> io::Result<Child>, arguments: &str) -> Running {
    command.arg("run").args(arguments.split_whitespace()).arg("--json");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = spawn(&mut command).expect("the binary runs");
    let mut stderr = child.stderr.take().expect("piped");
    let said = hear(&mut stderr, arguments);
    Running { child: Some(child), said, stderr }
}

/// What is said until all ports of these arguments are open.
fn hear(stderr: &mut ChildStderr, arguments: &str) -> String {
    let ports = arguments.matches("--port").count();
    let mut said = String::new();
    // A driver of DPDK may have something to say in between.
    let open = |said: &str| said.lines().filter(|line| HOW.iter().any(|how| line.contains(how))).count();
    while open(&said) < ports || !said.ends_with('\n') {
        let mut some = [0; 512];
        let count = stderr.read(&mut some).expect("a pipe");
        assert!(count > 0, "braid run {arguments}: {said}");
        said.push_str(&String::from_utf8_lossy(&some[..count]));
    }
    said
}

impl Running {
    /// Ends it as Ctrl-C does: its report, in which every packet is accounted for.
    pub fn stop(self) -> Value {
        self.stop_with(0)
    }

    /// The same where that exit code is expected.
    #[track_caller]
    pub fn stop_with(self, code: i32) -> Value {
        kill_process(Pid::from_child(self.child.as_ref().expect("stopped once")), Signal::INT).expect("it runs");
        self.end_with(code)
    }

    /// Waits until it ends by itself, with this exit code; its report.
    #[track_caller]
    pub fn end_with(mut self, code: i32) -> Value {
        let output = self.child.take().expect("stopped once").wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(code));
        let report = serde_json::from_slice(&output.stdout).expect("one JSON value");
        crate::support::conserved(&report);
        report
    }

    /// What it says further, until the two ports of another program in its process are open.
    pub fn hear_successor(&mut self) -> String {
        hear(&mut self.stderr, "--port --port")
    }

    /// What it says further, until that has `what` in it.
    pub fn hear_of(&mut self, what: &str) -> String {
        let mut said = String::new();
        while !said.contains(what) || !said.ends_with('\n') {
            let mut some = [0; 512];
            let count = self.stderr.read(&mut some).expect("a pipe");
            assert!(count > 0, "nothing of {what}: {said}");
            said.push_str(&String::from_utf8_lossy(&some[..count]));
        }
        said
    }

    /// Number of its process.
    pub fn id(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// Ends it as nothing should.
    pub fn kill(mut self) {
        let mut child = self.child.take().expect("stopped once");
        child.kill().expect("it runs");
        child.wait().expect("it ends");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Tries until it succeeds.
#[track_caller]
pub fn eventually(what: &str, mut attempt: impl FnMut() -> bool) {
    let give_up = Instant::now() + PATIENCE;
    while !attempt() {
        assert!(Instant::now() < give_up, "{what}: not within {PATIENCE:?}");
    }
}

/// Whether an echo request is answered within a second.
pub fn pings(from: &Namespace, to: Ipv4Addr) -> bool {
    from.run("ping", &format!("-n -c 1 -W 1 {to}")).is_ok()
}

/// A TCP connection with both of its ends.
pub struct Connection {
    near: TcpStream,
    far: TcpStream,
}

/// Connects within a few seconds, or does not.
pub fn connect(
    from: &Namespace,
    to: &Namespace,
    address: Ipv4Addr,
    port: u16,
    wait: Duration,
) -> io::Result<Connection> {
    let listener = to.inside(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)))?;
    let near = from.inside(|| TcpStream::connect_timeout(&SocketAddr::from((address, port)), wait))?;
    Connection::of(near, listener.accept()?.0)
}

impl Connection {
    /// Of two ends that belong together.
    pub fn of(near: TcpStream, far: TcpStream) -> io::Result<Connection> {
        for end in [&near, &far] {
            end.set_read_timeout(Some(PATIENCE))?;
            end.set_nodelay(true)?;
        }
        Ok(Connection { near, far })
    }

    /// A few bytes there and back again.
    #[track_caller]
    pub fn talk(&mut self) {
        let mut answer = [0; 5];
        self.near.write_all(b"hello").expect("the connection is open");
        self.far.read_exact(&mut answer).expect("the bytes arrive");
        self.far.write_all(&answer).expect("the connection is open");
        self.near.read_exact(&mut answer).expect("they come back");
        assert_eq!(&answer, b"hello");
    }

    /// Whether a byte still arrives within half a second.
    pub fn answers(&mut self) -> bool {
        let wait = |end: &TcpStream, time| end.set_read_timeout(Some(time)).expect("a time");
        wait(&self.far, Duration::from_millis(500));
        let arrives = self.near.write_all(b"?").and_then(|()| self.far.read_exact(&mut [0])).is_ok();
        wait(&self.far, PATIENCE);
        arrives
    }

    /// Many bytes one way; the sender uses whatever the kernel offers: segments of 64 KiB, checksums left undone.
    #[track_caller]
    pub fn transfer(&mut self, bytes: usize) {
        let sent: Vec<u8> = (0..bytes).map(|i| (i ^ i >> 8 ^ i >> 16) as u8).collect();
        let (near, far) = (&mut self.near, &mut self.far);
        let received = std::thread::scope(|scope| {
            scope.spawn(|| near.write_all(&sent).expect("the connection is open"));
            let mut received = vec![0; bytes];
            far.read_exact(&mut received).expect("all bytes arrive");
            received
        });
        assert!(received == sent, "the bytes changed on their way");
    }
}

/// Receives again if a signal came: a wait with a limit ends when a child of this process does, whoever began it (signal(7)).
pub fn uninterrupted<T>(mut receive: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match receive() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Sends datagrams of several lengths there and back again.
#[track_caller]
pub fn datagrams(from: &Namespace, to: &Namespace, address: Ipv4Addr) {
    let bind = |namespace: &Namespace, port| {
        let socket = namespace.inside(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))).expect("a socket");
        socket.set_read_timeout(Some(Duration::from_secs(2))).expect("a time");
        socket
    };
    let (near, far) = (bind(from, 0), bind(to, 5300));
    for len in [0, 1, 512, 1472] {
        let (sent, mut arrived) = (vec![len as u8; len], vec![0; 2000]);
        eventually("a datagram goes there and back", || {
            near.send_to(&sent, (address, 5300)).expect("a route");
            let Ok((count, source)) = far.recv_from(&mut arrived) else { return false };
            far.send_to(&arrived[..count], source).expect("a route");
            matches!(near.recv_from(&mut arrived), Ok((count, _)) if arrived[..count] == sent)
        });
    }
}

/// Whether a closed UDP port is heard of: the server's ICMP error finds its way to the socket that asked.
pub fn hears_of_a_closed_port(from: &Namespace, to: Ipv4Addr) -> bool {
    let socket = from.inside(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))).expect("a socket");
    socket.connect((to, 33434)).expect("a route");
    socket.set_read_timeout(Some(Duration::from_secs(1))).expect("a time");
    let asked = socket.send(b"?").and_then(|_| uninterrupted(|| socket.recv(&mut [0; 8])));
    asked.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

/// Who reaches whom: what is compared with Linux.
#[derive(Debug, PartialEq, Eq)]
pub struct Reach {
    pub ping: bool,
    pub tcp: bool,
    pub icmp_error: bool,
    pub ping_inwards: bool,
    pub tcp_inwards: bool,
}

/// Tries everything once Braid or Linux has come up.
#[track_caller]
pub fn reach(scene: &Scene, inwards: Ipv4Addr) -> Reach {
    let (client, server) = (&scene.client, &scene.server);
    eventually("the first echo comes back", || pings(client, SERVER));
    let short = Duration::from_millis(1500);
    Reach {
        ping: true,
        tcp: connect(client, server, SERVER, 8000, PATIENCE).is_ok(),
        icmp_error: hears_of_a_closed_port(client, SERVER) || hears_of_a_closed_port(client, SERVER),
        ping_inwards: pings(server, inwards),
        tcp_inwards: connect(server, client, inwards, 8001, short).is_ok(),
    }
}

//! Traffic of clients that show SYN cookies: what they and their servers answer to what one worker sent.

use braid_functions::find;
use braid_packet::{FrameInfo, Link};
use braid_testkit::kernel::KernelOracle;
use braid_testkit::skip::note;
use braid_testkit::{Bench, Frame};

/// Offered by both ends: segment size 1460, selective acknowledgements, a time stamp, shift 5.
const OFFER: [u8; 20] = [2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 27, 88, 0, 0, 0, 0, 1, 3, 3, 5];
/// Connections that go on at the same time.
const ABREAST: usize = 8;
const FIRST: u32 = 4000;

/// A connection on its way.
struct Connection {
    client: String,
    /// Nobody listens.
    closed: bool,
    /// Frames that wait, by the port by which they come in.
    next: Vec<(u16, Vec<u8>)>,
}

/// So many frames of connections to a server behind `anti_ddos` with this configuration.
pub fn handshakes(config: &str, packets: usize) -> Vec<(FrameInfo, Vec<u8>)> {
    let build = find("anti_ddos").expect("it is in the catalogue").build;
    let mut bench = Bench::new(2, |builder| build("guard", config.parse().expect("TOML"), builder, 2).expect("built"));
    let mut frames = Vec::new();
    let mut fresh = (0..).map(Connection::new);
    let mut connections: Vec<Connection> = fresh.by_ref().take(ABREAST).collect();
    for turn in 0.. {
        let connection = &mut connections[turn % ABREAST];
        let Some((port, frame)) = connection.next.pop() else {
            *connection = fresh.next().expect("there is no end of them");
            continue;
        };
        let ns = frames.len() as u64 * 1_000_000;
        for (sent_by, sent) in bench.send_at(port, ns, &frame).sent {
            connection.hear(sent_by, &sent);
        }
        let (len, sequence) = (frame.len() as u32, frames.len() as u64);
        frames.push((FrameInfo { port, link: Link::Ethernet, timestamp_ns: ns, wire_len: len, sequence }, frame));
        if frames.len() >= packets {
            break;
        }
    }
    frames
}

impl Connection {
    fn new(n: usize) -> Connection {
        let client = format!("198.18.0.{}:{}", n % 5, 1000 + n % 64);
        let syn = Frame::tcp(&client, SERVER).flags("S").numbers(FIRST, 0).options(&OFFER).bytes();
        Connection { client, closed: n % 5 == 4, next: vec![(0, syn)] }
    }

    /// What an end answers to a frame without options of IP.
    fn hear(&mut self, port: u16, frame: &[u8]) {
        let number = |at: usize| u32::from_be_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]]);
        let (sequence, flags) = (number(38), frame[47]);
        let from = |server: bool| {
            let (source, destination) =
                if server { (SERVER, self.client.as_str()) } else { (self.client.as_str(), SERVER) };
            Frame::tcp(source, destination)
        };
        // A stamp stands behind segment size and permission; what is echoed says what was accepted.
        let echo = [&[1, 1, 8, 10, 0, 0, 27, 89][..], &frame[62.min(frame.len() - 4)..][..4]].concat();
        match (port, flags & 0x17) {
            (0, 0x12) => {
                let shows = from(false).numbers(FIRST + 1, sequence.wrapping_add(1)).options(&echo);
                let ends = from(false).flags("FA").numbers(FIRST + 1, sequence.wrapping_add(1)).options(&echo);
                self.next = vec![(0, ends.bytes()), (0, shows.bytes())];
            }
            (1, 0x02) if self.closed => {
                self.next.push((1, from(true).flags("RA").numbers(0, FIRST + 1).bytes()));
            }
            (1, 0x02) => {
                let ends = from(true).flags("FA").numbers(9_000_001, FIRST + 2).options(&echo);
                self.next.insert(0, (1, ends.bytes()));
                self.next.push((1, from(true).flags("SA").numbers(9_000_000, FIRST + 1).options(&OFFER).bytes()));
            }
            _ => {}
        }
    }
}

const SERVER: &str = "192.0.2.1:80";

/// What a segment says, numbers apart that everybody chooses: flags, window, options without the values of time stamps, payload.
fn said(frame: &[u8]) -> (u8, u16, Vec<u8>, usize) {
    let (tcp, total) = (&frame[34..], usize::from(u16::from_be_bytes([frame[16], frame[17]])));
    let header = usize::from(tcp[12] >> 4) * 4;
    let mut options = tcp[20..header].to_vec();
    if let Some(at) = options.windows(2).position(|pair| pair == [8, 10]) {
        options[at + 2..at + 10].fill(0);
    }
    (tcp[13], u16::from_be_bytes([tcp[14], tcp[15]]), options, total - 20 - header)
}

/// A connection through the kernel's proxy and ours, step by step: each is answered with its own cookie. One difference is wanted:
/// ours tells its segment size to a client that has not told its own.
fn compare(kernel: &mut KernelOracle, port: u16, offer: &[u8], server_offer: &[u8]) {
    let build = find("anti_ddos").expect("it is in the catalogue").build;
    let config = "action = 'cookies'\ncookies = { when = 'always' }";
    let mut ours = Bench::new(2, |builder| build("guard", config.parse().expect("TOML"), builder, 2).expect("built"));
    let ends = [format!("10.1.0.5:{port}"), format!("203.0.113.5:{port}")];
    let [server, client] = &ends;
    let number = |frame: &[u8], at: usize| u32::from_be_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]]);
    // Numbers of the server as the client knows them, and its stamp: the kernel's, ours.
    let mut told = [(0, 0); 2];
    let mut step = |what: &str, from: usize, frame: &dyn Fn((u32, u32)) -> Frame, told: &mut [(u32, u32); 2]| {
        let ours_said = ours.send(from as u16, 1, &frame(told[1]).bytes()).sent;
        let ours_said: Vec<_> = ours_said.into_iter().map(|(port, frame)| (usize::from(port), frame)).collect();
        let of_kernel = kernel.feed(from, &frame(told[0]).bytes()).expect("the kernel takes it");
        for (sent, told) in [&of_kernel, &ours_said].into_iter().zip(told) {
            if let Some((_, answer)) = sent.iter().find(|(port, frame)| *port == 1 && frame[47] == 0x12) {
                let stamp = answer[54..].windows(2).position(|pair| pair == [8, 10]);
                *told = (number(answer, 38).wrapping_add(1), stamp.map_or(0, |at| number(answer, 56 + at)));
            }
        }
        let sorted = |sent: Vec<(usize, Vec<u8>)>| {
            let mut said: Vec<_> = sent.iter().map(|(port, frame)| (*port, said(frame))).collect();
            said.sort();
            said
        };
        assert_eq!(sorted(ours_said), sorted(of_kernel), "{what}, offers {offer:02x?} {server_offer:02x?}");
    };
    let stamped = offer.contains(&8);
    let stamps = |value: u32, echo: u32| match stamped {
        true => [&[1, 1, 8, 10][..], &value.to_be_bytes(), &echo.to_be_bytes()].concat(),
        false => Vec::new(),
    };
    let of_client = |flags: &str, (told, stamp): (u32, u32), data: &[u8]| {
        Frame::tcp(client, server)
            .flags(flags)
            .numbers(FIRST + 1, told)
            .options(&stamps(7001, stamp))
            .window(512)
            .payload(data)
    };
    let of_server = |flags: &str, acknowledges: u32, data: &[u8]| {
        Frame::tcp(server, client)
            .flags(flags)
            .numbers(9_000_001, FIRST + acknowledges)
            .options(&stamps(900, 7001))
            .window(400)
            .payload(data)
    };
    let syn = |_| Frame::tcp(client, server).flags("S").numbers(FIRST, 0).options(offer).window(64_000);
    step("SYN", 1, &syn, &mut told);
    step("wrong cookie", 1, &|(told, stamp)| of_client("A", (told + 77, stamp), b""), &mut told);
    step("cookie", 1, &|told| of_client("A", told, b""), &mut told);
    step("cookie again", 1, &|told| of_client("A", told, b""), &mut told);
    let accepts =
        |_| Frame::tcp(server, client).flags("SA").numbers(9_000_000, FIRST + 1).options(server_offer).window(65_160);
    step("SYN ACK", 0, &accepts, &mut told);
    step("question", 1, &|told| of_client("PA", told, b"question"), &mut told);
    step("answer", 0, &|_| of_server("PA", 9, b"answer"), &mut told);
    step(
        "FIN",
        0,
        &|_| Frame::tcp(server, client).flags("FA").numbers(9_000_007, FIRST + 9).options(&stamps(901, 7001)),
        &mut told,
    );
}

#[test]
fn cookies_are_shown_and_connections_opened_as_by_the_kernels_proxy() {
    let mut kernel = match KernelOracle::syn_proxy(&["10.1.0.0/24"]) {
        Ok(kernel) => kernel,
        Err(reason) => return note("cookies_are_shown_and_connections_opened_as_by_the_kernels_proxy", &reason),
    };
    let server = [2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 3, 132, 0, 0, 27, 89, 1, 3, 3, 7];
    compare(&mut kernel, 1, &OFFER, &server);
    compare(&mut kernel, 2, &[2, 4, 5, 180], &server[..4]);
    compare(
        &mut kernel,
        3,
        &[2, 4, 5, 100, 1, 1, 8, 10, 0, 0, 27, 88, 0, 0, 0, 0],
        &[&server[..4], &[1, 1], &server[6..16]].concat(),
    );
    compare(&mut kernel, 4, &[2, 4, 5, 180, 1, 1, 4, 2], &server[..4]);
    compare(&mut kernel, 5, &[2, 4, 2, 24, 1, 3, 3, 2], &server[..4]);
}

#[test]
fn clients_that_show_cookies_are_connected() {
    let config = "action = 'cookies'\ncookies = { when = 'always', secret = '000102030405060708090a0b0c0d0e0f' }";
    let count = |port, flags| {
        handshakes(config, 400).iter().filter(|(info, frame)| info.port == port && frame[47] == flags).count()
    };
    assert!(count(1, 0x12) > 40, "servers have answered");
    assert!(count(1, 0x11) > 40, "and ended");
}

//! Checks by UDP: a datagram that nobody refuses or somebody answers, and a question to a server of names (RFC 1035).

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant, SystemTime};

use braid_control::runtime::io::again;
use braid_functions::load_balancer::Check;

use super::Bad;

/// Length of the header of a DNS message.
const HEADER: usize = 12;
/// The longest answer that is looked at; only its header counts.
const ANSWER_MAX: usize = 4096;

/// Sends the payload. An ICMP error is bad and an answer is good; silence is bad only if there must be an answer, since most protocols say nothing
/// to what they do not understand.
pub(super) fn ask(end: SocketAddr, check: &Check, timeout: Duration) -> Result<(), Bad> {
    let asked = Asked::send(end, &check.payload().unwrap_or_default(), timeout)?;
    match asked.answer(&mut [0; ANSWER_MAX]) {
        Err(Bad::Late) if !check.must_answer => Ok(()),
        answer => answer.map(drop),
    }
}

/// Asks for a name; an answer without an error is good.
pub(super) fn ask_for_name(end: SocketAddr, check: &Check, timeout: Duration) -> Result<(), Bad> {
    // An answer to another question, as to that of a check before, is recognised by its number.
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let number = (since.as_nanos() as u16).to_be_bytes();
    // A standard query with one question; recursion is desired.
    let header = [number[0], number[1], 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    let asked = Asked::send(end, &[&header[..], &check.question().unwrap_or_default()].concat(), timeout)?;
    let mut answer = [0; ANSWER_MAX];
    loop {
        let len = asked.answer(&mut answer)?;
        if let Some(code) = code(&answer[..len], number) {
            return if code == 0 { Ok(()) } else { Err(Bad::NameError(code)) };
        }
    }
}

/// The code of an answer to the question with this number.
fn code(message: &[u8], number: [u8; 2]) -> Option<u8> {
    let is_answer = message.len() >= HEADER && message[..2] == number && message[2] & 0x80 != 0;
    is_answer.then(|| message[3] & 0x0f)
}

/// A datagram that has been sent, and the time until which its answer must arrive.
struct Asked {
    socket: UdpSocket,
    end: SocketAddr,
    begun: Instant,
    timeout: Duration,
}

impl Asked {
    fn send(end: SocketAddr, payload: &[u8], timeout: Duration) -> Result<Asked, Bad> {
        let any = if end.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind(SocketAddr::new(any, 0))?;
        // Only a connected socket hears of ICMP errors, and from nobody else.
        socket.connect(end).and_then(|()| socket.send(payload)).map_err(|error| Bad::connecting(error, end))?;
        Ok(Asked { socket, end, begun: Instant::now(), timeout })
    }

    /// Waits for the next answer; returns its length.
    fn answer(&self, into: &mut [u8]) -> Result<usize, Bad> {
        let receive = || {
            let left = self.timeout.saturating_sub(self.begun.elapsed());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.socket.set_read_timeout(Some(left))?;
            self.socket.recv(into)
        };
        again(receive).map_err(|error| Bad::connecting(error, self.end))
    }
}

#[cfg(test)]
mod tests {
    use braid_functions::load_balancer::{CheckKind, Record};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);
    const SHORT: Duration = Duration::from_millis(30);

    /// A server that answers one datagram with what `answer` makes of it; returns what was asked.
    fn serve(answer: fn(&[u8]) -> Vec<u8>) -> (SocketAddr, std::thread::JoinHandle<Vec<u8>>) {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let end = socket.local_addr().unwrap();
        let serving = std::thread::spawn(move || {
            let mut asked = [0; 2048];
            let (len, from) = socket.recv_from(&mut asked).unwrap();
            socket.send_to(&answer(&asked[..len]), from).unwrap();
            asked[..len].to_vec()
        });
        (end, serving)
    }

    fn check(kind: CheckKind) -> Check {
        Check { kind, ..Check::default() }
    }

    #[test]
    fn an_answer_is_good_a_refusal_is_bad_and_silence_is_as_the_plan_says() {
        let (end, serving) = serve(|_| b"pong".to_vec());
        let ping = Check { payload: "70696e67".to_owned(), must_answer: true, ..check(CheckKind::Udp) };
        assert!(ask(end, &ping, PATIENCE).is_ok());
        assert_eq!(serving.join().unwrap(), b"ping");
        // The server is gone, and its port is closed.
        assert!(matches!(ask(end, &check(CheckKind::Udp), PATIENCE), Err(Bad::Io(_))));
        let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
        let end = silent.local_addr().unwrap();
        assert!(ask(end, &check(CheckKind::Udp), SHORT).is_ok());
        assert!(matches!(ask(end, &ping, SHORT), Err(Bad::Late)));
    }

    #[test]
    fn a_server_of_names_is_good_by_the_code_of_its_answer() {
        fn answer(asked: &[u8], code: u8) -> Vec<u8> {
            [&asked[..2], &[0x81, 0x80 | code], &asked[4..]].concat()
        }
        let of_mail = Check { name: "example.com".to_owned(), record: Record::Mx, ..check(CheckKind::Dns) };
        let (end, serving) = serve(|asked| answer(asked, 0));
        assert!(ask_for_name(end, &of_mail, PATIENCE).is_ok());
        let asked = serving.join().unwrap();
        assert_eq!(asked[2..12], [1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(asked[12..], *b"\x07example\x03com\x00\x00\x0f\x00\x01");
        let (end, _) = serve(|asked| answer(asked, 2));
        assert!(matches!(ask_for_name(end, &check(CheckKind::Dns), PATIENCE), Err(Bad::NameError(2))));
        // What answers another question, or is a question itself, is no answer.
        assert_eq!(code(&[1, 2, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0], [1, 3]), None);
        assert_eq!(code(&[1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], [1, 2]), None);
        assert_eq!(code(&[1, 2, 0x80], [1, 2]), None);
    }
}

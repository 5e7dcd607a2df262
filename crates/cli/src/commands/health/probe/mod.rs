//! One check of one backend: whether it accepts a connection, serves a page (RFC 9110, in the syntax of HTTP/1.1), or takes or answers
//! a datagram.

mod udp;

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use braid_control::runtime::io::again;
use braid_functions::load_balancer::{Check, CheckKind};
use rustix::io::Errno;

/// Maximum number of bytes of an answer that are examined, which must contain its first line.
const LINE_MAX: usize = 512;

/// Why a check failed.
#[derive(Debug, thiserror::Error)]
pub enum Bad {
    /// The backend cannot be reached.
    #[error("{0}")]
    Io(io::Error),
    /// The check could not be made, because this machine has no route, no permission, or no descriptor or memory left. That says
    /// nothing about the backend.
    #[error("this machine cannot ask it: {0}")]
    Unasked(io::Error),
    /// There was no answer in time.
    #[error("no answer in time")]
    Late,
    /// The backend answered with a bad status.
    #[error("status {0}")]
    Status(u16),
    /// The backend does not speak HTTP.
    #[error("no HTTP answer")]
    NotHttp,
    /// The server of names answered with an error (RFC 1035 section 4.1.1).
    #[error("DNS error {0}")]
    NameError(u8),
}

impl From<io::Error> for Bad {
    fn from(error: io::Error) -> Bad {
        let exhausted = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS].map(|errno| errno.raw_os_error());
        match error.kind() {
            _ if error.raw_os_error().is_some_and(|errno| exhausted.contains(&errno)) => Bad::Unasked(error),
            // A read whose time limit has expired "would block" (socket(7), SO_RCVTIMEO).
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Bad::Late,
            io::ErrorKind::NetworkUnreachable | io::ErrorKind::AddrNotAvailable | io::ErrorKind::PermissionDenied => {
                Bad::Unasked(error)
            }
            _ => Bad::Io(error),
        }
    }
}

impl Bad {
    /// Why no connection was opened. Routers and backends refuse with ICMP errors that Linux turns into the errors of a machine
    /// without a route, or whose own route prohibits the packet (net/ipv4/icmp.c `icmp_err_convert`, net/ipv6/icmp.c
    /// `tab_unreach`). Only this machine's routes tell whose refusal it was; EPERM comes from no packet.
    fn connecting(error: io::Error, end: SocketAddr) -> Bad {
        let errno = error.raw_os_error();
        let may_be_theirs = [Errno::NETUNREACH, Errno::ACCESS].iter().any(|told| errno == Some(told.raw_os_error()));
        if may_be_theirs && has_route(end) { Bad::Io(error) } else { error.into() }
    }
}

/// Whether this machine has a route to an address that prohibits nothing. Connecting a UDP socket sends nothing.
fn has_route(end: SocketAddr) -> bool {
    let any = if end.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    UdpSocket::bind(SocketAddr::new(any, 0)).and_then(|socket| socket.connect(end)).is_ok()
}

/// Performs the check; the answer must arrive within `timeout` in total.
pub fn ask(end: SocketAddr, check: &Check, timeout: Duration) -> Result<(), Bad> {
    match check.kind {
        CheckKind::Tcp => connect(end, timeout).map(drop),
        CheckKind::Http => ask_for_page(end, check, timeout),
        CheckKind::Udp => udp::ask(end, check, timeout),
        CheckKind::Dns => udp::ask_for_name(end, check, timeout),
    }
}

fn connect(end: SocketAddr, timeout: Duration) -> Result<TcpStream, Bad> {
    TcpStream::connect_timeout(&end, timeout).map_err(|error| Bad::connecting(error, end))
}

fn ask_for_page(end: SocketAddr, check: &Check, timeout: Duration) -> Result<(), Bad> {
    let begun = Instant::now();
    let mut stream = connect(end, timeout)?;
    let left = || match timeout.saturating_sub(begun.elapsed()) {
        Duration::ZERO => Err(io::Error::from(io::ErrorKind::TimedOut)),
        left => Ok(left),
    };
    let host = check.host.clone().unwrap_or_else(|| end.to_string());
    let request = format!(
        "GET {} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: braid-health\r\nAccept: */*\r\nConnection: close\r\n\r\n",
        check.path
    );
    stream.set_write_timeout(Some(left()?))?;
    stream.write_all(request.as_bytes())?;
    let (mut line, mut len) = ([0; LINE_MAX], 0);
    while !line[..len].contains(&b'\n') && len < LINE_MAX {
        let read = || {
            stream.set_read_timeout(Some(left()?))?;
            stream.read(&mut line[len..])
        };
        match again(read)? {
            0 => break,
            more => len += more,
        }
    }
    match status(&line[..len]) {
        Some(200..=399) => Ok(()),
        Some(other) => Err(Bad::Status(other)),
        None => Err(Bad::NotHttp),
    }
}

/// The status code of a status line (RFC 9112 section 4).
fn status(line: &[u8]) -> Option<u16> {
    // Parsed as bytes, because the reason phrase may be in any character set.
    let mut words = line.split(|byte| byte.is_ascii_whitespace());
    let (version, status) = (words.next()?, words.next()?);
    let is_status = version.starts_with(b"HTTP/1.") && status.len() == 3 && status.iter().all(u8::is_ascii_digit);
    is_status.then(|| status.iter().fold(0, |number, digit| number * 10 + u16::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Checks a server that gives this answer.
    #[track_caller]
    fn check(answer: &'static str, expected: &str) {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let end = server.local_addr().unwrap();
        let serving = std::thread::spawn(move || {
            let (mut stream, _) = server.accept().unwrap();
            let mut request = [0; 1024];
            let len = stream.read(&mut request).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
            String::from_utf8_lossy(&request[..len]).into_owned()
        });
        let check = Check { kind: CheckKind::Http, path: "/health".to_owned(), ..Check::default() };
        let said = ask(end, &check, Duration::from_secs(20)).map_or_else(|bad| bad.to_string(), |()| "good".to_owned());
        assert_eq!(said, expected, "{answer}");
        let request = serving.join().unwrap();
        assert!(request.starts_with(&format!("GET /health HTTP/1.1\r\nHost: {end}\r\n")), "{request}");
    }

    #[test]
    fn a_page_is_good_by_its_status() {
        check("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "good");
        check("HTTP/1.0 204 No Content\r\n\r\n", "good");
        check("HTTP/1.1 302 Found\r\n\r\n", "good");
        check("HTTP/1.1 503 Service Unavailable\r\n\r\n", "status 503");
        check("HTTP/1.1 404 Not Found\r\n\r\n", "status 404");
        check("SSH-2.0-OpenSSH\r\n", "no HTTP answer");
        check("", "no HTTP answer");
    }

    #[test]
    fn a_reason_may_be_in_any_character_set_and_a_status_has_three_digits() {
        assert_eq!(status(b"HTTP/1.1 200 Tr\xe8s bien\r\n"), Some(200));
        assert_eq!(status(b"HTTP/1.1 200\r\n"), Some(200));
        for line in [&b"HTTP/1.1 +20 OK"[..], b"HTTP/1.1 2000 OK", b"HTTP/1.1\r\n", b"200 OK"] {
            assert_eq!(status(line), None);
        }
    }

    #[test]
    fn nobody_there_is_bad_and_a_connection_is_good() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let end = server.local_addr().unwrap();
        let second = Duration::from_secs(1);
        assert!(ask(end, &Check::default(), second).is_ok());
        let silent = Check { kind: CheckKind::Http, ..Check::default() };
        assert!(matches!(ask(end, &silent, Duration::from_millis(30)), Err(Bad::Late)), "it accepts and says nothing");
        drop(server);
        assert!(matches!(ask(end, &Check::default(), second), Err(Bad::Io(_))));
        assert!(matches!(Bad::from(io::Error::from(io::ErrorKind::NetworkUnreachable)), Bad::Unasked(_)));
    }

    #[test]
    fn who_can_be_asked_and_prohibits_it_is_bad() {
        // What "administratively prohibited" (ICMPv6) and "network unknown" (ICMP) become, and there is a route.
        let end: SocketAddr = "127.0.0.1:80".parse().unwrap();
        for errno in [Errno::ACCESS, Errno::NETUNREACH] {
            assert!(matches!(Bad::connecting(errno.into(), end), Bad::Io(_)), "{errno}");
        }
        for errno in [Errno::PERM, Errno::ADDRNOTAVAIL, Errno::MFILE] {
            assert!(matches!(Bad::connecting(errno.into(), end), Bad::Unasked(_)), "{errno}");
        }
        // To an address without a zone there is no route within a link (RFC 4007 section 6).
        let nowhere: SocketAddr = "[fe80::1]:80".parse().unwrap();
        assert!(matches!(Bad::connecting(Errno::NETUNREACH.into(), nowhere), Bad::Unasked(_)));
    }

    #[test]
    fn a_checker_without_descriptors_says_nothing_about_backends() {
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS] {
            assert!(matches!(Bad::from(io::Error::from(errno)), Bad::Unasked(_)), "{errno}");
        }
        assert!(matches!(Bad::from(io::Error::from(Errno::CONNREFUSED)), Bad::Io(_)));
    }
}

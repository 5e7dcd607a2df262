//! A small HTTP/1.1 server for metrics and the web page: GET and HEAD only, one request per connection, all resources bounded.
//!
//! Metrics are available to everybody who can reach the address. The page itself contains no data; the figures that it fetches
//! require the token, which is compared in constant time. The head of a request has at most [`HEAD_MAX`] bytes and must arrive
//! within [`PATIENCE`]. At most [`CONNECTIONS_MAX`] connections are served at once; the one that has been silent for longest makes
//! room for a new one. No request changes anything.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use braid_runtime::io::again;
use braid_runtime::io::secret::is_same;

use super::listener::{Listening, Serve};
use super::metrics;
use super::seat::Seat;
use super::service::Service;

/// Maximum size of a request's head, in bytes.
pub const HEAD_MAX: usize = 8192;
/// Maximum number of simultaneous connections.
pub const CONNECTIONS_MAX: usize = 16;
/// Time limit for a request to arrive, and for its answer to be accepted.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// A running server. Dropping it ends it.
#[derive(Debug)]
pub struct HttpServer {
    address: SocketAddr,
    _listening: Listening,
}

/// What a server offers.
#[derive(Clone, Debug)]
pub enum Offer {
    /// Metrics, without authentication.
    Metrics,
    /// The page, and the figures for clients that know the token.
    Page {
        /// The token.
        token: String,
    },
}

impl HttpServer {
    /// Starts a server at `address`; port 0 selects any free port.
    pub fn offer(address: SocketAddr, service: &Arc<Service>, offer: Offer) -> io::Result<HttpServer> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        Ok(HttpServer { address, _listening: Listening::begin("http", listener, service, offer)? })
    }

    /// The address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Serve<TcpStream> for Offer {
    const MOST: usize = CONNECTIONS_MAX;
    // A client sends its request as soon as it has connected.
    const SPARED: Duration = Duration::from_millis(100);

    fn serve(&self, seat: &Seat<TcpStream>, service: &Service) -> io::Result<()> {
        serve(seat, service, self)
    }
}

/// Security headers: load no external resources, forbid embedding, guess no content types.
const PROTECTION: &str = "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
connect-src 'self'; img-src data:; frame-ancestors 'none'\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n";

/// A response: status line, content type, body.
struct Response(&'static str, &'static str, String);

fn serve(seat: &Seat<TcpStream>, service: &Service, offer: &Offer) -> io::Result<()> {
    let mut stream = &seat.stream;
    stream.set_write_timeout(Some(PATIENCE))?;
    let request = seat.hear(|| read_head(stream))?;
    let Response(status, kind, body) = match &request {
        Some(head) => respond(head, service, offer),
        None => plain("400 Bad Request", "this is no request, or too long a one\n"),
    };
    let sent = if request.is_some_and(|head| head.method == "HEAD") { "" } else { body.as_str() };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\nCache-Control: no-store\r\n{PROTECTION}\r\n",
        body.len()
    );
    seat.tell(|| stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(sent.as_bytes())))
}

fn plain(status: &'static str, text: &str) -> Response {
    Response(status, "text/plain; charset=utf-8", text.to_owned())
}

/// Method, target and token of a request.
struct Head {
    method: String,
    target: String,
    token: Vec<u8>,
}

fn read_head(mut stream: &TcpStream) -> io::Result<Option<Head>> {
    let (begun, mut bytes) = (Instant::now(), Vec::with_capacity(1024));
    let mut chunk = [0; 1024];
    loop {
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(&bytes) {
            Ok(httparse::Status::Complete(_)) => {
                let owned = |text: Option<&str>| text.unwrap_or("").to_owned();
                let (method, target) = (owned(request.method), owned(request.path));
                let authorization = request.headers.iter().find(|h| h.name.eq_ignore_ascii_case("authorization"));
                let token = authorization.and_then(|header| header.value.strip_prefix(b"Bearer "));
                return Ok(Some(Head { method, target, token: token.unwrap_or_default().to_vec() }));
            }
            Ok(httparse::Status::Partial) if bytes.len() < HEAD_MAX => {}
            _ => return Ok(None),
        }
        let left = PATIENCE.checked_sub(begun.elapsed()).filter(|left| !left.is_zero());
        stream.set_read_timeout(Some(left.ok_or(io::ErrorKind::TimedOut)?))?;
        match again(|| stream.read(&mut chunk))? {
            0 => return Ok(None),
            read => bytes.extend_from_slice(&chunk[..read]),
        }
    }
}

fn respond(head: &Head, service: &Service, offer: &Offer) -> Response {
    let path = head.target.split('?').next().unwrap_or("");
    // The answer to HEAD is that to GET without its body (RFC 9110 section 9.3.2).
    let method = if head.method == "HEAD" { "GET" } else { head.method.as_str() };
    match (method, path, offer) {
        ("GET", "/metrics", Offer::Metrics) => {
            Response("200 OK", metrics::CONTENT_TYPE, metrics::text(&service.stats_with_figures()))
        }
        ("GET", "/", Offer::Metrics) => plain("200 OK", "braid: metrics are at /metrics\n"),
        ("GET", "/", Offer::Page { .. }) => Response("200 OK", "text/html; charset=utf-8", PAGE.to_owned()),
        ("GET", "/stats", Offer::Page { token }) if is_same(token.as_bytes(), &head.token) => {
            match serde_json::to_string(&service.stats(true)) {
                Ok(text) => Response("200 OK", "application/json", text),
                Err(_) => plain("500 Internal Server Error", "no JSON can be made\n"),
            }
        }
        ("GET", "/stats", Offer::Page { .. }) => plain("401 Unauthorized", "the token is missing or wrong\n"),
        ("GET", ..) => plain("404 Not Found", "nothing is here\n"),
        _ => plain("405 Method Not Allowed", "only GET and HEAD\n"),
    }
}

/// The page, in one file.
const PAGE: &str = include_str!("page.html");

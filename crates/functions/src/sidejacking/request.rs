//! The header lines of an HTTP/1 request (RFC 9112) that identify sessions, as far as each lies within one packet.

/// A header line of interest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen<'a> {
    /// The value of `Host`.
    Host(&'a [u8]),
    /// The value of `User-Agent`.
    Agent(&'a [u8]),
    /// Name and value of a session cookie.
    Cookie(&'a [u8], &'a [u8]),
    /// The empty line that ends the header.
    End,
    /// A line that continues in the next packet, and is not read.
    Cut,
}

const METHODS: [&[u8]; 6] = [b"GET ", b"POST ", b"HEAD ", b"PUT ", b"DELETE ", b"OPTIONS "];

/// Whether a payload begins a request.
pub(super) fn begins(payload: &[u8]) -> bool {
    METHODS.iter().any(|method| payload.starts_with(method))
}

/// The complete lines of interest in a payload, up to the end of the header, and whether another line continues in the next packet.
pub(super) fn lines<'a>(payload: &'a [u8], names: &'a [String]) -> impl Iterator<Item = Seen<'a>> {
    let mut rest = Some(payload);
    std::iter::from_fn(move || {
        loop {
            let text = rest?;
            let Some(end) = text.iter().position(|byte| *byte == b'\n') else {
                rest = None;
                return (!text.is_empty()).then_some(Seen::Cut);
            };
            let line = text[..end].strip_suffix(b"\r").unwrap_or(&text[..end]);
            rest = Some(&text[end + 1..]);
            if line.is_empty() {
                rest = None;
                return Some(Seen::End);
            }
            if let Some(seen) = header(line, names) {
                return Some(seen);
            }
        }
    })
}

fn header<'a>(line: &'a [u8], names: &[String]) -> Option<Seen<'a>> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
    match name.len() {
        4 if name.eq_ignore_ascii_case(b"host") => Some(Seen::Host(value)),
        10 if name.eq_ignore_ascii_case(b"user-agent") => Some(Seen::Agent(value)),
        6 if name.eq_ignore_ascii_case(b"cookie") => cookie(value, names),
        _ => None,
    }
}

/// The first session cookie of a list (RFC 6265 section 4.2.1).
fn cookie<'a>(list: &'a [u8], names: &[String]) -> Option<Seen<'a>> {
    list.split(|byte| *byte == b';').find_map(|pair| {
        let pair = pair.trim_ascii();
        let equals = pair.iter().position(|byte| *byte == b'=')?;
        let (name, value) = (&pair[..equals], &pair[equals + 1..]);
        let is_wanted = names.iter().any(|wanted| wanted.as_bytes().eq_ignore_ascii_case(name));
        (is_wanted && value.len() >= VALUE_MIN).then_some(Seen::Cookie(name, value))
    })
}

/// Shorter values cannot identify a session, because they could be guessed.
const VALUE_MIN: usize = 8;

//! DNS responses (RFC 1035 section 4): the name in the question, and the first address in the answer.
//!
//! Malformed messages are not taken for responses.

use braid_nf::packet::IpAddress;

const HEADER: usize = 12;
const A: usize = 1;
const AAAA: usize = 28;
/// Bytes that end a question: the end of its name, its type and its class.
const QUESTION_END: usize = 5;
/// The most bytes of a name (RFC 1035 section 3.1).
pub const NAME_MOST: usize = 255;
/// The most labels that are examined; a name has at most 127.
const LABELS: usize = 128;

/// A response with one question.
pub struct Response<'a> {
    message: &'a [u8],
    /// Where the labels of the name in the question begin and end; the top-level label is last.
    labels: [(usize, usize); LABELS],
    depth: usize,
    /// The offset at which the answers begin.
    answers: usize,
}

/// A domain that other names may end in.
#[derive(Clone, Debug)]
pub struct Name {
    /// The labels, each preceded by its length, as in a message.
    labels: Box<[u8]>,
    depth: usize,
}

braid_nf::plain!(Name);

impl Name {
    /// Parses a name with or without the trailing dot. `None` if no message could contain it.
    pub fn parse(text: &str) -> Option<Name> {
        let (mut bytes, mut depth) = (Vec::new(), 0);
        for label in text.strip_suffix('.').unwrap_or(text).split('.') {
            if !(1..64).contains(&label.len()) || !label.bytes().all(|byte| byte.is_ascii_graphic()) {
                return None;
            }
            bytes.push(label.len() as u8);
            bytes.extend_from_slice(label.as_bytes());
            depth += 1;
        }
        (bytes.len() < NAME_MOST).then(|| Name { labels: bytes[1..].into(), depth })
    }

    /// How many labels the name has.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Whether the question of a response is about this name or a name below it.
    pub fn ends(&self, response: &Response<'_>) -> bool {
        response.name_from(self.depth - 1).is_some_and(|end| end.eq_ignore_ascii_case(&self.labels))
    }
}

fn be16(bytes: &[u8], at: usize) -> Option<usize> {
    Some(usize::from(*bytes.get(at)?) << 8 | usize::from(*bytes.get(at + 1)?))
}

impl<'a> Response<'a> {
    /// Parses a payload as a response.
    pub fn parse(message: &'a [u8]) -> Option<Response<'a>> {
        let is_response = be16(message, 2)? & 0x8000 != 0;
        if !is_response || be16(message, 4)? != 1 {
            return None;
        }
        let (mut labels, mut depth, mut at) = ([(0, 0); LABELS], 0, HEADER);
        loop {
            let len = usize::from(*message.get(at)?);
            match len {
                0 => break,
                1..=63 => *labels.get_mut(depth)? = (at + 1, at + 1 + len),
                _ => return None,
            }
            depth += 1;
            at += 1 + len;
        }
        let answers = at + QUESTION_END;
        (message.len() >= answers).then_some(Response { message, labels, depth, answers })
    }

    /// The labels of the name in the question from the `from_top`th on, where 0 is the top-level label, as they are in the
    /// message: with length bytes between them.
    pub fn name_from(&self, from_top: usize) -> Option<&'a [u8]> {
        let labels = &self.labels[..self.depth];
        let first = labels.len().checked_sub(from_top + 1).map(|at| labels[at].0)?;
        Some(&self.message[first..labels.last()?.1])
    }

    /// The whole name in the question, as in the message.
    pub fn name(&self) -> &'a [u8] {
        &self.message[HEADER..self.answers - QUESTION_END]
    }

    /// The part of the name that follows a reversed address, as in queries to address-based lists (RFC 5782 sections 2.1 and
    /// 2.4).
    pub fn behind_address(&self) -> Option<&'a [u8]> {
        // Labels of a reversed IPv6 address may look like octets of IPv4, but not vice versa.
        self.behind_v6().or_else(|| self.behind_v4())
    }

    /// The part after 32 labels of one hexadecimal digit each, the last digit of the address first.
    fn behind_v6(&self) -> Option<&'a [u8]> {
        let (address, rest) = self.labels[..self.depth].split_first_chunk::<32>()?;
        let is_digit = |&(begin, end): &(usize, usize)| end - begin == 1 && self.message[begin].is_ascii_hexdigit();
        // Addresses assigned to hosts begin with 2 or 3 (RFC 4291 section 2.4). Names that begin otherwise are not treated as
        // addresses: no such host sends mail, and 124 bits of data look like one.
        let is_global = address.last().is_some_and(|&(begin, _)| matches!(self.message[begin], b'2' | b'3'));
        let (begin, _) = rest.first()?;
        (is_global && address.iter().all(is_digit)).then(|| &self.message[begin - 1..self.answers - QUESTION_END])
    }

    /// The part after four labels that are each the number of an octet.
    fn behind_v4(&self) -> Option<&'a [u8]> {
        let is_octet = |&(begin, end): &(usize, usize)| {
            let digits = &self.message[begin..end];
            let number = std::str::from_utf8(digits).ok().and_then(|text| text.parse::<u8>().ok());
            number.is_some_and(|number| number.to_string().as_bytes() == digits)
        };
        let (address, rest) = self.labels[..self.depth].split_first_chunk::<4>()?;
        let (begin, _) = rest.first()?;
        address.iter().all(is_octet).then(|| &self.message[begin - 1..self.answers - QUESTION_END])
    }

    /// Everything after the question, if there are answers.
    pub fn answers(&self) -> &'a [u8] {
        if be16(self.message, 6).is_some_and(|count| count > 0) { &self.message[self.answers..] } else { &[] }
    }

    /// The address in the first answer that has one.
    pub fn address(&self) -> Option<IpAddress> {
        let mut at = self.answers;
        for _ in 0..be16(self.message, 6)?.min(32) {
            at = skip_name(self.message, at)?;
            let (kind, len) = (be16(self.message, at)?, be16(self.message, at + 8)?);
            let data = self.message.get(at + 10..at + 10 + len)?;
            match kind {
                A => return data.try_into().ok().map(IpAddress::from_v4),
                AAAA => return data.try_into().ok().map(IpAddress::from_v6),
                _ => at += 10 + len,
            }
        }
        None
    }
}

fn skip_name(message: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match usize::from(*message.get(at)?) {
            0 => return Some(at + 1),
            len @ 1..=63 => at += 1 + len,
            192..=255 => return Some(at + 2),
            _ => return None,
        }
    }
}

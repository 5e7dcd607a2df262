//! DNS responses (RFC 1035 section 4): the name asked about, and the first address in the answer. Damaged messages are no responses.

use braid_nf::packet::IpAddress;

const HEADER: usize = 12;
const A: usize = 1;
const AAAA: usize = 28;
/// The end of the name asked about, its type and class.
const QUESTION_END: usize = 5;
/// Bytes of a name (RFC 1035 section 3.1).
pub const NAME_MOST: usize = 255;
/// Labels that are looked at; names have at most 127.
const LABELS: usize = 128;

/// A response with one question.
pub struct Response<'a> {
    message: &'a [u8],
    /// Labels of the name asked about, the top one last.
    labels: [(usize, usize); LABELS],
    depth: usize,
    /// Where the answers begin.
    answers: usize,
}

/// A name that names may end in.
#[derive(Clone, Debug)]
pub struct Name {
    /// Its labels with their lengths between them, as in a message.
    labels: Box<[u8]>,
    depth: usize,
}

braid_nf::plain!(Name);

impl Name {
    /// With or without the dot at its end; none if no message could hold it.
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

    /// How many labels it has.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Whether a response is about it, or about a name below it.
    pub fn ends(&self, response: &Response<'_>) -> bool {
        response.name_from(self.depth - 1).is_some_and(|end| end.eq_ignore_ascii_case(&self.labels))
    }
}

fn be16(bytes: &[u8], at: usize) -> Option<usize> {
    Some(usize::from(*bytes.get(at)?) << 8 | usize::from(*bytes.get(at + 1)?))
}

impl<'a> Response<'a> {
    /// The response that a payload is.
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

    /// The labels of the name asked about from the `from_top`th on, 0 being the top one, as they stand in the message: lengths between them.
    pub fn name_from(&self, from_top: usize) -> Option<&'a [u8]> {
        let labels = &self.labels[..self.depth];
        let first = labels.len().checked_sub(from_top + 1).map(|at| labels[at].0)?;
        Some(&self.message[first..labels.last()?.1])
    }

    /// The whole name asked about, as in the message.
    pub fn name(&self) -> &'a [u8] {
        &self.message[HEADER..self.answers - QUESTION_END]
    }

    /// What of it stands behind an address that is written backwards, as lists are asked about one (RFC 5782 sections 2.1 and 2.4).
    pub fn behind_address(&self) -> Option<&'a [u8]> {
        // Digits of IPv6 may look like numbers of IPv4, and not the other way round.
        self.behind_v6().or_else(|| self.behind_v4())
    }

    /// Behind 32 labels of a hexadecimal digit each, the last one first.
    fn behind_v6(&self) -> Option<&'a [u8]> {
        let (address, rest) = self.labels[..self.depth].split_first_chunk::<32>()?;
        let is_digit = |&(begin, end): &(usize, usize)| end - begin == 1 && self.message[begin].is_ascii_hexdigit();
        // All that is assigned to hosts begins with 2 (RFC 4291 section 2.4): no other address sends mail, and 124 bits of data look like one.
        let is_global = address.last().is_some_and(|&(begin, _)| matches!(self.message[begin], b'2' | b'3'));
        let (begin, _) = rest.first()?;
        (is_global && address.iter().all(is_digit)).then(|| &self.message[begin - 1..self.answers - QUESTION_END])
    }

    /// Behind four labels that are numbers of an octet.
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

    /// Everything behind the question, if there are answers.
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

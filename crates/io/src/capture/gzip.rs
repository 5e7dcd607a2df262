//! Decompresses gzip like the gzip program: member after member (RFC 1952 section 2.2). Zeros after the last member are ignored;
//! anything else there is reported as an error.

use std::io::{self, BufRead, Read};

use flate2::bufread::GzDecoder;

/// First byte of a member.
const MAGIC: u8 = 0x1f;

/// Decompresses consecutive members.
pub(crate) struct Gunzip<R> {
    at: Place<R>,
}

enum Place<R> {
    Within(GzDecoder<R>),
    /// After a member; `is_padded` is set once a zero has been skipped.
    Between {
        rest: R,
        is_padded: bool,
    },
    End,
}

impl<R: BufRead> Gunzip<R> {
    /// Decompresses the members in `inner`, of which there must be at least one.
    pub(crate) fn new(inner: R) -> Gunzip<R> {
        Gunzip { at: Place::Within(GzDecoder::new(inner)) }
    }

    /// Continues after a member: with the next one, past a zero, or to the end. If reading fails, unread data stays in place.
    fn go_on(&mut self) -> io::Result<()> {
        let Place::Between { rest, is_padded } = &mut self.at else { return Ok(()) };
        match rest.fill_buf()?.first() {
            Some(0) => {
                rest.consume(1);
                *is_padded = true;
                Ok(())
            }
            Some(&MAGIC) if !*is_padded => {
                if let Place::Between { rest, .. } = std::mem::replace(&mut self.at, Place::End) {
                    self.at = Place::Within(GzDecoder::new(rest));
                }
                Ok(())
            }
            Some(_) => {
                let what = "bytes that are no gzip stand behind the end of the compressed file";
                Err(io::Error::new(io::ErrorKind::InvalidData, what))
            }
            None => {
                self.at = Place::End;
                Ok(())
            }
        }
    }
}

impl<R: BufRead> Read for Gunzip<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match &mut self.at {
                Place::Within(member) => {
                    let read = member.read(into)?;
                    if read > 0 || into.is_empty() {
                        return Ok(read);
                    }
                    if let Place::Within(member) = std::mem::replace(&mut self.at, Place::End) {
                        self.at = Place::Between { rest: member.into_inner(), is_padded: false };
                    }
                }
                Place::Between { .. } => self.go_on()?,
                Place::End => return Ok(0),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn member(text: &str) -> Vec<u8> {
        let mut member = GzEncoder::new(Vec::new(), Compression::fast());
        member.write_all(text.as_bytes()).unwrap();
        member.finish().unwrap()
    }

    /// Checks what is read before the end or an error, for several read sizes.
    #[track_caller]
    fn check(parts: &[&[u8]], text: &str, error: Option<&str>) {
        let bytes = parts.concat();
        for most in [1, 3, 4096] {
            let mut read = String::new();
            let gunzip = Gunzip::new(io::BufReader::with_capacity(most, &bytes[..]));
            let ended = io::BufReader::with_capacity(2, gunzip).read_to_string(&mut read);
            assert_eq!((read.as_str(), ended.err().map(|error| error.to_string()).as_deref()), (text, error));
        }
    }

    #[test]
    fn members_follow_each_other_and_zeros_are_nothing() {
        let (one, other) = (member("one "), member("other"));
        check(&[&one, &other], "one other", None);
        check(&[&one, &member(""), &other, &[0; 512]], "one other", None);
    }

    #[test]
    fn what_stands_behind_the_end_is_said_to_be_there() {
        let (one, other) = (member("one "), member("other"));
        let garbage = Some("bytes that are no gzip stand behind the end of the compressed file");
        for rest in [&b"x"[..], b"more than ten bytes of a text", b"\0\0\x1f\x8b"] {
            check(&[&one, rest], "one ", garbage);
        }
        check(&[&one, &other[..5]], "one ", Some("unexpected end of file"));
        check(&[&one, b"\x1fno member at all"], "one ", Some("invalid gzip header"));
    }
}

//! A file as a byte stream with look-ahead. Memory grows with the data that is actually present, not with what a length field claims.

use std::io::{self, Read};

use crate::again;

const ROOM: usize = 256 << 10;

pub(crate) struct ByteStream {
    inner: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Stream offset of the byte at `start`.
    offset: u64,
    ended: bool,
    failure: Option<io::Error>,
}

impl ByteStream {
    pub(crate) fn new(inner: Box<dyn Read + Send>) -> ByteStream {
        ByteStream { inner, buffer: vec![0; ROOM], start: 0, end: 0, offset: 0, ended: false, failure: None }
    }

    /// The next `want` bytes; fewer only at the end or after a failure (see [`ByteStream::failure`]).
    pub(crate) fn peek(&mut self, want: usize) -> &[u8] {
        while self.end - self.start < want && !self.ended {
            self.fill(want);
        }
        &self.buffer[self.start..self.end.min(self.start + want)]
    }

    fn fill(&mut self, want: usize) {
        if self.start > 0 && self.buffer.len() - self.start < want.max(ROOM / 4) {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.buffer.len() {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        match again(|| self.inner.read(&mut self.buffer[self.end..])) {
            Ok(0) => self.ended = true,
            Ok(more) => self.end += more,
            Err(error) => {
                self.failure = Some(error);
                self.ended = true;
            }
        }
    }

    /// Bytes that have been peeked but not consumed.
    pub(crate) fn peeked(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Consumes `count` bytes, which must have been peeked.
    pub(crate) fn consume(&mut self, count: usize) {
        debug_assert!(count <= self.end - self.start);
        let count = count.min(self.end - self.start);
        self.start += count;
        self.offset += count as u64;
    }

    /// Number of bytes consumed so far.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Why the stream ended early, if it did.
    pub(crate) fn failure(&self) -> Option<&io::Error> {
        self.failure.as_ref()
    }
}

//! Frames held in memory, to be played again and again.

use std::sync::Arc;
use std::time::Duration;

use braid_runtime::io::memory::{Repeat, ReplaySource};
use braid_runtime::io::{FrameStream, Next};
use braid_runtime::nf::packet::FrameInfo;

/// Frames of an input, in order.
#[derive(Clone, Debug, Default)]
pub struct Frames(Arc<Vec<(FrameInfo, Vec<u8>)>>);

impl Frames {
    /// Reads a stream, at most `limit` frames.
    pub fn read(stream: &mut dyn FrameStream, limit: usize) -> Frames {
        let mut frames = Vec::new();
        while frames.len() < limit {
            match stream.advance() {
                Next::Frame => {
                    let (bytes, info) = stream.frame();
                    frames.push((info, bytes.to_vec()));
                }
                Next::Wait(time) => std::thread::sleep(time.min(Duration::from_millis(10))),
                Next::End => break,
            }
        }
        Frames(Arc::new(frames))
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Ports by which they come in: 0 to this number, exclusive.
    pub fn ports(&self) -> u16 {
        self.0.iter().map(|(info, _)| info.port + 1).max().unwrap_or(1)
    }

    /// Those of a range of positions, with their numbers in the whole.
    pub fn part(&self, range: std::ops::Range<usize>) -> Frames {
        Frames(Arc::new(self.0[range].to_vec()))
    }

    /// All but those of a range of positions.
    pub fn without(&self, range: std::ops::Range<usize>) -> Frames {
        let (before, behind) = (&self.0[..range.start], &self.0[range.end..]);
        Frames(Arc::new(before.iter().chain(behind).cloned().collect()))
    }

    /// As a source that plays them again and again, until each queue has delivered so many.
    pub fn repeated(&self, name: &str, packets_per_queue: u64) -> ReplaySource {
        let mut cursor = Cursor { frames: self.clone(), next: 0 };
        ReplaySource::load(name, &mut cursor, u64::MAX, Repeat::PacketsPerQueue(packets_per_queue))
    }

    /// As a source that delivers each once, without a thread of its own.
    pub fn source(&self, name: &str) -> ReplaySource {
        let mut cursor = Cursor { frames: self.clone(), next: 0 };
        ReplaySource::load(name, &mut cursor, u64::MAX, Repeat::Passes(1))
    }
}

/// A place in frames.
struct Cursor {
    frames: Frames,
    next: usize,
}

impl FrameStream for Cursor {
    fn advance(&mut self) -> Next {
        self.next += 1;
        if self.next <= self.frames.len() { Next::Frame } else { Next::End }
    }

    fn frame(&self) -> (&[u8], FrameInfo) {
        match self.next.checked_sub(1).and_then(|at| self.frames.0.get(at)) {
            Some((info, bytes)) => (bytes, *info),
            None => (&[], FrameInfo::default()),
        }
    }
}

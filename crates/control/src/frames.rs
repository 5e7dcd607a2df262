//! Frames held in memory, which can be replayed any number of times.

use std::sync::Arc;
use std::time::Duration;

use braid_runtime::io::memory::{Repeat, ReplaySource};
use braid_runtime::io::{FrameStream, Next};
use braid_runtime::nf::packet::FrameInfo;

/// The frames of an input, in order.
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

    /// Number of frames.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no frames.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of ports on which the frames arrive: one more than the highest port number.
    pub fn ports(&self) -> usize {
        self.0.iter().map(|(info, _)| usize::from(info.port) + 1).max().unwrap_or(1)
    }

    /// The frames in a range of positions; they keep their sequence numbers.
    pub fn part(&self, range: std::ops::Range<usize>) -> Frames {
        Frames(Arc::new(self.0[range].to_vec()))
    }

    /// All frames except those in a range of positions.
    pub fn without(&self, range: std::ops::Range<usize>) -> Frames {
        let (before, behind) = (&self.0[..range.start], &self.0[range.end..]);
        Frames(Arc::new(before.iter().chain(behind).cloned().collect()))
    }

    /// A source that replays the frames until each queue has delivered this many packets.
    pub fn repeated(&self, name: &str, packets_per_queue: u64) -> ReplaySource {
        let mut cursor = Cursor { frames: self.clone(), next: 0 };
        ReplaySource::load(name, &mut cursor, u64::MAX, Repeat::PacketsPerQueue(packets_per_queue))
    }

    /// A source that delivers each frame once, without a thread of its own.
    pub fn source(&self, name: &str) -> ReplaySource {
        let mut cursor = Cursor { frames: self.clone(), next: 0 };
        ReplaySource::load(name, &mut cursor, u64::MAX, Repeat::Passes(1))
    }
}

/// A position in a list of frames.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_port_counts_like_any_other() {
        let frame = |port| (FrameInfo { port, ..FrameInfo::default() }, Vec::new());
        assert_eq!(Frames(Arc::new(vec![frame(0), frame(u16::MAX)])).ports(), 1 << 16);
        assert_eq!(Frames::default().ports(), 1);
    }
}

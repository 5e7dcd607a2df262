//! Standard input as a capture. A separate thread reads it, so that a worker can tell when no packet has arrived yet.

use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::again;
use crate::source::OpenError;

/// The path that means standard input, or standard output when writing.
const DASH: &str = "-";
/// Maximum number of bytes read at once.
const BLOCK: usize = 64 << 10;
/// Maximum number of blocks that wait.
const BLOCKS_WAITING: usize = 16;

/// Whether a path means standard input or output. A file of that name can be given as `./-`.
pub fn is_dash(path: &Path) -> bool {
    path == Path::new(DASH)
}

/// Number of blocks that have arrived and were not taken. The end of input permanently counts as one.
#[derive(Clone, Debug, Default)]
pub(super) struct Arrived(Arc<AtomicUsize>);

impl Arrived {
    /// Whether a read would have to wait. Relaxed: if a block is noticed late, a reader just waits for it.
    pub(super) fn is_dry(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

/// What the thread has read, as a stream.
pub(super) struct Piped {
    blocks: Receiver<io::Result<Vec<u8>>>,
    block: Vec<u8>,
    at: usize,
    arrived: Arrived,
}

impl Piped {
    /// Starts to read `inner`. The thread ends when `inner` does, or soon after this value is dropped.
    pub(super) fn begin(inner: impl Read + Send + 'static) -> Result<(Piped, Arrived), OpenError> {
        let (sender, blocks) = bounded(BLOCKS_WAITING);
        let arrived = Arrived::default();
        let told = arrived.clone();
        thread::Builder::new()
            .name("braid-stdin".into())
            .spawn(move || read(inner, &sender, &told))
            .map_err(|source| OpenError::Io { path: "thread".into(), source })?;
        Ok((Piped { blocks, block: Vec::new(), at: 0, arrived: arrived.clone() }, arrived))
    }
}

fn read(mut inner: impl Read, blocks: &Sender<io::Result<Vec<u8>>>, arrived: &Arrived) {
    loop {
        let mut block = vec![0; BLOCK];
        let read = again(|| inner.read(&mut block));
        if matches!(read, Ok(0)) {
            break;
        }
        let read = read.map(|len| {
            block.truncate(len);
            block
        });
        let failed = read.is_err();
        arrived.0.fetch_add(1, Ordering::Relaxed);
        if blocks.send(read).is_err() || failed {
            break;
        }
    }
    arrived.0.fetch_add(1, Ordering::Relaxed);
}

impl Read for Piped {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at == self.block.len() {
            let Ok(block) = self.blocks.recv() else { return Ok(0) };
            self.arrived.0.fetch_sub(1, Ordering::Relaxed);
            (self.block, self.at) = (block?, 0);
        }
        let count = buffer.len().min(self.block.len() - self.at);
        buffer[..count].copy_from_slice(&self.block[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_into_a_pipe_comes_out_whole_and_its_end_is_known() {
        let (reader, mut writer) = io::pipe().expect("a pipe");
        let (mut piped, arrived) = Piped::begin(reader).expect("a thread");
        assert!(arrived.is_dry());
        io::Write::write_all(&mut writer, b"one two").expect("written");
        let mut first = [0; 4];
        piped.read_exact(&mut first).expect("read");
        drop(writer);
        let mut rest = Vec::new();
        piped.read_to_end(&mut rest).expect("read");
        assert_eq!((&first, &rest[..]), (b"one ", &b"two"[..]));
        assert!(!arrived.is_dry(), "the end needs no waiting");
    }
}

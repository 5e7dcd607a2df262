//! Opens replays with a known number of frames per queue, so that a measurement can begin after the first passes over them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use braid_control::runtime::io::{OpenError, QueueSelect, ReplaySource, RxQueue, Source};
use braid_control::runtime::nf::packet::{Link, Port};

/// Opens a replay; `wrap` wraps each of its queues, given the queue's number and its number of frames per pass.
pub(super) fn open_counted(
    inner: ReplaySource,
    queues: usize,
    select: Arc<dyn QueueSelect>,
    wrap: impl Fn(usize, Box<dyn RxQueue>, u64) -> Box<dyn RxQueue>,
) -> Result<Vec<Box<dyn RxQueue>>, OpenError> {
    let counting = Arc::new(Counting { select, frames: (0..queues).map(|_| AtomicU64::new(0)).collect() });
    let inner = Box::new(inner).open(queues, Arc::clone(&counting) as Arc<dyn QueueSelect>)?;
    let frames = counting.frames.iter().map(|frames| frames.load(Ordering::Relaxed));
    Ok(inner.into_iter().zip(frames).enumerate().map(|(queue, (inner, frames))| wrap(queue, inner, frames)).collect())
}

/// Counts the frames that go to each queue.
struct Counting {
    select: Arc<dyn QueueSelect>,
    frames: Vec<AtomicU64>,
}

impl QueueSelect for Counting {
    fn queue(&self, frame: &[u8], link: Link, port: Port) -> usize {
        let queue = self.select.queue(frame, link, port).min(self.frames.len() - 1);
        // Relaxed: modified and read on one thread, while the source is opened.
        self.frames[queue].fetch_add(1, Ordering::Relaxed);
        queue
    }
}

//! Tests of a thread that reads a stream which may block.

use std::time::Instant;

use braid_packet::{Layout, Pool, PoolConfig};

use super::*;
use crate::source::FirstQueue;

/// Announces before each frame that it may block, and blocks when its frames are used up, until `ends` is closed.
struct Hesitant {
    frames: u64,
    announced: bool,
    ends: Receiver<()>,
}

impl FrameStream for Hesitant {
    fn advance(&mut self) -> Next {
        self.announced = !self.announced;
        if self.announced {
            return Next::Wait(Duration::ZERO);
        }
        if self.frames == 100 {
            let _ = self.ends.recv();
            return Next::End;
        }
        self.frames += 1;
        Next::Frame
    }

    fn frame(&self) -> (&[u8], FrameInfo) {
        (&[7; 60], FrameInfo { sequence: self.frames - 1, ..FrameInfo::default() })
    }

    fn may_block(&self) -> bool {
        true
    }
}

#[test]
fn what_came_before_a_wait_is_delivered_however_slow_the_worker_was() {
    let (held, ends) = bounded(0);
    let stream = Hesitant { frames: 0, announced: false, ends };
    let mut queue = spread(stream, 1, Arc::new(FirstQueue)).expect("a thread").pop().expect("a queue");
    let pool = Pool::new(&PoolConfig { buffers: 2048, ..PoolConfig::default() }).expect("memory");
    let (mut batch, mut buffers) = (Batch::new(&pool, &Arc::new(Layout::bare())), Buffers::new(&pool));
    // Wait until more frames have arrived than loads may wait.
    thread::sleep(Duration::from_millis(50));
    let begun = Instant::now();
    while queue.counters().packets < 100 {
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", queue.counters());
        queue.receive(&mut batch, &mut buffers, 16);
    }
    drop(held);
}

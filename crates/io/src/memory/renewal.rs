//! Makes flows of a replay end while others begin: at regular intervals each frame is rewritten in place as a frame of another
//! flow. Frames that are not due cost the replay nothing.

use braid_packet::Line;

/// How the frames of a replay are renewed.
#[derive(Clone, Copy, Debug)]
pub struct Renewal {
    /// Number of passes between two renewals of a frame: with ten, each pass renews every tenth frame.
    pub every: u32,
    /// Number of consecutive frames that are renewed in the same pass: two if they are a packet and its reply.
    pub together: u32,
    /// Rewrites the first 64 bytes of a frame for the flow that takes its place in the given round; rounds count from one.
    pub rewrite: fn(&mut [u8; 64], u64),
}

/// The renewals of one queue.
pub(super) struct Renewing {
    renewal: Renewal,
    /// For each pass, the frames that it renews, in order, with their first lines.
    due: Vec<Vec<(usize, usize)>>,
    /// Index of the next frame that the current pass renews.
    next: usize,
}

impl Renewing {
    pub(super) fn new(renewal: Renewal) -> Renewing {
        Renewing { renewal, due: vec![Vec::new(); renewal.every.max(1) as usize], next: 0 }
    }

    /// Adds a frame of the queue that begins at `line` and has this position in the whole replay.
    pub(super) fn push(&mut self, frame: usize, line: usize, position: usize) {
        let pass = position / self.renewal.together.max(1) as usize % self.due.len();
        self.due[pass].push((frame, line));
    }

    /// Starts the next pass.
    pub(super) fn rewind(&mut self) {
        self.next = 0;
    }

    /// Rewrites the frames that a pass renews and that precede `end`. In the first pass (number 0) all flows are new anyway.
    #[inline]
    pub(super) fn renew(&mut self, lines: &mut [Line], pass: u64, end: usize) {
        if pass == 0 {
            return;
        }
        let every = self.due.len() as u64;
        let due = &self.due[(pass % every) as usize][self.next..];
        let now = due.iter().take_while(|(frame, _)| *frame < end);
        for (_, line) in now {
            (self.renewal.rewrite)(&mut lines[*line].0, pass / every + 1);
            self.next += 1;
        }
    }
}

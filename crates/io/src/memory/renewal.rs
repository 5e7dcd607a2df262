//! Flows of a replay that end while others begin: every so many passes each frame is written anew where it lies, as another
//! flow's. It costs the replay nothing for frames that are not due.

use braid_packet::Line;

/// How the frames of a replay are renewed.
#[derive(Clone, Copy, Debug)]
pub struct Renewal {
    /// Passes from one renewal of a frame to the next: with ten, each pass renews every tenth frame.
    pub every: u32,
    /// Frames, one behind another, that are renewed in the same pass: two if they are a packet and its reply.
    pub together: u32,
    /// Writes the first 64 bytes of a frame as those of the flow that takes its place in a round; rounds count from one.
    pub rewrite: fn(&mut [u8; 64], u64),
}

/// One queue's share of it.
pub(super) struct Renewing {
    renewal: Renewal,
    /// Frames and their first lines, in order, by the pass that renews them.
    due: Vec<Vec<(usize, usize)>>,
    /// Of those that this pass renews, the next one.
    next: usize,
}

impl Renewing {
    pub(super) fn new(renewal: Renewal) -> Renewing {
        Renewing { renewal, due: vec![Vec::new(); renewal.every.max(1) as usize], next: 0 }
    }

    /// Adds the queue's frame that begins at a line, and stands at `position` of the whole replay.
    pub(super) fn push(&mut self, frame: usize, line: usize, position: usize) {
        let pass = position / self.renewal.together.max(1) as usize % self.due.len();
        self.due[pass].push((frame, line));
    }

    /// A pass has ended.
    pub(super) fn rewind(&mut self) {
        self.next = 0;
    }

    /// Writes those that a pass renews and that lie before `end`. In the first pass (number 0) all flows are new anyway.
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

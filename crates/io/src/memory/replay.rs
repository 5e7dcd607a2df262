//! Replay from memory, for benchmarks. Frames occupy whole cache lines, one after another, and are split by queue when the source
//! is opened, as a network card would have split them. Receiving copies them into pool buffers, like a card's DMA transfer; no work
//! per packet depends on anything but the frame.
//!
//! Frames longer than the longest buffer are left out and counted. There is no replay without the copy: functions change packets in
//! place, so the second pass would begin with the results of the first.

use std::sync::Arc;

use braid_memory::prefetch_read;
use braid_packet::pool::JUMBO_FRAME_MAX;
use braid_packet::{Batch, Buffers, FrameInfo, Line, LinedFrame, Lines};

use super::renewal::{Renewal, Renewing};
use crate::progress::{Progress, Unit};
use crate::source::{Ahead, OpenError, QueueSelect, Received, RxCounters, RxQueue, Source};
use crate::stream::{FrameStream, Next};

/// When a replay ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// After this many passes over the frames.
    Passes(u64),
    /// When each queue has delivered this many packets.
    PacketsPerQueue(u64),
    /// Only when the run is stopped.
    Forever,
}

/// Frames in memory, in a single order.
pub struct ReplaySource {
    name: String,
    lines: Vec<Line>,
    frames: Vec<LinedFrame>,
    cold: Vec<Cold>,
    ports: usize,
    too_long: u64,
    repeat: Repeat,
    renewal: Option<Renewal>,
    progress: Arc<Progress>,
}

/// Metadata that only some layouts carry.
#[derive(Clone, Copy, Debug)]
struct Cold {
    timestamp_ns: u64,
    sequence: u64,
}

impl ReplaySource {
    /// Reads at most `limit` frames of a stream into memory; a paced stream is read at its own pace.
    pub fn load(name: &str, stream: &mut dyn FrameStream, limit: u64, repeat: Repeat) -> ReplaySource {
        let mut source = ReplaySource {
            name: name.to_owned(),
            lines: Vec::new(),
            frames: Vec::new(),
            cold: Vec::new(),
            ports: 1,
            too_long: 0,
            repeat,
            renewal: None,
            progress: Arc::new(Progress::new(Unit::Packets)),
        };
        while (source.frames.len() as u64) < limit {
            match stream.advance() {
                Next::Frame => {
                    let (bytes, info) = stream.frame();
                    source.push(bytes, &info);
                }
                Next::Wait(time) => std::thread::sleep(time),
                Next::End => break,
            }
        }
        source
    }

    /// Renews some of the frames in each pass as frames of other flows.
    pub fn renewed(self, renewal: Renewal) -> ReplaySource {
        ReplaySource { renewal: Some(renewal), ..self }
    }

    fn push(&mut self, bytes: &[u8], info: &FrameInfo) {
        if bytes.len() > JUMBO_FRAME_MAX {
            self.too_long += 1;
            return;
        }
        // An empty frame also takes a line, so that every frame has a first line.
        let (whole, rest) = bytes.as_chunks::<64>();
        self.lines.extend(whole.iter().map(|line| Line(*line)));
        if !rest.is_empty() || whole.is_empty() {
            let mut line = [0; 64];
            line[..rest.len()].copy_from_slice(rest);
            self.lines.push(Line(line));
        }
        self.frames.push(LinedFrame::new(bytes.len() as u32, info.wire_len, info.port, info.link));
        self.cold.push(Cold { timestamp_ns: info.timestamp_ns, sequence: info.sequence });
        self.ports = self.ports.max(usize::from(info.port) + 1);
    }

    /// Number of frames in one pass.
    pub fn frames(&self) -> usize {
        self.frames.len()
    }
}

impl Source for ReplaySource {
    fn name(&self) -> String {
        format!("{} in memory", self.name)
    }

    fn ports(&self) -> usize {
        self.ports
    }

    fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }

    fn open(self: Box<Self>, queues: usize, select: Arc<dyn QueueSelect>) -> Result<Vec<Box<dyn RxQueue>>, OpenError> {
        if queues == 0 {
            return Err(OpenError::Nothing { what: "a source needs at least one queue" });
        }
        let frames = self.frames.len() as u64;
        self.progress.set_total(match self.repeat {
            Repeat::Passes(passes) => frames.saturating_mul(passes),
            Repeat::PacketsPerQueue(packets) => packets.saturating_mul(queues as u64),
            Repeat::Forever => 0,
        });
        let first = self.cold.iter().map(|cold| cold.timestamp_ns).min().unwrap_or(0);
        let last = self.cold.iter().map(|cold| cold.timestamp_ns).max().unwrap_or(0);
        let (mut share, mut chosen) = (vec![0; queues], Vec::with_capacity(self.frames.len()));
        let (mut bytes, mut left) = (Vec::new(), &self.lines[..]);
        for frame in &self.frames {
            let (lines, rest) = left.split_at(frame.lines());
            left = rest;
            bytes.clear();
            bytes.extend(lines.iter().flat_map(|line| line.0));
            let queue = select.queue(&bytes[..frame.len()], frame.link(), frame.port()).min(queues - 1);
            share[queue] += lines.len();
            chosen.push(queue);
        }
        let empty = |&lines: &usize| -> Result<ReplayQueue, OpenError> {
            Ok(ReplayQueue {
                lines: Lines::new(lines)?,
                frames: Vec::new(),
                cold: Vec::new(),
                renewing: self.renewal.map(Renewing::new),
                whole: true,
                at: 0,
                line: 0,
                left: 0,
                pass: 0,
                pass_frames: frames,
                pass_ns: last - first + 1_000,
                counters: RxCounters::default(),
                unreported: 0,
                progress: Arc::clone(&self.progress),
            })
        };
        let mut ends: Vec<ReplayQueue> = share.iter().map(empty).collect::<Result<_, _>>()?;
        ends[0].counters.too_long = self.too_long;
        let mut left = &self.lines[..];
        for (position, ((frame, cold), queue)) in self.frames.into_iter().zip(self.cold).zip(chosen).enumerate() {
            let (lines, rest) = left.split_at(frame.lines());
            left = rest;
            ends[queue].push(position, frame, lines, cold);
        }
        Ok(ends.into_iter().map(|queue| Box::new(queue.ready(self.repeat)) as Box<dyn RxQueue>).collect())
    }
}

/// One worker's share, with its frames and lines packed contiguously.
struct ReplayQueue {
    lines: Lines,
    frames: Vec<LinedFrame>,
    cold: Vec<Cold>,
    renewing: Option<Renewing>,
    /// Whether every frame is stored completely: none had more bytes on the wire than are stored.
    whole: bool,
    /// Index of the next frame, and of its first line.
    at: usize,
    line: usize,
    /// Number of packets still to deliver.
    left: u64,
    pass: u64,
    /// Number of frames in one pass over all queues, and its duration on the capture's clock.
    pass_frames: u64,
    pass_ns: u64,
    counters: RxCounters,
    /// Packets not yet added to the shared progress, which is updated rarely.
    unreported: u64,
    progress: Arc<Progress>,
}

/// Number of packets between two updates of the shared progress.
const REPORT_EVERY: u64 = 1 << 16;

impl ReplayQueue {
    fn push(&mut self, position: usize, frame: LinedFrame, lines: &[Line], cold: Cold) {
        if let Some(renewing) = &mut self.renewing {
            renewing.push(self.frames.len(), self.lines.get().len(), position);
        }
        self.whole &= frame.wire_len() as usize == frame.len();
        self.frames.push(frame);
        self.lines.extend(lines);
        self.cold.push(cold);
    }

    fn ready(mut self, repeat: Repeat) -> ReplayQueue {
        self.left = match repeat {
            _ if self.frames.is_empty() => 0,
            Repeat::Passes(passes) => passes.saturating_mul(self.frames.len() as u64),
            Repeat::PacketsPerQueue(packets) => packets,
            Repeat::Forever => u64::MAX,
        };
        self
    }

    /// Copies frames, at most until the end of the pass.
    #[inline]
    fn copy(&mut self, batch: &mut Batch, buffers: &mut Buffers, limit: usize) -> usize {
        let (frames, cold) = (&self.frames[self.at..], &self.cold[self.at..]);
        let frames = &frames[..limit.min(frames.len())];
        if let Some(renewing) = &mut self.renewing {
            renewing.renew(self.lines.lines_mut(), self.pass, self.at + frames.len());
        }
        let (shift_ns, first) = (self.pass.wrapping_mul(self.pass_ns), self.pass.wrapping_mul(self.pass_frames));
        let (taken, lines) =
            batch.copy_lines_in(buffers, &self.lines.get()[self.line..], frames, self.whole, |i| FrameInfo {
                port: frames[i].port(),
                link: frames[i].link(),
                timestamp_ns: cold[i].timestamp_ns.wrapping_add(shift_ns),
                wire_len: frames[i].wire_len(),
                sequence: first.wrapping_add(cold[i].sequence),
            });
        // A separate sum vectorises, and the copy does not wait for it.
        let frames = &frames[..taken];
        self.counters.bytes += frames.iter().map(|frame| u64::from(frame.wire_len())).sum::<u64>();
        self.line += lines;
        self.at += taken;
        taken
    }
}

impl RxQueue for ReplayQueue {
    fn receive(&mut self, batch: &mut Batch, buffers: &mut Buffers, limit: usize) -> Received {
        if self.left == 0 {
            return Received::End;
        }
        let limit = limit.min(batch.room()).min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let mut taken = 0;
        while taken < limit {
            let now = self.copy(batch, buffers, limit - taken);
            taken += now;
            if self.at == self.frames.len() {
                (self.at, self.line) = (0, 0);
                self.pass += 1;
                self.renewing.iter_mut().for_each(Renewing::rewind);
            } else {
                break;
            }
        }
        self.left -= taken as u64;
        self.counters.packets += taken as u64;
        self.unreported += taken as u64;
        if self.unreported >= REPORT_EVERY || self.left == 0 {
            self.progress.add(std::mem::take(&mut self.unreported));
        }
        if let Some(next) = self.cold.get(self.at) {
            // Prefetch for `horizon`, which is called when the batch has been processed.
            prefetch_read(next);
        }
        if taken > 0 { Received::Packets } else { Received::Idle }
    }

    fn horizon(&self) -> u64 {
        match self.cold.get(self.at) {
            Some(cold) if self.left > 0 => self.pass * self.pass_frames + cold.sequence,
            _ => u64::MAX,
        }
    }

    fn ahead(&mut self) -> Ahead {
        match self.cold.get(self.at) {
            Some(cold) if self.left > 0 => Ahead::Packet {
                sequence: self.horizon(),
                timestamp_ns: cold.timestamp_ns.wrapping_add(self.pass.wrapping_mul(self.pass_ns)),
            },
            _ => Ahead::End,
        }
    }

    fn counters(&self) -> RxCounters {
        self.counters
    }
}

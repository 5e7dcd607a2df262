//! One or several capture files as one stream: merged by timestamp, numbered, optionally repeated, optionally at their own pace.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use braid_packet::{FrameInfo, Port};

use super::damage::{Damage, Flaw};
use super::interface::Interfaces;
use super::piped::is_dash;
use super::reader::CaptureReader;
use super::split::PortSplit;
use crate::progress::Progress;
use crate::source::OpenError;
use crate::stream::{FrameStream, Next};

/// Time in nanoseconds between the last packet of a pass and the first packet of the next pass.
const PASS_GAP_NS: u64 = 1_000;

/// How a capture is replayed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Replay {
    /// Number of passes, at least one; timestamps continue from pass to pass.
    pub passes: u64,
    /// Speed relative to the recording (2.0 is twice as fast); `None` for full speed.
    pub speed: Option<f64>,
}

impl Default for Replay {
    fn default() -> Self {
        Replay { passes: 1, speed: None }
    }
}

/// A file and the state of reading it.
struct Feed {
    reader: CaptureReader,
    /// Timestamp of its current packet; a packet without one gets that of the previous packet.
    timestamp_ns: u64,
    /// Whether there is a current packet.
    live: bool,
}

/// Capture files as one stream. With several files, each is a port, and their packets are merged by timestamp; the order within a
/// file is kept even where its timestamps decrease.
pub struct CaptureStream {
    paths: Vec<PathBuf>,
    split: PortSplit,
    interfaces: Interfaces,
    /// Port of the current packet, if it is a matter of its interface.
    port: Port,
    replay: Replay,
    progress: Arc<Progress>,
    feeds: Vec<Feed>,
    current: Option<usize>,
    /// The current packet was announced as not yet due.
    waiting: bool,
    /// It was announced that the next packet may take time to arrive.
    announced: bool,
    pass: u64,
    sequence: u64,
    /// Offset added to the timestamps of this pass.
    shift_ns: u64,
    span_ns: Option<(u64, u64)>,
    pace: Option<Pace>,
    damages: Vec<Damage>,
}

impl CaptureStream {
    /// Opens the files.
    pub fn open(
        paths: Vec<PathBuf>,
        split: PortSplit,
        replay: Replay,
        progress: Arc<Progress>,
    ) -> Result<CaptureStream, OpenError> {
        if paths.is_empty() {
            return Err(OpenError::Nothing { what: "no capture file is named" });
        }
        if replay.speed.is_some_and(|speed| !(speed.is_finite() && speed > 0.0)) {
            return Err(OpenError::Config(format!("a replay speed of {:?} is not above zero", replay.speed)));
        }
        let pipes = paths.iter().filter(|path| is_dash(path)).count();
        if pipes > 1 || pipes == 1 && replay.passes > 1 {
            return Err(OpenError::Config("standard input (-) can be read once only".to_owned()));
        }
        let bytes: u64 = paths.iter().filter_map(|path| path.metadata().ok()).map(|metadata| metadata.len()).sum();
        progress.set_total(bytes.saturating_mul(replay.passes.max(1)));
        let mut stream = CaptureStream {
            paths,
            split,
            interfaces: Interfaces::default(),
            port: 0,
            replay,
            progress,
            feeds: Vec::new(),
            current: None,
            waiting: false,
            announced: false,
            pass: 0,
            sequence: 0,
            shift_ns: 0,
            span_ns: None,
            pace: replay.speed.map(Pace::new),
            damages: Vec::new(),
        };
        stream.begin_pass()?;
        Ok(stream)
    }

    fn begin_pass(&mut self) -> Result<(), OpenError> {
        self.feeds.clear();
        for path in &self.paths {
            let reader = CaptureReader::open_counted(path, Some(Arc::clone(&self.progress)))?;
            self.feeds.push(Feed { reader, timestamp_ns: 0, live: false });
        }
        for number in 0..self.feeds.len() {
            self.advance_feed(number);
        }
        Ok(())
    }

    fn advance_feed(&mut self, number: usize) {
        let feed = &mut self.feeds[number];
        feed.live = match feed.reader.advance() {
            Ok(live) => live,
            Err(damage) => {
                // Later passes encounter the same damage again.
                if self.pass == 0 {
                    self.damages.push(damage);
                }
                false
            }
        };
        if feed.live {
            feed.timestamp_ns = feed.reader.captured().timestamp_ns.unwrap_or(feed.timestamp_ns);
        }
    }

    /// Begins another pass if one is due and this pass yielded anything.
    fn another_pass(&mut self) -> bool {
        let Some((first, last)) = self.span_ns.take() else { return false };
        self.pass += 1;
        if self.pass >= self.replay.passes {
            return false;
        }
        self.shift_ns = self.shift_ns.saturating_add((last - first).saturating_add(PASS_GAP_NS));
        if let Err(error) = self.begin_pass() {
            let flaw = Flaw::Reopen(error.to_string());
            self.damages.push(Damage { path: self.paths[0].clone(), offset: 0, flaw });
            return false;
        }
        true
    }
}

impl FrameStream for CaptureStream {
    fn advance(&mut self) -> Next {
        if !self.waiting {
            if !self.announced && self.current.is_some_and(|number| self.feeds[number].reader.is_dry()) {
                self.announced = true;
                return Next::Wait(Duration::ZERO);
            }
            self.announced = false;
            if let Some(number) = self.current.take() {
                self.sequence += 1;
                self.advance_feed(number);
            }
            loop {
                let live = (0..self.feeds.len()).filter(|&number| self.feeds[number].live);
                self.current = live.min_by_key(|&number| self.feeds[number].timestamp_ns);
                if self.current.is_some() || !self.another_pass() {
                    break;
                }
            }
        }
        let Some(number) = self.current else { return Next::End };
        let now_ns = self.feeds[number].timestamp_ns;
        if let Some(wait) = self.pace.as_mut().and_then(|pace| pace.wait(now_ns.saturating_add(self.shift_ns))) {
            self.waiting = true;
            return Next::Wait(wait);
        }
        self.waiting = false;
        if matches!(self.split, PortSplit::Interface(_)) {
            self.port = self.interfaces.port(&self.feeds[number].reader.captured());
        }
        let (first, last) = self.span_ns.unwrap_or((now_ns, now_ns));
        self.span_ns = Some((first.min(now_ns), last.max(now_ns)));
        Next::Frame
    }

    fn frame(&self) -> (&[u8], FrameInfo) {
        let Some(number) = self.current else { return (&[], FrameInfo::default()) };
        let feed = &self.feeds[number];
        let captured = feed.reader.captured();
        let link = captured.link();
        let port = match self.split {
            _ if self.feeds.len() > 1 => number as Port,
            PortSplit::Interface(_) => self.port,
            _ => self.split.port(captured.bytes, link),
        };
        let info = FrameInfo {
            port,
            link,
            timestamp_ns: feed.timestamp_ns.saturating_add(self.shift_ns),
            wire_len: captured.wire_len.max(captured.bytes.len() as u32),
            sequence: self.sequence,
        };
        (captured.bytes, info)
    }

    fn ports_max(&self) -> Port {
        match self.split {
            PortSplit::Interface(ports) if self.paths.len() == 1 => ports,
            _ => Port::MAX,
        }
    }

    fn damages(&self) -> &[Damage] {
        &self.damages
    }

    fn may_block(&self) -> bool {
        self.paths.iter().any(|path| is_dash(path))
    }
}

/// Determines when recorded packets are due.
struct Pace {
    speed: f64,
    /// The moment at which the first packet was due, and its timestamp.
    origin: Option<(Instant, u64)>,
    /// The clock's last reading; it is read again only for a packet that is due later.
    elapsed: Duration,
}

impl Pace {
    fn new(speed: f64) -> Pace {
        Pace { speed, origin: None, elapsed: Duration::ZERO }
    }

    /// Time until a packet with this timestamp is due; `None` if it is due now.
    fn wait(&mut self, timestamp_ns: u64) -> Option<Duration> {
        let (start, first_ns) = *self.origin.get_or_insert_with(|| (Instant::now(), timestamp_ns));
        let due = Duration::from_nanos((timestamp_ns.saturating_sub(first_ns) as f64 / self.speed) as u64);
        if due > self.elapsed {
            self.elapsed = start.elapsed();
        }
        due.checked_sub(self.elapsed).filter(|wait| !wait.is_zero())
    }
}

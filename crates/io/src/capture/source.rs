//! Capture files as a source.

use std::path::PathBuf;
use std::sync::Arc;

use super::interface::interface_names;
use super::piped::is_dash;
use super::split::PortSplit;
use super::stream::{CaptureStream, Replay};
use crate::progress::{Progress, Unit};
use crate::source::{OpenError, QueueSelect, RxQueue, Source};
use crate::spread::spread;

/// Capture files (pcap, pcapng, gzip) as a source.
#[derive(Debug)]
pub struct CaptureSource {
    paths: Vec<PathBuf>,
    split: PortSplit,
    replay: Replay,
    progress: Arc<Progress>,
}

impl CaptureSource {
    /// Reads one file per port, merged by timestamp; `-` is standard input.
    pub fn new(paths: Vec<PathBuf>) -> CaptureSource {
        let progress = Arc::new(Progress::new(Unit::Bytes));
        CaptureSource { paths, split: PortSplit::Single, replay: Replay::default(), progress }
    }

    /// Splits a single file by port. With several files each is a port, and the rule is not used.
    pub fn split(mut self, split: PortSplit) -> CaptureSource {
        self.split = split;
        self
    }

    /// Sets how the files are replayed.
    pub fn replay(mut self, replay: Replay) -> CaptureSource {
        self.replay = replay;
        self
    }

    /// The files as one stream, without queues.
    pub fn into_stream(self) -> Result<CaptureStream, OpenError> {
        CaptureStream::open(self.paths, self.split, self.replay, self.progress)
    }
}

impl Source for CaptureSource {
    fn name(&self) -> String {
        let name =
            |path: &PathBuf| if is_dash(path) { "standard input".to_owned() } else { path.display().to_string() };
        self.paths.iter().map(name).collect::<Vec<_>>().join(", ")
    }

    fn ports(&self) -> usize {
        match (&self.split, self.paths.as_slice()) {
            // If the file has more, it is better not to begin.
            (PortSplit::Interface(_), [only]) => self.split.ports().max(interface_names(only).len()),
            (split, [_]) => split.ports(),
            (_, several) => several.len(),
        }
    }

    fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }

    fn open(self: Box<Self>, queues: usize, select: Arc<dyn QueueSelect>) -> Result<Vec<Box<dyn RxQueue>>, OpenError> {
        spread(self.into_stream()?, queues, select)
    }
}

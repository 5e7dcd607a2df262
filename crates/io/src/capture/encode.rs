//! Writes one capture file: its format, its link types, and its errors.

use std::fs::{File, create_dir_all};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use braid_packet::{FrameInfo, Link, Port};

use super::link;
use super::ng;
use super::output::{Failed, Output};
use super::piped::is_dash;
use crate::atomic_file::AtomicFile;
use crate::sink::SinkError;
use crate::source::OpenError;
use crate::stream::{FrameStream, Next};

/// Snap length in file headers. Readers accept no longer record: Wireshark (`WTAP_MAX_PACKET_SIZE_STANDARD`) and libpcap
/// (`MAXIMUM_SNAPLEN`) treat a file with a longer record as damaged, whatever its header says.
pub(super) const SNAP_LEN: u32 = 262_144;

/// Resolution of the timestamps of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// Microseconds, which every tool can read.
    #[default]
    Microseconds,
    /// Nanoseconds, the resolution of the packets' own timestamps.
    Nanoseconds,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Pcap,
    PcapNg,
}

/// Derives format and compression from a file name: `.pcap` or `.pcapng`, optionally followed by `.gz`; `-` means pcapng, and so does a pipe or a
/// device, whose name is not chosen for a capture.
fn from_name(path: &Path) -> Result<(Format, bool), OpenError> {
    if is_dash(path) {
        return Ok((Format::PcapNg, false));
    }
    let name = path.file_name().map(|name| name.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
    let (stem, gzip) = name.strip_suffix(".gz").map_or((name.as_str(), false), |stem| (stem, true));
    match stem.rsplit_once('.') {
        Some((_, "pcap" | "cap" | "dmp")) => Ok((Format::Pcap, gzip)),
        Some((_, "pcapng" | "ntar")) => Ok((Format::PcapNg, gzip)),
        _ if path.metadata().is_ok_and(|there| !there.is_file() && !there.is_dir()) => Ok((Format::PcapNg, false)),
        _ => Err(OpenError::Config(format!(
            "{}: the name does not say the format: end it with .pcap or .pcapng, or with either and .gz",
            path.display()
        ))),
    }
}

fn standard_output() -> io::Result<File> {
    Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?))
}

/// Creates a file and its folder, or opens standard output.
fn create(path: &Path) -> io::Result<File> {
    if is_dash(path) {
        return standard_output();
    }
    if let Some(folder) = path.parent() {
        create_dir_all(folder)?;
    }
    File::create(path)
}

/// A capture file that is being written. It is complete after [`CaptureWriter::finish`] or when dropped.
pub struct CaptureWriter {
    path: PathBuf,
    /// Set if the file receives its final name only once it is complete.
    whole: Option<AtomicFile>,
    output: Option<Output>,
    format: Format,
    precision: Precision,
    /// Ports and link types seen so far. A pcap file has one pair; a pcapng file has one interface for each pair.
    interfaces: Vec<(Port, Link)>,
    /// What the ports are called, as far as they have names.
    names: Vec<String>,
    /// The number of ports whose interfaces are described before the first packet.
    ports: Port,
    begun: bool,
    scratch: Vec<u8>,
    failure: Option<SinkError>,
}

impl CaptureWriter {
    /// Checks that the file's name implies a format, without touching the file.
    pub fn check_name(path: &Path) -> Result<(), OpenError> {
        from_name(path).map(drop)
    }

    /// Creates the file, and its folder if necessary. The name determines format and compression; `-` is standard output.
    pub fn create(path: &Path, precision: Precision) -> Result<CaptureWriter, OpenError> {
        CaptureWriter::over(path, precision, |path| Ok((None, create(path)?)))
    }

    /// Like [`create`](CaptureWriter::create), but the file receives its name only when [`finish`](CaptureWriter::finish) has
    /// succeeded. Until then nothing exists that others could mistake for it.
    pub fn create_whole(path: &Path, precision: Precision) -> Result<CaptureWriter, OpenError> {
        CaptureWriter::over(path, precision, |path| {
            if is_dash(path) {
                return Ok((None, standard_output()?));
            }
            let (whole, file) = AtomicFile::open(path)?;
            Ok((Some(whole), file))
        })
    }

    fn over(
        path: &Path,
        precision: Precision,
        open: impl FnOnce(&Path) -> io::Result<(Option<AtomicFile>, File)>,
    ) -> Result<CaptureWriter, OpenError> {
        let (format, gzip) = from_name(path)?;
        let failed = |source| OpenError::Io { path: path.to_owned(), source };
        let (whole, file) = open(path).map_err(failed)?;
        Ok(CaptureWriter {
            path: if is_dash(path) { "standard output".into() } else { path.to_owned() },
            whole,
            output: Some(Output::new(file, gzip)),
            format,
            precision,
            interfaces: Vec::new(),
            names: Vec::new(),
            ports: 0,
            begun: false,
            scratch: Vec::new(),
            failure: None,
        })
    }

    /// Names the interfaces of a pcapng file by port; one without a name, or with an empty one, is called `port N`.
    pub fn named(mut self, names: Vec<String>) -> CaptureWriter {
        self.names = names;
        self
    }

    /// Describes the interfaces of so many ports of a pcapng file before its first packet, so that each has the number of its
    /// port, whatever leaves first. All others are described as they appear.
    pub fn of_ports(mut self, ports: Port) -> CaptureWriter {
        self.ports = ports;
        self
    }

    /// Writes a frame. Errors are kept: all frames after the first error count as lost.
    pub fn write(&mut self, bytes: &[u8], info: &FrameInfo) {
        self.write_commented(bytes, info, "");
    }

    /// Writes a frame with a comment, which pcapng readers show with the packet; pcap cannot store it.
    pub fn write_commented(&mut self, bytes: &[u8], info: &FrameInfo, comment: &str) {
        if let Some(SinkError::Write { lost, .. }) = &mut self.failure {
            *lost += 1;
            return;
        }
        self.scratch.clear();
        let len = bytes.len() as u32;
        // A longer frame is truncated, as a capturing program would do, and its record says so.
        let (bytes, info) = match len > SNAP_LEN {
            true => (&bytes[..SNAP_LEN as usize], &FrameInfo { wire_len: info.wire_len.max(len), ..*info }),
            false => (bytes, info),
        };
        let fits = match self.format {
            Format::Pcap => self.pcap_record(bytes, info),
            Format::PcapNg => {
                self.enhanced_packet(bytes, info, comment);
                true
            }
        };
        if fits {
            self.put(1);
        } else if let Some(SinkError::LinkTypes { lost, .. }) = &mut self.failure {
            *lost += 1;
        } else {
            self.failure = Some(SinkError::LinkTypes { path: self.path.clone(), lost: 1 });
        }
    }

    /// Writes a whole stream; returns its number of frames. A paced stream is written at its own pace.
    pub fn write_all(&mut self, stream: &mut dyn FrameStream) -> u64 {
        let mut frames = 0;
        loop {
            match stream.advance() {
                Next::Frame => {
                    let (bytes, info) = stream.frame();
                    self.write(bytes, &info);
                    frames += 1;
                }
                Next::Wait(time) => std::thread::sleep(time),
                Next::End => return frames,
            }
        }
    }

    /// Outputs the prepared bytes, which contain `packets` packets.
    fn put(&mut self, packets: u64) {
        if let Some(Err(failed)) = self.output.as_mut().map(|output| output.put(&self.scratch, packets)) {
            self.failed(&failed);
        }
    }

    /// Passes on everything written so far, for readers that follow the output.
    pub fn flush(&mut self) {
        if let Some(Err(failed)) = self.output.as_mut().map(Output::flush) {
            self.failed(&failed);
        }
    }

    /// Records a failure. Nothing is written afterwards, because the file would have a gap.
    fn failed(&mut self, Failed { error, lost }: &Failed) {
        self.output = None;
        let before = match self.failure {
            Some(SinkError::LinkTypes { lost, .. } | SinkError::Write { lost, .. }) => lost,
            _ => 0,
        };
        self.failure =
            Some(SinkError::Write { path: self.path.clone(), reason: error.to_string(), lost: before + lost });
    }

    fn begin_pcap(&mut self, link: Link) {
        self.begun = true;
        self.interfaces.push((0, link));
        let magic: u32 = if self.precision == Precision::Nanoseconds { 0xa1b2_3c4d } else { 0xa1b2_c3d4 };
        // Version 2.4, two fields that are always zero, snap length, link type.
        for word in [magic, 4 << 16 | 2, 0, 0, SNAP_LEN, link::to_file(link)] {
            self.scratch.extend(word.to_le_bytes());
        }
    }

    /// Prepares a record; returns false if the file has another link type.
    fn pcap_record(&mut self, bytes: &[u8], info: &FrameInfo) -> bool {
        if !self.begun {
            self.begin_pcap(info.link);
        }
        if self.interfaces.first().is_none_or(|&(_, link)| link != info.link) {
            return false;
        }
        let (seconds, ns) = (info.timestamp_ns / 1_000_000_000, info.timestamp_ns % 1_000_000_000);
        let fraction = if self.precision == Precision::Nanoseconds { ns } else { ns / 1000 };
        let len = bytes.len() as u32;
        for word in [seconds as u32, fraction as u32, len, info.wire_len.max(len)] {
            self.scratch.extend(word.to_le_bytes());
        }
        self.scratch.extend_from_slice(bytes);
        true
    }

    fn begin_pcapng(&mut self) {
        self.begun = true;
        // Version 1.0, section length unknown, no options.
        for word in [ng::SECTION, 28, ng::BYTE_ORDER, 1, u32::MAX, u32::MAX, 28] {
            self.scratch.extend(word.to_le_bytes());
        }
    }

    /// The number of the interface for a port and link type; describes the interface if it is new.
    fn interface(&mut self, port: Port, link: Link) -> u32 {
        if let Some(number) = self.interfaces.iter().position(|&known| known == (port, link)) {
            return number as u32;
        }
        self.interfaces.push((port, link));
        let name = self.names.get(usize::from(port)).filter(|name| !name.is_empty());
        let name = name.map_or_else(|| format!("port {port}"), String::clone);
        let mut options = Vec::new();
        option(&mut options, ng::OPTION_NAME, name.as_bytes());
        let resolution = if self.precision == Precision::Nanoseconds { 9 } else { 6 };
        option(&mut options, ng::OPTION_TSRESOL, &[resolution]);
        option(&mut options, 0, &[]);
        let len = 20 + options.len() as u32;
        for word in [ng::INTERFACE, len, link::to_file(link), SNAP_LEN] {
            self.scratch.extend(word.to_le_bytes());
        }
        self.scratch.extend(options);
        self.scratch.extend(len.to_le_bytes());
        self.interfaces.len() as u32 - 1
    }

    fn enhanced_packet(&mut self, bytes: &[u8], info: &FrameInfo, comment: &str) {
        if !self.begun {
            self.begin_pcapng();
        }
        if self.interfaces.is_empty() {
            for port in 0..self.ports {
                self.interface(port, info.link);
            }
        }
        let interface = self.interface(info.port, info.link);
        let time = match self.precision {
            Precision::Nanoseconds => info.timestamp_ns,
            Precision::Microseconds => info.timestamp_ns / 1000,
        };
        let len = bytes.len() as u32;
        let padding = bytes.len().next_multiple_of(4) - bytes.len();
        let mut options = Vec::new();
        if !comment.is_empty() {
            let most = comment.floor_char_boundary(usize::from(u16::MAX) - 3);
            option(&mut options, ng::OPTION_COMMENT, &comment.as_bytes()[..most]);
            option(&mut options, 0, &[]);
        }
        let total = 32 + len + padding as u32 + options.len() as u32;
        let head =
            [ng::PACKET_ENHANCED, total, interface, (time >> 32) as u32, time as u32, len, info.wire_len.max(len)];
        for word in head {
            self.scratch.extend(word.to_le_bytes());
        }
        self.scratch.extend_from_slice(bytes);
        self.scratch.extend_from_slice(&[0; 3][..padding]);
        self.scratch.extend(options);
        self.scratch.extend(total.to_le_bytes());
    }

    /// Completes the file; even a file without packets gets its header.
    pub fn finish(&mut self) -> Result<(), SinkError> {
        if self.output.is_some() && self.failure.is_none() && !self.begun {
            self.scratch.clear();
            match self.format {
                Format::Pcap => self.begin_pcap(Link::Ethernet),
                Format::PcapNg => self.begin_pcapng(),
            }
            self.put(0);
        }
        if let Some(Err(failed)) = self.output.take().map(Output::finish) {
            self.failed(&failed);
        }
        let whole = self.whole.take();
        if self.failure.is_none()
            && let Some(Err(error)) = whole.map(AtomicFile::end)
        {
            self.failed(&Failed { error, lost: 0 });
        }
        self.failure.clone().map_or(Ok(()), Err)
    }
}

impl Drop for CaptureWriter {
    fn drop(&mut self) {
        // A file created with `create_whole` must not appear unless somebody has finished it.
        self.whole = None;
        // Nobody can receive an error here; call `finish` to get it.
        let _ = self.finish();
    }
}

fn option(options: &mut Vec<u8>, code: u16, value: &[u8]) {
    options.extend(code.to_le_bytes());
    options.extend((value.len() as u16).to_le_bytes());
    options.extend_from_slice(value);
    options.resize(options.len().next_multiple_of(4), 0);
}

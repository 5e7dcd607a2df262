//! The file behind a capture writer: buffers output, optionally compresses it, and counts the packets that
//! are not in the file after a failure. A packet counts as written when all of its bytes have been written;
//! compressed packets are counted a chunk at a time. A file that could not be written to its end, because the disk is
//! full, is cut back to its last whole record, so that every program can read it.

use std::fs::File;
use std::io::{self, Seek, Write};

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::again;
use crate::retrying_stream::Patient;

/// Number of bytes written at once.
const CHUNK: usize = 256 << 10;

enum Coding {
    Plain(Vec<u8>),
    Gzip(GzEncoder<Vec<u8>>),
}

/// A write error, with the number of accepted packets that are not in the file.
pub(super) struct Failed {
    pub(super) error: io::Error,
    pub(super) lost: u64,
}

pub(super) struct Output {
    file: Patient<File>,
    waiting: Coding,
    /// Where whole records end in the buffered output, and how many packets they hold; a header holds none.
    ends: Vec<(usize, u64)>,
    /// Packets that the encoder may still hold, in whole or in part, and their bytes.
    encoding: u64,
    encoding_bytes: usize,
}

impl Output {
    pub(super) fn new(file: File, gzip: bool) -> Output {
        let waiting = Vec::with_capacity(CHUNK);
        let waiting =
            if gzip { Coding::Gzip(GzEncoder::new(waiting, Compression::fast())) } else { Coding::Plain(waiting) };
        Output { file: Patient(file), waiting, ends: Vec::new(), encoding: 0, encoding_bytes: 0 }
    }

    /// Accepts the bytes of `packets` packets; a header counts as no packet.
    pub(super) fn put(&mut self, bytes: &[u8], packets: u64) -> Result<(), Failed> {
        let len = match &mut self.waiting {
            Coding::Plain(waiting) => {
                waiting.extend_from_slice(bytes);
                self.ends.push((waiting.len(), packets));
                waiting.len()
            }
            Coding::Gzip(encoder) => {
                // The encoder writes into memory, which cannot fail.
                let mut result = encoder.write_all(bytes);
                (self.encoding, self.encoding_bytes) = (self.encoding + packets, self.encoding_bytes + bytes.len());
                if self.encoding_bytes >= CHUNK {
                    // Without a flush nobody would know which packets are in the encoder's output so far.
                    result = result.and_then(|()| encoder.flush());
                    self.ends.push((encoder.get_ref().len(), std::mem::take(&mut self.encoding)));
                    self.encoding_bytes = 0;
                }
                let len = encoder.get_ref().len();
                result.map_err(|error| self.failed(error, 0))?;
                len
            }
        };
        if len < CHUNK { Ok(()) } else { self.write() }
    }

    /// Writes buffered output for readers of a pipe. Compressed output stays until it is complete.
    pub(super) fn flush(&mut self) -> Result<(), Failed> {
        if matches!(self.waiting, Coding::Plain(_)) { self.write() } else { Ok(()) }
    }

    /// Writes everything that remains.
    pub(super) fn finish(mut self) -> Result<(), Failed> {
        if let Coding::Gzip(encoder) = &mut self.waiting {
            let result = encoder.try_finish();
            let len = encoder.get_ref().len();
            self.ends.push((len, std::mem::take(&mut self.encoding)));
            result.map_err(|error| self.failed(error, 0))?;
        }
        self.write()
    }

    fn write(&mut self) -> Result<(), Failed> {
        let waiting = match &mut self.waiting {
            Coding::Plain(waiting) => waiting,
            Coding::Gzip(encoder) => encoder.get_mut(),
        };
        let (mut written, mut result) = (0, Ok(()));
        while written < waiting.len() && result.is_ok() {
            match again(|| self.file.write(&waiting[written..])) {
                Ok(0) => result = Err(io::ErrorKind::WriteZero.into()),
                Ok(len) => written += len,
                Err(error) => result = Err(error),
            }
        }
        waiting.clear();
        result.map_err(|error| {
            self.cut_back(written);
            self.failed(error, written)
        })?;
        self.ends.clear();
        Ok(())
    }

    /// Cuts off the part of a record that was written before a failure, if the output is a regular file. What is compressed can be read
    /// as far as it goes.
    fn cut_back(&mut self, written: usize) {
        let whole = self.ends.iter().map(|(end, _)| *end).take_while(|end| *end <= written).last().unwrap_or(0);
        let Coding::Plain(_) = self.waiting else { return };
        let file = &mut self.file.0;
        if let Ok(at) = file.stream_position()
            && let Some(to) = at.checked_sub((written - whole) as u64)
            && file.set_len(to).is_ok()
        {
            // If this failed there would be a gap behind the end, and nothing more is written after a failure.
            let _ = file.seek(io::SeekFrom::Start(to));
        }
    }

    fn failed(&mut self, error: io::Error, written: usize) -> Failed {
        let behind = self.ends.iter().filter(|(end, _)| *end > written);
        Failed { error, lost: behind.map(|(_, packets)| packets).sum::<u64>() + self.encoding }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

    use super::*;

    const RECORD: usize = 1000;
    const RECORDS: u64 = 5000;

    /// A file that accepts exactly this many bytes.
    fn with_room(bytes: u64) -> File {
        let file = File::from(memfd_create(c"full", MemfdFlags::ALLOW_SEALING).expect("memory"));
        file.set_len(bytes).expect("room");
        fcntl_add_seals(&file, SealFlags::GROW).expect("sealed");
        file
    }

    /// A numbered record that does not compress well.
    fn record(number: u64) -> Vec<u8> {
        (0..RECORD as u64 / 8)
            .flat_map(|i| (number << 20 | i).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes())
            .collect()
    }

    fn all() -> Vec<u8> {
        (0..RECORDS).flat_map(record).collect()
    }

    /// Writes records until that fails; returns the number of lost records, the length of the file, and the file.
    fn filled(room: u64, gzip: bool) -> (u64, u64, File) {
        let mut file = with_room(room);
        let mut output = Output::new(file.try_clone().expect("another descriptor"), gzip);
        let put = (0..RECORDS).find_map(|number| Some((number, output.put(&record(number), 1).err()?)));
        let lost = match put {
            Some((number, failed)) => failed.lost + RECORDS - 1 - number,
            None => output.finish().err().map_or(0, |failed| failed.lost),
        };
        // Both descriptors share one file position.
        let len = file.stream_position().expect("its end");
        file.rewind().expect("its beginning");
        (lost, len, file)
    }

    #[test]
    fn what_is_not_in_the_file_is_lost_whatever_waited() {
        for pages in [0, 100, 640, 1200] {
            let (lost, len, _) = filled(pages * 4096, false);
            assert!(len <= pages * 4096 && (len > 0) == (pages > 0), "{len} bytes in {pages} pages");
            assert_eq!(lost, RECORDS - len / RECORD as u64, "{len} bytes were written");
            assert_eq!(len % RECORD as u64, 0, "the file ends with a whole record");
        }
        let (lost, _, mut file) = filled(RECORDS * RECORD as u64, false);
        let mut read = Vec::new();
        file.read_to_end(&mut read).expect("what was written");
        assert!(lost == 0 && read == all());
    }

    #[test]
    fn of_what_is_compressed_no_more_is_counted_as_written_than_can_be_read() {
        for pages in [0, 1, 100, 640] {
            let (lost, len, file) = filled(pages * 4096, true);
            let mut read = Vec::new();
            let _ = GzDecoder::new(file.take(len)).read_to_end(&mut read);
            let whole = (read.len() / RECORD) as u64;
            let written = RECORDS - lost;
            assert!(written <= whole && whole - written < 600, "{written} said, {whole} there, {pages} pages");
        }
        let (lost, len, file) = filled(2 * RECORDS * RECORD as u64, true);
        let mut read = Vec::new();
        GzDecoder::new(file.take(len)).read_to_end(&mut read).expect("it is complete");
        assert!(lost == 0 && read == all());
    }
}

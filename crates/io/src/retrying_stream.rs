//! Standard input and output that another owner of the same pipe or terminal has made non-blocking (fcntl(2), `O_NONBLOCK` belongs
//! to the open file, not to a descriptor): reads and writes wait as if it had not.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;

use crate::device::sys::{until_readable, until_writable};

/// A file whose reads and writes wait until they can go on.
#[derive(Debug)]
pub struct Patient<F>(pub F);

impl<F: Read + AsFd> Read for Patient<F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => until_readable(self.0.as_fd())?,
                result => return result,
            }
        }
    }
}

impl<F: Write + AsFd> Write for Patient<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.0.write(bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => until_writable(self.0.as_fd())?,
                result => return result,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        loop {
            match self.0.flush() {
                Err(error) if error.kind() == ErrorKind::WouldBlock => until_writable(self.0.as_fd())?,
                result => return result,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{OFlags, fcntl_setfl};

    use super::*;

    #[test]
    fn more_than_a_pipe_holds_goes_through_one_that_does_not_block() {
        let (reader, writer) = io::pipe().expect("a pipe");
        for end in [reader.as_fd(), writer.as_fd()] {
            fcntl_setfl(end, OFlags::NONBLOCK).expect("it does not block");
        }
        let bytes: Vec<u8> = (0..1 << 20).map(|i: u32| (i % 251) as u8).collect();
        let sent = bytes.clone();
        let writing = std::thread::spawn(move || Patient(writer).write_all(&sent));
        let mut received = Vec::new();
        Patient(reader).read_to_end(&mut received).expect("it waits for the writer");
        writing.join().expect("no panic").expect("it waits for the reader");
        assert!(received == bytes);
    }

    #[test]
    fn a_reader_that_has_gone_ends_the_wait() {
        let (reader, mut writer) = io::pipe().expect("a pipe");
        fcntl_setfl(&writer, OFlags::NONBLOCK).expect("it does not block");
        while writer.write(&[0; 4096]).is_ok() {}
        drop(reader);
        let error = Patient(writer).write_all(b"one more").expect_err("nobody reads");
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    }
}

//! Traffic for the tests: UDP packets over IPv4, for which a rule says who sends them, to whom, and when.

use braid_io::memory::Repeat;
use braid_io::{FrameStream, Next, ReplaySource};
use braid_packet::FrameInfo;

/// What differs from packet to packet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sent {
    /// The low half of the source address, 10.0.x.x.
    pub from: u16,
    /// The low byte of the destination, 192.0.2.x.
    pub to: u8,
    /// The source port; the destination port is 53.
    pub port: u16,
    pub at_ns: u64,
}

struct Traffic<F> {
    frame: [u8; 60],
    sent: u64,
    at_ns: u64,
    packet: F,
}

impl<F: Fn(u64) -> Sent + Send> FrameStream for Traffic<F> {
    fn advance(&mut self) -> Next {
        let Sent { from, to, port, at_ns } = (self.packet)(self.sent);
        self.frame[28..30].copy_from_slice(&from.to_be_bytes());
        self.frame[33] = to;
        self.frame[34..36].copy_from_slice(&port.to_be_bytes());
        (self.at_ns, self.sent) = (at_ns, self.sent + 1);
        Next::Frame
    }

    fn frame(&self) -> (&[u8], FrameInfo) {
        let (timestamp_ns, sequence) = (self.at_ns, self.sent - 1);
        (&self.frame, FrameInfo { timestamp_ns, sequence, wire_len: 60, ..FrameInfo::default() })
    }
}

/// A source of `packets` packets, numbered from 0, that `packet` defines by number.
pub fn replayed(packets: u64, repeat: Repeat, packet: impl Fn(u64) -> Sent + Send) -> ReplaySource {
    let mut frame = [0; 60];
    frame[12..24].copy_from_slice(&[0x08, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17]);
    frame[26..40].copy_from_slice(&[10, 0, 0, 0, 192, 0, 2, 0, 0, 0, 0, 53, 0, 26]);
    ReplaySource::load("flows", &mut Traffic { frame, sent: 0, at_ns: 0, packet }, packets, repeat)
}

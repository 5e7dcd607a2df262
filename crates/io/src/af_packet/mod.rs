//! The AF_PACKET back end, for every Linux machine and every interface. The kernel copies each frame into a
//! ring; Braid copies it into a buffer.
//!
//! What the kernel leaves undone for a receiver on the same machine is completed here: a VLAN tag that was removed is put back,
//! checksums are completed, and trains of segments (GSO, GRO) are cut. Frames that others send through the interface are not
//! received. The kernel's own stack also sees every packet, so the interface should have no address.

mod kept;
mod sys;

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use braid_packet::{Batch, Buffers};

pub(crate) use self::kept::{INHERITED, Inherited, Wire, leave};
use self::sys::{Filled, Ring, SEND_MAX, SLOTS_DEFAULT, Sender};
use crate::device::live::{Arrivals, RxPort, Sent, TxPort};
use crate::device::offload::{Train, VnetHeader};
use crate::device::{Interface, PortSpec};

/// Number of retries on a full device before packets are dropped.
const RETRIES: usize = 16;

/// An open interface: its receive sides, its send sides, and what keeps it open.
pub(crate) type Open = (Vec<Receiver>, Vec<Transmitter>, Vec<Wire>);

/// Opens an interface for `receivers` receivers and `senders` senders.
pub(crate) fn open(
    spec: &PortSpec,
    interface: &Interface,
    receivers: usize,
    senders: usize,
    inherited: &mut Inherited,
) -> io::Result<Open> {
    let slots = spec.ring.map_or(SLOTS_DEFAULT, |ring| ring as usize);
    let rings = inherited.take(interface.index, slots, receivers);
    let rings = rings.map_or_else(|| Ring::open_all(interface.index, slots, receivers), Ok)?;
    let wires = rings.iter().map(|ring| Wire::of(interface.index, ring)).collect::<io::Result<_>>()?;
    let receiver = |ring| Receiver { ring, train: Train::default(), segment: Vec::new(), senseless: 0 };
    let sender = |_| Sender::open(interface.index).map(|socket| Transmitter { socket });
    let senders = (0..senders).map(sender).collect::<io::Result<_>>()?;
    Ok((rings.into_iter().map(receiver).collect(), senders, wires))
}

/// The receive side of one ring.
pub(crate) struct Receiver {
    ring: Ring,
    /// A train of segments that have not all been taken yet.
    train: Train,
    /// The frame to offer next: a segment, a frame whose tag was put back, or a frame for which no buffer was free. Empty if there is none.
    segment: Vec<u8>,
    /// Frames that the kernel delivered incompletely, and trains with malformed headers.
    senseless: u64,
}

impl Receiver {
    /// Offers the pending frame and the rest of the train. Returns false if not everything was taken.
    fn take_train(&mut self, into: &mut Arrivals<'_>) -> bool {
        loop {
            if self.segment.is_empty() {
                if self.train.is_empty() {
                    return true;
                }
                self.train.next(&mut self.segment);
            }
            if !into.put(&self.segment) {
                return false;
            }
            self.segment.clear();
        }
    }
}

impl RxPort for Receiver {
    fn receive(&mut self, into: &mut Arrivals<'_>) {
        while self.take_train(into) && into.has_room() {
            let Some(mut slot) = self.ring.slot() else { return };
            let Some(Filled { offload, tag, frame }) = slot.frame() else {
                self.senseless += 1;
                continue;
            };
            let header = VnetHeader::read(&offload);
            if header.is_train() {
                self.segment.clear();
                let whole = tagged(frame, tag, &mut self.segment);
                self.senseless += u64::from(!self.train.load(whole, header.behind(tag.is_some())));
                self.segment.clear();
                continue;
            }
            header.complete(frame);
            if tag.is_some() {
                // `take_train` offers it.
                tagged(frame, tag, &mut self.segment);
            } else if !into.put(frame) {
                // `take_train` will offer it, so that completed work is not repeated.
                self.segment.clear();
                self.segment.extend_from_slice(frame);
                return;
            }
        }
    }

    fn awaits(&self, readable: &mut Vec<RawFd>) -> bool {
        readable.push(self.ring.as_raw_fd());
        // What has been taken from the ring and found no buffer is announced by nothing.
        self.segment.is_empty() && self.train.is_empty()
    }

    fn missed(&mut self) -> u64 {
        self.ring.missed() + self.senseless
    }
}

/// The frame with the tag that the kernel removed (IEEE 802.1Q section 9.6: after the addresses), assembled
/// in `into`; the frame itself if there is no tag.
fn tagged<'a>(frame: &'a [u8], tag: Option<(u16, u16)>, into: &'a mut Vec<u8>) -> &'a [u8] {
    let (Some((tpid, tci)), Some((addresses, rest))) = (tag, frame.split_first_chunk::<12>()) else { return frame };
    into.clear();
    into.extend_from_slice(addresses);
    into.extend_from_slice(&tpid.to_be_bytes());
    into.extend_from_slice(&tci.to_be_bytes());
    into.extend_from_slice(rest);
    into
}

/// One worker's send side.
pub(crate) struct Transmitter {
    socket: Sender,
}

impl TxPort for Transmitter {
    fn send(&mut self, batch: &Batch, _: &mut Buffers, out: &[u16]) -> Sent {
        let mut sent = Sent::default();
        let (mut rest, mut retries) = (out, RETRIES);
        while !rest.is_empty() {
            let frames = rest.iter().take(SEND_MAX).map(|&i| batch.bytes(i.into()));
            let done = match self.socket.send(frames) {
                Ok(count) => {
                    sent.packets += count as u64;
                    sent.bytes += rest[..count].iter().map(|&i| batch.bytes(i.into()).len() as u64).sum::<u64>();
                    count
                }
                Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => {
                    sent.too_long += 1;
                    1
                }
                Err(error) if is_busy(&error) && retries > 0 => {
                    retries -= 1;
                    std::thread::yield_now();
                    0
                }
                Err(error) if is_busy(&error) || is_down(&error) => {
                    sent.device_full += rest.len() as u64;
                    return sent;
                }
                // It is about the first frame alone, such as one without a whole Ethernet header.
                Err(_) => {
                    sent.device_full += 1;
                    1
                }
            };
            rest = &rest[done..];
        }
        sent
    }
}

/// Whether the device or its socket has no room just now.
fn is_busy(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM | libc::EINTR))
}

/// Whether the device takes no frames at all.
fn is_down(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV))
}

#[cfg(test)]
mod tests {
    use super::tagged;

    #[test]
    fn a_tag_is_put_back_behind_the_addresses() {
        let frame: Vec<u8> = (0..20).collect();
        let mut place = Vec::new();
        let whole = tagged(&frame, Some((0x8100, 0x2007)), &mut place);
        assert_eq!(whole, [&frame[..12], &[0x81, 0, 0x20, 7], &frame[12..]].concat());
        assert_eq!(tagged(&frame, None, &mut Vec::new()), frame);
        assert_eq!(tagged(&frame[..5], Some((0x8100, 7)), &mut Vec::new()), &frame[..5]);
    }
}

//! Frames in a single order: the form that files and generators have before their frames are distributed to queues.

use std::time::Duration;

use braid_packet::{FrameInfo, Port};

use crate::capture::Damage;

/// What comes next in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The next frame; see [`FrameStream::frame`].
    Frame,
    /// No frame for this long, because the next one is not due yet.
    Wait(Duration),
    /// The end of the stream.
    End,
}

/// Frames in order, numbered from 0 without gaps.
pub trait FrameStream: Send {
    /// Advances to the next frame.
    fn advance(&mut self) -> Next;

    /// The frame to which the last [`advance`](FrameStream::advance) led; empty if it led to none.
    fn frame(&self) -> (&[u8], FrameInfo);

    /// Whether [`advance`](FrameStream::advance) may block on frames that have not been sent yet. Before it
    /// blocks, it once returns a [`Next::Wait`] of zero duration.
    fn may_block(&self) -> bool {
        false
    }

    /// The number of ports that are there for its frames; what arrives by others is left out.
    fn ports_max(&self) -> Port {
        Port::MAX
    }

    /// Positions at which the input is damaged, as far as it has been read.
    fn damages(&self) -> &[Damage] {
        &[]
    }
}

//! Frames one after another, in one order: what files and generators are before they are spread over queues.

use std::time::Duration;

use braid_packet::FrameInfo;

use crate::capture::Damage;

/// What comes next in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A frame: see [`FrameStream::frame`].
    Frame,
    /// Nothing for this long: the next frame is not due yet.
    Wait(Duration),
    /// Nothing any more.
    End,
}

/// Frames in order, numbered from 0 without gaps.
pub trait FrameStream: Send {
    /// Goes to the next frame.
    fn advance(&mut self) -> Next;

    /// The frame that the last [`advance`](FrameStream::advance) came to; empty if it came to none.
    fn frame(&self) -> (&[u8], FrameInfo);

    /// Whether [`advance`](FrameStream::advance) may wait for frames that nobody has sent yet. Before it does, it says so once
    /// with a [`Next::Wait`] of no time.
    fn may_block(&self) -> bool {
        false
    }

    /// Where the input turned out to be damaged so far.
    fn damages(&self) -> &[Damage] {
        &[]
    }
}

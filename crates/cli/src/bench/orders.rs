//! Draws the flows of a measurement by popularity. Its input is a stream in which every frame belongs to
//! another flow; these frames are kept and delivered repeatedly.

use braid_control::runtime::io::{FrameStream, Next};
use braid_control::runtime::nf::packet::FrameInfo;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand_distr::{Distribution, Zipf};

/// Exponent of the popularity of flows.
const EXPONENT: f64 = 1.1;
const SEED: u64 = 0x6272_6169_6421;

/// The frame of a flow.
struct Kept {
    bytes: Vec<u8>,
    info: FrameInfo,
}

fn keep(stream: &mut dyn FrameStream) -> Option<Kept> {
    if stream.advance() != Next::Frame {
        return None;
    }
    let (bytes, info) = stream.frame();
    Some(Kept { bytes: bytes.to_vec(), info })
}

/// Kept frames of flows, renumbered in the order of delivery.
struct Given {
    flows: Vec<Kept>,
    now: usize,
    given: u64,
}

impl Given {
    fn new(flows: Vec<Kept>) -> Given {
        Given { flows, now: 0, given: 0 }
    }

    fn give(&mut self, flow: usize) -> Next {
        (self.now, self.given) = (flow, self.given + 1);
        Next::Frame
    }

    fn frame(&self) -> (&[u8], FrameInfo) {
        let Kept { bytes, info } = &self.flows[self.now];
        (bytes, FrameInfo { sequence: self.given - 1, ..*info })
    }
}

/// Flows drawn by Zipf's law.
pub struct ByPopularity {
    given: Given,
    law: Zipf<f64>,
    random: SmallRng,
    left: u64,
}

impl ByPopularity {
    /// Draws `packets` packets from the flows of `stream`; `None` if the stream is empty.
    pub fn new(stream: &mut dyn FrameStream, packets: u64) -> Option<ByPopularity> {
        let flows: Vec<Kept> = std::iter::from_fn(|| keep(stream)).collect();
        let law = Zipf::new(flows.len() as f64, EXPONENT).ok()?;
        Some(ByPopularity { given: Given::new(flows), law, random: SmallRng::seed_from_u64(SEED), left: packets })
    }
}

impl FrameStream for ByPopularity {
    fn advance(&mut self) -> Next {
        let Some(left) = self.left.checked_sub(1) else { return Next::End };
        self.left = left;
        let rank = self.law.sample(&mut self.random) as usize;
        let flow = rank.clamp(1, self.given.flows.len()) - 1;
        self.given.give(flow)
    }

    fn frame(&self) -> (&[u8], FrameInfo) {
        self.given.frame()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream whose frame `n` contains the number `n`.
    struct Numbers(u64, u64, [u8; 8]);

    impl FrameStream for Numbers {
        fn advance(&mut self) -> Next {
            if self.0 == self.1 {
                return Next::End;
            }
            self.2 = self.0.to_le_bytes();
            self.0 += 1;
            Next::Frame
        }

        fn frame(&self) -> (&[u8], FrameInfo) {
            (&self.2, FrameInfo::default())
        }
    }

    fn numbers(stream: &mut dyn FrameStream) -> Vec<u64> {
        let next = || keep(stream).map(|kept| u64::from_le_bytes(kept.bytes.try_into().unwrap()));
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn a_popular_flow_comes_more_often_than_all_rare_ones_together() {
        let mut drawn = ByPopularity::new(&mut Numbers(0, 1000, [0; 8]), 10_000).unwrap();
        let drawn = numbers(&mut drawn);
        assert_eq!(drawn.len(), 10_000);
        let of = |range: std::ops::Range<u64>| drawn.iter().filter(|flow| range.contains(flow)).count();
        assert!(of(0..1) > of(500..1000) && of(0..1) > 1000 && of(500..1000) > 0);
    }
}

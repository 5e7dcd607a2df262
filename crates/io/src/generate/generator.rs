//! The generator: a stream of frames, and a source.

use std::sync::Arc;

use braid_packet::{FrameInfo, Link};

use super::arrivals::Clock;
use super::config::{ConfigError, FRAME_MAX, GenConfig, Order, TcpStyle};
use super::flow::{Directory, Flow, Transport};
use super::frame::{self, ACK, FIN, FRAGMENT_MIN, FRAME_MIN, PSH, Packet, SYN};
use super::sessions::{Session, Sessions};
use super::sizes::{LengthTable, SizeTable};
use crate::progress::{Progress, Unit};
use crate::random::{Random, hash, unit};
use crate::source::{OpenError, QueueSelect, RxQueue, Source};
use crate::spread::spread;
use crate::stream::{FrameStream, Next};

/// Timestamp of the first packet, in nanoseconds since 1970: a moment in 2023.
const START_NS: u64 = 1_700_000_000_000_000_000;
/// Maximum length of a TCP frame that is a bare acknowledgement.
const BARE_ACK_MAX: u32 = 64;
/// Number of packets between two updates of the progress.
const REPORT_EVERY: u64 = 4096;

/// A stream of generated frames.
pub struct Generator {
    config: GenConfig,
    directory: Directory,
    sessions: Sessions,
    lengths: LengthTable,
    clock: Clock,
    random: Random,
    room: Vec<u8>,
    len: usize,
    info: FrameInfo,
    /// The second fragment of a datagram whose first fragment has been sent.
    second: Vec<u8>,
    second_waits: bool,
    fragments: u64,
    emitted: u64,
    progress: Arc<Progress>,
}

impl Generator {
    /// Validates the configuration and starts the generator.
    pub fn new(config: GenConfig) -> Result<Generator, ConfigError> {
        config.check()?;
        let sizes = SizeTable::new(config.flow_sizes, config.flows);
        let control = match (config.order, config.tcp) {
            (Order::RoundRobin, _) | (_, TcpStyle::SynOnly) => 0.0,
            // SYN, and FIN for flows with more than one packet; twice as many if there are two directions.
            _ => {
                let ends = if config.reverse > 0.0 { 3.0 } else { 1.0 };
                config.protocols.tcp * (1.0 + ends * (1.0 - sizes.one_packet)) / sizes.mean
            }
        };
        let progress = Arc::new(Progress::new(Unit::Packets));
        progress.set_total(config.packets);
        Ok(Generator {
            directory: Directory::new(&config),
            sessions: Sessions::new(config.order, config.flows, sizes, config.seed),
            lengths: LengthTable::new(config.frame_sizes, control.min(0.9)),
            clock: Clock::new(&config.arrivals, START_NS),
            random: Random::new(config.seed ^ 0x6765_6e65_7261_7465),
            room: vec![0; FRAME_MAX as usize + FRAME_MIN],
            len: 0,
            info: FrameInfo::default(),
            second: Vec::new(),
            second_waits: false,
            fragments: 0,
            emitted: 0,
            progress,
            config,
        })
    }

    /// Generates the next frame of the flow whose turn it is.
    fn next_of_flow(&mut self) {
        let mut session = self.sessions.next();
        let flow = self.directory.flow(session.flow);
        let packet = self.plan(&mut session, &flow);
        self.len = frame::write(&mut self.room, &flow, &packet);
        self.info.port = u16::from(!packet.forward);
        self.sessions.sent(session);
        let due = (self.fragments as f64) < self.config.fragments * self.emitted as f64;
        if due && !flow.v6 && self.len >= FRAGMENT_MIN {
            let whole = self.len;
            self.len = frame::fragment(&mut self.room, whole, &mut self.second);
            self.second_waits = true;
            self.fragments += 2;
        }
    }

    /// Decides direction, flags, numbers and length of a flow's next packet.
    fn plan(&self, session: &mut Session, flow: &Flow) -> Packet {
        let index = session.sent;
        let bits = hash(self.config.seed ^ session.flow, index);
        let forward = self.is_forward(session, bits);
        let (ours, theirs) = if forward { (0, 1) } else { (1, 0) };
        let flags = if flow.transport == Transport::Tcp { self.tcp_flags(session, forward) } else { 0 };
        let headers = frame::header_bytes(flow);
        // In round-robin order, all frames of a flow have the same length, so its sequence numbers need no memory.
        let drawn = if self.config.order == Order::RoundRobin { hash(self.config.seed, session.flow) } else { bits };
        let length = self.lengths.length(drawn);
        let bare = flow.transport == Transport::Tcp
            && (flags & (SYN | FIN) != 0 || (length <= BARE_ACK_MAX && session.size != 0));
        let payload = if bare { 0 } else { (length as usize).saturating_sub(headers) };
        if session.size == 0 && index > 0 {
            session.sequence[ours] =
                session.sequence[ours].wrapping_add(1).wrapping_add((index as u32 - 1).wrapping_mul(payload as u32));
        }
        let packet = Packet {
            index,
            forward,
            tcp_flags: flags | if flags & (SYN | FIN) == 0 && payload > 0 { PSH } else { 0 },
            sequence: session.sequence[ours],
            acknowledgement: if flags & ACK != 0 { session.sequence[theirs] } else { 0 },
            payload,
        };
        let consumed = payload as u32 + u32::from(flags & (SYN | FIN) != 0);
        session.sequence[ours] = session.sequence[ours].wrapping_add(consumed);
        packet
    }

    fn is_forward(&self, session: &Session, bits: u64) -> bool {
        let left = session.size.wrapping_sub(session.sent);
        match session.sent {
            _ if self.config.reverse == 0.0 || self.config.tcp == TcpStyle::SynOnly => true,
            0 => true,
            1 => false,
            2 => true,
            // Both sides close the connection.
            _ if session.size >= 6 && left <= 2 => left == 2,
            _ => unit(hash(bits, 1)) >= self.config.reverse,
        }
    }

    fn tcp_flags(&self, session: &Session, forward: bool) -> u8 {
        let left = session.size.wrapping_sub(session.sent);
        match session.sent {
            _ if self.config.tcp == TcpStyle::SynOnly => SYN,
            0 => SYN,
            1 if !forward => SYN | ACK,
            _ if left == 1 || (left == 2 && session.size >= 6 && self.config.reverse > 0.0) => FIN | ACK,
            _ => ACK,
        }
    }
}

impl FrameStream for Generator {
    fn advance(&mut self) -> Next {
        if self.emitted == self.config.packets {
            self.len = 0;
            return Next::End;
        }
        if std::mem::take(&mut self.second_waits) {
            self.len = self.second.len();
            self.room[..self.len].copy_from_slice(&self.second);
        } else if self.config.arp > 0.0 && self.random.chance(self.config.arp) {
            let bits = self.random.bits();
            let pair = (((bits >> 32) * u64::from(self.config.mac_pairs)) >> 32) as u32;
            self.len = frame::write_arp(&mut self.room, pair, bits);
            self.info.port = 0;
        } else {
            self.next_of_flow();
        }
        if let Some(split) = &self.config.split {
            self.info.port = split.port(&self.room[..self.len], Link::Ethernet);
        }
        self.info.timestamp_ns = self.clock.next_ns(&mut self.random);
        self.info.wire_len = self.len as u32;
        self.info.sequence = self.emitted;
        self.emitted += 1;
        if self.emitted.is_multiple_of(REPORT_EVERY) || self.emitted == self.config.packets {
            self.progress.add((self.emitted - 1) % REPORT_EVERY + 1);
        }
        Next::Frame
    }

    fn frame(&self) -> (&[u8], FrameInfo) {
        (&self.room[..self.len], self.info)
    }
}

/// Generated traffic as a source.
pub struct GeneratorSource {
    name: String,
    generator: Generator,
}

impl GeneratorSource {
    /// Makes a source with a name, such as that of its profile.
    pub fn new(name: &str, config: GenConfig) -> Result<GeneratorSource, ConfigError> {
        Ok(GeneratorSource { name: name.to_owned(), generator: Generator::new(config)? })
    }
}

impl Source for GeneratorSource {
    fn name(&self) -> String {
        format!("generated {}", self.name)
    }

    fn ports(&self) -> usize {
        match &self.generator.config.split {
            Some(split) => split.ports(),
            None if self.generator.config.reverse > 0.0 => 2,
            None => 1,
        }
    }

    fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.generator.progress)
    }

    fn open(self: Box<Self>, queues: usize, select: Arc<dyn QueueSelect>) -> Result<Vec<Box<dyn RxQueue>>, OpenError> {
        spread(self.generator, queues, select)
    }
}

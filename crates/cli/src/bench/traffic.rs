//! The traffic of a measurement, in frames of minimum length, and the configuration with which functions
//! neither drop nor flood it. First each flow sends once, unmeasured; then, depending on [`Trace`], all
//! flows send in turn without locality, in another order, or under new names.

use braid_control::plan::file::{PlanFile, SetFile, unplaced};
use braid_control::runtime::io::generate::{Addresses, FrameSizes, GenConfig, Generator, Profile, Protocols};
use braid_control::runtime::io::memory::{Repeat, ReplaySource};
use braid_control::runtime::io::{FrameStream, Next};
use braid_control::runtime::nf::packet::FrameInfo;
use clap::ValueEnum;
use serde::Serialize;

use super::orders::ByPopularity;
use super::renewal::renewal;
use crate::failure::{Failure, Kind};

/// How flows follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trace {
    /// Each in turn
    Uniform,
    /// Drawn by Zipf's law with exponent 1.1
    Zipf,
    /// One packet in a hundred begins a new flow
    Churn1,
    /// One packet in ten begins a new flow
    Churn10,
    /// Every packet begins a new flow
    New,
    /// Each in turn, over IPv6
    Ipv6,
}

impl Trace {
    /// Share of packets that begin a new flow.
    pub fn churn(self) -> Option<f64> {
        match self {
            Trace::Churn1 => Some(0.01),
            Trace::Churn10 => Some(0.1),
            Trace::New => Some(1.0),
            _ => None,
        }
    }

    /// Its name in rows and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Trace::Uniform => "uniform",
            Trace::Zipf => "zipf",
            Trace::Churn1 => "churn1",
            Trace::Churn10 => "churn10",
            Trace::New => "new",
            Trace::Ipv6 => "ipv6",
        }
    }
}

/// Maximum number of packets in memory of a trace that is drawn at random.
const DRAWN_MAX: u64 = 4 << 20;
/// Length of a frame of 64 bytes on the wire, without its check sequence.
const FRAME_BYTES: u32 = 60;

/// The chain for ablation, latency and soak: that of FAJITA's paper.
pub const STATEFUL: &str = "flow_counter+rate_limiter+load_balancer";
/// Another chain, whose functions have sets without a common hash, so workers share some.
pub const SHARED: &str = "flow_counter:ip.src+policer+load_balancer";

/// The chains that are measured by default.
pub const CHAINS: [&str; 9] =
    ["forward", "flow_counter", "nat", "load_balancer", "firewall", "policer", "bridge", STATEFUL, SHARED];

/// The chain with this name: functions joined by `+`, each optionally followed by the fields of another packet set after colons.
pub fn chain(name: &str) -> PlanFile {
    let functions: Vec<Vec<&str>> = name.split('+').map(|function| function.split(':').collect()).collect();
    let mut file = PlanFile::of_functions(functions.iter().map(|function| function[0]));
    for (nf, function) in file.nf.iter_mut().zip(&functions) {
        let fields: Vec<_> = function[1..].iter().map(|field| unplaced((*field).to_owned())).collect();
        nf.packet_set =
            (!fields.is_empty()).then_some(SetFile { fields: unplaced(fields), symmetric: false, protocols: None });
    }
    file
}

/// The number of servers in a chain's traffic, as a power of two; `None` if the chain does not depend on it.
fn server_bits(chain: &str) -> Option<u32> {
    match (chain.contains("load_balancer"), chain.contains("policer")) {
        // Each server is one service, and one set of the policer.
        (true, true) => Some(10),
        (true, false) => Some(0),
        // As many sets as the generator can make.
        (false, true) => Some(17),
        (false, false) => None,
    }
}

/// Services on all server addresses in the ranges of RFC 2544 and for documentation, with sixteen backends if there is only one service.
fn services(bits: u32) -> Option<toml::Value> {
    let count = 1u32 << bits;
    let each = if count == 1 { 16 } else { 4 };
    let mut text = String::new();
    for at in 0..count {
        let number = |i: u32| at * each + i;
        let v4 = (0..each).map(|i| format!("{{ address = \"100.64.{}.{}\" }}", number(i) >> 8, number(i) & 255));
        let v6 = (0..each).map(|i| format!("{{ address = \"2001:db8:3::{:x}\" }}", number(i)));
        let (v4, v6) = (v4.collect::<Vec<_>>().join(", "), v6.collect::<Vec<_>>().join(", "));
        text += &format!("{{ address = \"198.18.{}.{}\", backends = [{v4}] }}, ", at >> 8, at & 255);
        text += &format!("{{ address = \"2001:db8:2::{at:x}\", backends = [{v6}] }}, ");
    }
    format!("service = [{text}]").parse::<toml::Table>().ok()?.remove("service")
}

/// Configures a chain to carry the flows without loss, `most` of which are remembered.
pub fn configure(file: &mut PlanFile, name: &str, most: u64) {
    let number = |n: u64| toml::Value::Integer(n as i64);
    for nf in &mut file.nf {
        match nf.function.get_ref().as_str() {
            "policer" => {
                nf.config.set("bytes_per_s", number(1_000_000_000));
                nf.config.set("burst_bytes", number(1_000_000_000));
            }
            "rate_limiter" => nf.config.set("bytes_per_s", number(1_000_000_000)),
            "nat" => {
                // An address holds 64 thousand mappings; the surplus allows for an uneven choice of addresses.
                let addresses = (most / 40_000 + 1).max(4);
                let address = |i: u64| toml::Value::String(format!("198.51.{}.{}", 100 + i / 250, i % 250 + 1));
                nf.config.set("external", toml::Value::Array((0..addresses).map(address).collect()));
                nf.config.set("mappings_max", number(most));
            }
            "bridge" => nf.config.set("capacity", number(most)),
            "firewall" => nf.config.set("connections_max", number(most)),
            "load_balancer" => {
                let bits = server_bits(name).unwrap_or(0);
                if let Some(services) = services(bits) {
                    nf.config.set("service", services);
                }
                if bits > 0 {
                    nf.config.set("table_size", number(401));
                }
            }
            _ => {}
        }
    }
}

/// Traffic in memory, and how much of its beginning is not measured.
pub struct Traffic {
    /// The frames, repeated forever.
    pub source: ReplaySource,
    /// Number of passes over them until tables reach their final fill level, if the clock advances with the packets.
    pub warm_passes: u64,
}

/// Maximum number of flows, for all of which sets and frames are held in memory.
pub const FLOWS_MAX: u64 = 1 << 27;

/// If flows come and go: the number of passes until nearly all of the first ones have ended.
const SETTLING: u64 = 10;

/// Traffic of `flows` simultaneous flows for a chain, of which about `packets` packets will be measured.
pub fn replay(chain: &str, flows: u64, trace: Trace, packets: u64) -> Result<Traffic, Failure> {
    let failed = |error: braid_control::runtime::io::generate::ConfigError| {
        Failure::new(Kind::Failed, format!("the traffic cannot be generated: {error}"), "other --flows may do")
    };
    let mut config = config(flows);
    if let Some(server_bits) = server_bits(chain) {
        let (client_bits, client_port_bits) = match server_bits {
            0 => (20, 12),
            17 => (8, 10),
            _ => (14, 10),
        };
        config.addresses = Addresses { client_bits, client_port_bits, server_bits, ..config.addresses };
        if chain.contains("load_balancer") {
            config.addresses.server_port = Some(80);
        }
    }
    config = GenConfig { packets: flows, ipv6: f64::from(u8::from(trace == Trace::Ipv6)), ..config };
    let mut stream: Box<dyn FrameStream> = if chain.contains("bridge") {
        let pairs = (flows / 2).max(1);
        config = GenConfig { packets: pairs, flows: pairs, mac_pairs: pairs as u32, ..config };
        Box::new(BothWays { inner: Generator::new(config).map_err(failed)?, reply: Vec::new(), is_reply: true })
    } else {
        Box::new(Generator::new(config).map_err(failed)?)
    };
    if trace == Trace::Zipf {
        stream = match ByPopularity::new(&mut *stream, packets.min(DRAWN_MAX).max(flows)) {
            Some(drawn) => Box::new(drawn),
            None => stream,
        };
    }
    let source = ReplaySource::load(trace.name(), &mut *stream, u64::MAX, Repeat::Forever);
    Ok(match trace.churn() {
        Some(share) => Traffic { source: source.renewed(renewal(chain, share)), warm_passes: SETTLING },
        None => Traffic { source, warm_passes: 1 },
    })
}

fn config(flows: u64) -> GenConfig {
    let uniform = Profile::Uniform.config(flows);
    GenConfig {
        flows,
        frame_sizes: FrameSizes::Fixed(FRAME_BYTES),
        protocols: Protocols { tcp: 0.0, udp: 1.0 },
        addresses: Addresses { client_bits: 16, client_port_bits: 10, server_bits: 12, ..Addresses::default() },
        ..uniform
    }
}

/// Every frame, followed by one in the opposite direction on the other port, so that a bridge has learned all stations after one pass.
struct BothWays {
    inner: Generator,
    reply: Vec<u8>,
    is_reply: bool,
}

impl FrameStream for BothWays {
    fn advance(&mut self) -> Next {
        self.is_reply = !self.is_reply;
        if !self.is_reply {
            return self.inner.advance();
        }
        self.reply.clear();
        self.reply.extend_from_slice(self.inner.frame().0);
        if let Some(macs) = self.reply.first_chunk_mut::<12>() {
            macs.rotate_left(6);
        }
        Next::Frame
    }

    fn frame(&self) -> (&[u8], FrameInfo) {
        let (frame, info) = self.inner.frame();
        let sequence = info.sequence * 2 + u64::from(self.is_reply);
        let bytes = if self.is_reply { &self.reply } else { frame };
        (bytes, FrameInfo { port: u16::from(self.is_reply), sequence, ..info })
    }
}
